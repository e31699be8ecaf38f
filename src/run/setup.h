/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/macro.h"
#include "sandbox/probe.h"

/* What the front asked of its supervisor once, as lists into its mapped pack. */
struct setup {
	int fd; /* owned: the sealed memfd */
	const char *pack;
	size_t len;
	const char *require[PROBE_WALLS + 2]; /* names of protections, NULL-terminated */
	const char *allow[PROBE_WALLS + 2];
	int n_envs;
	bool has_pools; /* something is to be kept ready */
	bool is_single; /* one run at a time */
};

/* setup_take() - receive it on the control socket: the first message.  Return: 0 or -errno with @e set */
int setup_take(struct setup *s, struct err *e) MUST_CHECK;

/* setup_read() - fill the rest from s->fd.  Return: 0 or -errno with @e set (ERR_INVALID: what was asked can't be) */
int setup_read(struct setup *s, struct err *e) MUST_CHECK;

/* setup_paths() - the extra paths of environment number @env, at most @max.  Return: how many */
size_t setup_paths(const struct setup *s, int env, const char **paths, size_t max);

/* setup_covers() - outside_cover() for each file that is to be covered */
void setup_covers(const struct setup *s);
