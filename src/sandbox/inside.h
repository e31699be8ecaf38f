/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "sandbox/cgroup.h"
#include "sandbox/home.h"
#include "sandbox/spec.h"
#include "sandbox/step.h"

/* The descriptor by which a locked-down child still speaks: CLOEXEC, closed by a cold child's exec. */
#define INSIDE_STATUS_FD 3

/* What the lock-down of one child needs; all borrowed. */
struct inside {
	const struct home *home;
	const struct sandbox_spec *spec;
	const struct cgroup *cgroup; /* NULL: this child is not accounted to the run (helpers) */
	int init;                    /* pidfd of the sandbox's init */
	int in, out, err;            /* become 0, 1, 2 */
	int status;                  /* becomes INSIDE_STATUS_FD */
	uint64_t address_space;      /* RLIMIT_AS in bytes; 0: none */
	uint32_t cpu_seconds;        /* RLIMIT_CPU; 0: none */
	uint64_t signals;            /* those that may not be at their default (1 << number - 1); 0: any may be */
	bool has_filters;            /* A and B are loaded already (inherited from a fork server) */
	bool is_sampled;             /* memory is held by sampling: RLIMIT_DATA behind it, no memfd */
	int cpu;                     /* >= 0: CPUs are held by affinity, from this one on */
	int *ret_listener;           /* set to what hangs up at the end (seccomp_load_heard()), or -1; NULL: not wanted */
	bool tells_sockets;          /* it tells of sockets, too (seccomp_load_watched()), if there is a network at all */
};

/*
 * inside_lock_down() - the calling process enters the sandbox and locks itself down, step by step, for good
 *
 * The caller is a child of the supervisor (or of a fork server) in the sandbox's process namespace, single-threaded.
 * Async-signal-safe: no allocation, no lock.
 * Return: 0, or -1 with @fail set (the process must then end).
 */
int inside_lock_down(const struct inside *in, struct step_fail *fail);

/*
 * inside_load_filters() - filters A and B ahead of time, for a fork server whose children say has_filters
 *
 * What the lock-down needs is still allowed.  Return: 0 or -1 with errno.
 */
int inside_load_filters(void);

/* inside_cpu_seconds() - RLIMIT_CPU behind the exact way: one process alone, rounded up, and one more */
static inline uint32_t inside_cpu_seconds(const struct sandbox_spec *s)
{
	return (uint32_t)(s->cpu_ns / UINT64_C(1000000000)) + 2;
}

/*
 * inside_data_bytes() - RLIMIT_DATA where no control group holds memory: behind sampling, for what grows faster than
 * samples are taken; without a proc nothing is sampled, and it is all that each process has
 */
static inline uint64_t inside_data_bytes(const struct sandbox_spec *s, bool has_proc)
{
	return has_proc ? 2 * s->memory_bytes + (UINT64_C(256) << 20) : s->memory_bytes;
}

/*
 * inside_write_files() - the bundle's SANDBOX_FILE records, below /tmp, where the lock-down has left us.  Return: 0 or -errno
 */
int inside_write_files(const char *bundle, size_t len);

/*
 * inside_exec() - execve of the bundle's SANDBOX_EXEC with its SANDBOX_ARG and SANDBOX_ENV.  Return: only on failure, -errno
 */
int inside_exec(const char *bundle, size_t len);
