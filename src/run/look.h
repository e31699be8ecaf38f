/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <sys/resource.h>

#include "run/work.h"

/* Deadlines, and looking at what a run uses: CPU seconds, and memory where no control group holds it. */

/* look_start() - the script has started.  Return: 0 or -errno */
int look_start(struct work *w) MUST_CHECK;

/* look_oom() - the control group tells of an out-of-memory */
void look_oom(struct work *w);

/* look_is_counted() - CPU time is the control group's to tell, not that of whoever was reaped */
bool look_is_counted(const struct work *w);

/* look_final() - everything is reaped: fill the outcome's figures */
void look_final(struct work *w);

uint64_t look_usage_ns(const struct rusage *u);

/* due_prepare() - the timer is there; before the first work.  Return: 0 or -errno */
int due_prepare(struct supervise *s) MUST_CHECK;

/* due_by() - a work has something due at @when_ns (0: nothing): the one timer is set to that, if it is not sooner */
void due_by(struct supervise *s, uint64_t when_ns);

/* due_now() - the timer: raises EVENT_DEADLINE, looks; sets itself again */
void due_now(struct supervise *s);
