/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/options.h"
#include "cli/say.h"
#include "job/request.h"
#include "run/settings.h"

/*
 * setup_load() - /etc/cloche/cloche.ini, the user's cloche.ini, CLOCHE_* variables, then the options in @o
 *
 * Return: 0, or -errno with @no filled.  settings_done() in every case.
 */
int setup_load(struct settings *ret, const struct options *o, struct refusal *no) MUST_CHECK;

/* setup_load_files() - these files alone over the defaults, as an administrator's (maxima allowed) */
int setup_load_files(struct settings *ret, char **files, struct refusal *no) MUST_CHECK;

/*
 * setup_settle() - what only the installation can say about a valid job: is its mode to be had without a server
 *
 * Return: 0, or -EINVAL with @no filled.
 */
int setup_settle(const struct job *j, struct refusal *no) MUST_CHECK;

/*
 * setup_parse() - one request as JSON to a job that can be run here, without a server
 *
 * Return: 0, or -errno with @no filled and @ret untouched.  @ret belongs to the caller: job_done()
 */
int setup_parse(const struct settings *s, const char *json, size_t len, struct job *ret, struct refusal *no) MUST_CHECK;
