/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 * Calls with bad descriptors and pointers, and what a script must get: written by hand from the policy's intent, not from
 * its table.  Done for real, none of them changes anything even where no filter stops it.
 */
enum probe_expect {
	ALLOW = 0,  /* it reaches the kernel */
	FAKE0 = -1, /* it returns 0 and nothing is done */
	/* else: an errno */
};

struct probe_syscall {
	const char *name;
	int nr;
	uint64_t args[6];
	int expected;
};

/* The first PROBE_SYSCALLS_BASE of the table are the classic ways around a filter, the rest its own edges. */
#define PROBE_SYSCALLS_BASE 127
extern const struct probe_syscall probe_syscalls[];
extern const size_t n_probe_syscalls;
