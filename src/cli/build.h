/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/options.h"
#include "cli/setup.h"

/*
 * build_job() - the options and operands of `cloche run` to a valid job
 *
 * Operands: SCRIPT (a path, or - for standard input), then the script's arguments.
 * Return: 0 with @ret filled (the caller's: job_done()), or -errno with @no filled, naming the option.
 */
int build_job(const struct options *o, const struct setup *s, struct job *ret, struct refusal *no) MUST_CHECK;
