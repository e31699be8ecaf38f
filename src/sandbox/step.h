/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/*
 * What a process of ours that can't format text tells its parent when a step fails; the parent owns the words.
 * @step: a string constant of this program; sent as its bytes, since the receiver may be another program image
 */
struct step_fail {
	char step[24];
	int32_t sys; /* errno */
};

static inline void step_fail_set(struct step_fail *f, const char *step, int sys)
{
	memset(f, 0, sizeof(*f));
	strncpy(f->step, step, sizeof(f->step) - 1);
	f->sys = sys;
}

/*
 * step_is_failed_on_purpose() - test builds only (-Dfail_steps=true): CLOCHE_FAIL_STEP=NAME fails that step with EIO
 *
 * Every step of the set-up and of the lock-down asks it, so that a test can prove what each failure leaves behind.
 */
static inline int step_is_failed_on_purpose(const char *step)
{
#ifdef CLOCHE_FAIL_STEPS
	const char *wanted = getenv("CLOCHE_FAIL_STEP");

	if (wanted && strcmp(wanted, step) == 0) {
		errno = EIO;
		return 1;
	}
#else
	(void)step;
#endif
	return 0;
}
