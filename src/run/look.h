/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <sys/resource.h>

#include "run/work.h"

/* Looking at what a run uses: CPU seconds, and memory where no control group holds it. */

/* look_start() - the script has started.  Return: 0 or -errno */
int look_start(struct work *w) MUST_CHECK;

/* look_again() - the look timer: raises EVENT_CPU or EVENT_MEMORY, or arms itself again */
void look_again(struct work *w);

/* look_oom() - the control group tells of an out-of-memory */
void look_oom(struct work *w);

/* look_final() - everything is reaped: fill the outcome's figures */
void look_final(struct work *w);

uint64_t look_usage_ns(const struct rusage *u);
