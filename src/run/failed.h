/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "job/request.h"
#include "job/result.h"

/*
 * run_failed_result() - of what came to no result by a fault of ours or the host's: nothing is claimed about the script
 * @run_id: as somebody was told; NULL: one is made
 *
 * Return: 0 or -ENOMEM; @ret is to be released in both cases.
 */
int run_failed_result(const struct job *j, const char *run_id, const struct err *why, struct result *ret) MUST_CHECK;
