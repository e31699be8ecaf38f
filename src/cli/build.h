/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/options.h"
#include "cli/setup.h"

/*
 * build_job() - the options and operands of `cloche run` to a valid job
 *
 * @has_server: it will run there (mode warm can be had)
 *
 * Operands: SCRIPT (a path, or - for standard input), then the script's arguments.
 * Return: 0 with @ret filled (the caller's: job_done()), or -errno with @no filled, naming the option.
 */
int build_job(const struct options *o, const struct settings *s, bool has_server, struct job *ret,
	      struct refusal *no) MUST_CHECK;
