/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "doors/runner.h"
#include "run/settings.h"

/*
 * Runs by a supervisor of our own, for where no server is: the same shape as runs at cloched (runner.h).  It is started
 * with the first run or when told to get ready, keeps one or two sandboxes warm, and is started again when it has died.
 */
struct runner_own;
struct runner_own_run;

/* runner_own_new() - @s: finished settings, borrowed until runner_own_free().  Return: 0 or -errno with @e set */
int runner_own_new(struct event_base *base, struct settings *s, struct runner_own **ret, struct err *e) MUST_CHECK;

/* runner_own_free() - ends everything, without waiting for its clean-up: for a process that ends now; NULL is fine */
void runner_own_free(struct runner_own *r);

/* runner_own_warm() - runs are to come: start what is needed.  Return: 0 or -errno with @e set */
int runner_own_warm(struct runner_own *r, struct err *e);

/* runner_own_start() - as runner_start(); on_output is never called, the tenant is ourselves */
int runner_own_start(struct runner_own *r, const struct runner_request *q, struct runner_own_run **ret,
		     struct err *e) MUST_CHECK;

/* runner_own_drop() - as runner_drop() */
void runner_own_drop(struct runner_own_run *run);
