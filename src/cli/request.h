/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/options.h"
#include "job/request.h"

/*
 * request_write() - the job that `cloche run` was told to make, as a request for a server
 * @o: what was given: everything else is left out, so that the server's own defaults hold
 *
 * Return: 0 with *@ret (heap, the caller frees); -EILSEQ: an argument, variable or pattern is no UTF-8, which JSON
 * can't carry; -ENOMEM.
 */
int request_write(const struct job *j, const struct options *o, char **ret) MUST_CHECK;
