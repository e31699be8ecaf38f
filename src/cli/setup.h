/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <sys/types.h>

#include "cli/options.h"
#include "cli/say.h"
#include "job/conf.h"
#include "job/request.h"
#include "run/run.h"

/*
 * The configuration in force, laid together in the order of its precedence, and what a supervisor is started with.
 */
struct setup {
	struct conf conf;
	struct run_options options; /* points into conf and the arrays below */
	struct run_environment *environments;
	const char **lists; /* owned; every NULL-terminated list, one behind the other */
};

/*
 * setup_load() - /etc/cloche/cloche.ini, the user's cloche.ini, CLOCHE_* variables, then the options in @o
 *
 * Return: 0, or -errno with @no filled.  setup_done() in every case.
 */
int setup_load(struct setup *ret, const struct options *o, struct refusal *no) MUST_CHECK;

/* setup_load_files() - these files alone over the defaults, as an administrator's (maxima allowed) */
int setup_load_files(struct setup *ret, char **files, struct refusal *no) MUST_CHECK;
void setup_done(struct setup *s);

/*
 * setup_settle() - what only the installation can say about a valid job: is its mode to be had
 *
 * Return: 0, or -EINVAL with @no filled.
 */
int setup_settle(const struct job *j, struct refusal *no) MUST_CHECK;

/*
 * setup_parse() - one request as JSON to a job that can be run here
 *
 * Return: 0, or -errno with @no filled and @ret untouched.  @ret belongs to the caller: job_done()
 */
int setup_parse(const struct setup *s, const char *json, size_t len, struct job *ret, struct refusal *no) MUST_CHECK;
