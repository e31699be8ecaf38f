/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/*
 * Limits by control groups: one interface, two implementations (cgroup_v1.c, cgroup_v2.c), chosen by what the host has.
 *
 * Theory of operation.  The outer process (real uid, before it enters its own user namespace) calls cgroup_host_open(): it
 * finds its own group in each hierarchy and makes one folder of ours below it, owned by the uid that will be root inside.
 * The supervisor inside then makes one child folder per slot through the open folders (it sees no cgroupfs), keeps it
 * and uses it again; results are differences of counters.  Joining:
 *   v1  the child itself writes "0" to each `tasks` file, as the first step of its lock-down, before setns and before
 *       it changes its ids (writing another process's pid costs 7-15 ms when runs are sparse; "0" does not);
 *   v2  clone3(CLONE_INTO_CGROUP) with dir_fd (free); never a write to cgroup.procs (7-11 ms).
 */
enum cgroup_kind { CGROUP_NONE, CGROUP_V1, CGROUP_V2 };
enum cgroup_controller { CGROUP_MEMORY = 1, CGROUP_PIDS = 2, CGROUP_CPU = 4, CGROUP_CPUACCT = 8 };
#define CGROUP_ALL         (CGROUP_MEMORY | CGROUP_PIDS | CGROUP_CPU)
#define CGROUP_HIERARCHIES 4
#define CGROUP_PATH        512

/* Plain data: it survives exec as it is (descriptors included, once CLOEXEC is cleared on them). */
struct cgroup_host {
	int32_t kind; /* enum cgroup_kind */
	uint32_t has; /* enum cgroup_controller bits that can be enforced */
	int32_t dir[CGROUP_HIERARCHIES];           /* our folder in each hierarchy; -1: none.  Controllers may share one */
	uint32_t controllers[CGROUP_HIERARCHIES];  /* what dir[i] holds */
	char path[CGROUP_HIERARCHIES][CGROUP_PATH]; /* absolute, for the outer process's clean-up only */
	char why_not[320]; /* what is missing and why, with the remedy; empty when all is there */
};

/*
 * cgroup_host_open() - find and prepare; never fails because a controller is missing (@ret->has tells)
 * @uid, @gid: who must be able to make groups below (root of our user namespace, as a host id)
 *
 * Folders are called "cloche-<pid>-<random>"; empty ones of dead owners are swept.
 * Return: 0, -errno with @e on our own faults.
 */
int cgroup_host_open(uid_t uid, gid_t gid, struct cgroup_host *ret, struct err *e) MUST_CHECK;

/* cgroup_host_close() - by the outer process at the end: remove the folders with everything below; retries for a bounded time */
void cgroup_host_close(struct cgroup_host *h);

struct cgroup_limits {
	uint64_t memory_bytes;
	uint32_t processes;
	uint32_t cpu_milli;
};

/* One slot's group. */
struct cgroup {
	int kind;
	uint32_t has;
	int dir[CGROUP_HIERARCHIES];   /* owned; -1: none.  v2: dir[0], for CLONE_INTO_CGROUP */
	int tasks[CGROUP_HIERARCHIES]; /* owned; v1: open for writing, for cgroup_join() */
	int oom_fd;                    /* owned; poll: v1 an eventfd (EPOLLIN), v2 memory.events (EPOLLPRI); -1: none */
	uint32_t oom_events;           /* the epoll events to wait for on oom_fd */
	uint64_t oom_kills_before;
	uint64_t cpu_ns_before;
	uint64_t pids_max_before;
};

#define CGROUP_EMPTY { .dir = { -1, -1, -1, -1 }, .tasks = { -1, -1, -1, -1 }, .oom_fd = -1 }

/* cgroup_open() - make (or take again) the group of @slot */
int cgroup_open(const struct cgroup_host *h, unsigned slot, struct cgroup *ret, struct err *e) MUST_CHECK;

/* cgroup_set() - before a run: write the limits, reset the peak, note the counters.  No limit is silently dropped. */
int cgroup_set(struct cgroup *g, const struct cgroup_limits *l, struct err *e) MUST_CHECK;

/* cgroup_join() - in the child, v1 only (v2: nothing to do).  Async-signal-safe.  Return: 0 or -1 with errno */
int cgroup_join(const struct cgroup *g);

struct cgroup_usage {
	bool has_cpu;
	bool has_peak;
	uint64_t cpu_ns;       /* since cgroup_set() */
	uint64_t peak_bytes;   /* since cgroup_set() */
	uint64_t oom_kills;    /* since cgroup_set() */
	uint64_t pids_refused; /* forks refused by the pids limit since cgroup_set() */
};

void cgroup_usage(const struct cgroup *g, struct cgroup_usage *ret);

/* cgroup_close() - close the descriptors; with @remove also the folders (all processes must be reaped) */
void cgroup_close(struct cgroup *g, const struct cgroup_host *h, unsigned slot, bool remove);
