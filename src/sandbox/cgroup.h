/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/*
 * Limits by control groups: one interface, two implementations (cgroup_v1.c, cgroup_v2.c), chosen by what the host has.
 *
 * Theory of operation.  The outer process (real uid, before it enters its own user namespace) calls cgroup_host_open():
 * it finds its own group in each hierarchy and makes one folder of ours below it, owned by the uid that will be root
 * inside.  The supervisor inside then makes one child folder per slot through the open folders (it sees no cgroupfs),
 * keeps it and uses it again; results are differences of counters.
 *
 * Joining, v1: the child itself writes "0" to each `tasks` file, as the first step of its lock-down, before setns and
 * before it changes its ids (writing another process's pid costs 7-15 ms when runs are sparse; "0" does not).
 *
 * Joining, v2: clone3(CLONE_INTO_CGROUP) with dir[0] (free); never a write to cgroup.procs (7-11 ms).  The cloning
 * process must sit in our own subtree itself: the supervisor is cloned into sup_dir, and the slots are its siblings.
 */
enum cgroup_kind { CGROUP_NONE, CGROUP_V1, CGROUP_V2 };
enum cgroup_controller { CGROUP_MEMORY = 1, CGROUP_PIDS = 2, CGROUP_CPU = 4, CGROUP_CPUACCT = 8 };
#define CGROUP_ALL         (CGROUP_MEMORY | CGROUP_PIDS | CGROUP_CPU)
#define CGROUP_HIERARCHIES 4
#define CGROUP_PATH        512

/* Plain data: it survives exec as it is (descriptors included, once CLOEXEC is cleared on them). */
struct cgroup_host {
	int32_t kind;                    /* enum cgroup_kind */
	uint32_t has;                    /* enum cgroup_controller bits that can be enforced */
	int32_t dir[CGROUP_HIERARCHIES]; /* our folder in each hierarchy; -1: none.  Controllers may share one */
	uint32_t controllers[CGROUP_HIERARCHIES];   /* what dir[i] holds */
	char path[CGROUP_HIERARCHIES][CGROUP_PATH]; /* absolute, for the outer process's clean-up only */
	char why_not[320]; /* what is missing and why, with the remedy; empty when all is there */
	int32_t is_single; /* v1: our folder itself is the group of slot 0, and there is no other slot */
	int32_t sup_dir;   /* v2: the leaf for our own processes, for CLONE_INTO_CGROUP; -1: none needed */
};

#define CGROUP_HOST_EMPTY                                                                                              \
	{                                                                                                              \
		.dir = { -1, -1, -1, -1 }, .sup_dir = -1                                                               \
	}

/* cgroup_host_is_v2() - none of our controllers is in a v1 hierarchy here: processes must be born in their groups */
bool cgroup_host_is_v2(void);

/*
 * cgroup_host_open() - find and prepare; never fails because a controller is missing (@ret->has tells)
 * @uid, @gid:  who must be able to make groups below (root of our user namespace, as a host id)
 * @is_single: there will be one slot: on v1 half of the folders are spared (each costs 0.1 ms to make and again to
 * remove)
 *
 * Folders are called "cloche-<pid>-<random>".  They are locked (flock) for as long as any process keeps dir[] open.  On
 * v2 call it before the first fork: the caller, and the process that started it, may have to move into a leaf; they are
 * moved back at the end.  All descriptors are CLOEXEC and belong to @ret.
 *
 * Return: 0, -errno with @e on our own faults.
 */
int cgroup_host_open(uid_t uid, gid_t gid, bool is_single, struct cgroup_host *ret, struct err *e) MUST_CHECK;

/* cgroup_host_sweep() - remove the folders beside ours whose owners are dead; when there is time for it */
void cgroup_host_sweep(const struct cgroup_host *h);

/*
 * cgroup_host_close() - by the outer process at the end: remove the folders with everything below
 *
 * All processes inside must be dead or dying: it retries for at most a second and then leaves the rest to the next
 * sweep.  Closes the descriptors; @h is empty afterwards.
 */
void cgroup_host_close(struct cgroup_host *h);

/* cgroup_host_send(), cgroup_host_receive() - from the outer process to the one inside, descriptors too.  Return: 0 or
 * -errno */
int cgroup_host_send(const struct cgroup_host *h, int sock) MUST_CHECK;
int cgroup_host_receive(struct cgroup_host *ret, int sock) MUST_CHECK;

/* All of them are above 0. */
struct cgroup_limits {
	uint64_t memory_bytes; /* without swap */
	uint32_t processes;    /* threads count */
	uint32_t cpu_milli;    /* thousandths of one CPU */
};

enum cgroup_counter {
	CGROUP_PEAK,
	CGROUP_CHARGED,
	CGROUP_OOM,
	CGROUP_REFUSED,
	CGROUP_USED,
	CGROUP_ALIVE,
	CGROUP_COUNTERS
};

/* One slot's group. */
struct cgroup {
	int kind;
	uint32_t has;
	uint32_t controllers[CGROUP_HIERARCHIES]; /* as in the host */
	int dir[CGROUP_HIERARCHIES];              /* owned; -1: none.  v2: dir[0], for CLONE_INTO_CGROUP */
	int tasks[CGROUP_HIERARCHIES];            /* owned; v1: open for writing, for cgroup_join() */
	int oom_fd;          /* owned; poll: v1 an eventfd (EPOLLIN), v2 memory.events (EPOLLPRI); -1: none */
	uint32_t oom_events; /* the epoll events to wait for on oom_fd */
	int peak_fd;         /* owned; v2: memory.peak, whose reset holds for this descriptor alone; -1: none */
	int counters[CGROUP_COUNTERS]; /* owned; v1: open, so that a run costs a read each; -1: none */
	bool has_peak;                 /* v2: memory.peak was reset (6.12), or the group is new */
	bool is_resting;               /* v1: dir and tasks are closed (cgroup_rest()) */
	bool is_used;                  /* by a run before this one: it was there already when it was opened */
	struct cgroup_limits now;      /* what was written last; 0: unknown */
	uint32_t period_us;            /* CPU period written last; 0: unknown */
	uint64_t oom_kills_before;
	uint64_t cpu_ns_before;
	uint64_t pids_max_before;
	uint64_t left_over_bytes; /* page cache of earlier runs that was still charged at cgroup_start() */
};

#define CGROUP_EMPTY                                                                                                   \
	{                                                                                                              \
		.dir = { -1, -1, -1, -1 }, .tasks = { -1, -1, -1, -1 }, .oom_fd = -1, .peak_fd = -1, .counters = {     \
			-1,                                                                                            \
			-1,                                                                                            \
			-1,                                                                                            \
			-1,                                                                                            \
			-1,                                                                                            \
			-1                                                                                             \
		}                                                                                                      \
	}

/* cgroup_open() - make (or take again) the group of @slot.  @ret is written on success only; all descriptors CLOEXEC */
int cgroup_open(const struct cgroup_host *h, unsigned slot, struct cgroup *ret, struct err *e) MUST_CHECK;

/*
 * cgroup_set() - before a run: write the limits
 *
 * No limit is silently dropped: a limit of a controller in g->has that can't be written, or is 0, is an error.
 * Values that are in force already are not written again.
 * Return: 0 or -errno with @e.
 */
int cgroup_set(struct cgroup *g, const struct cgroup_limits *l, struct err *e) MUST_CHECK;

/* cgroup_start() - reset the peak, note the counters: what is used from here on is this run's.  Return: 0 or -errno with @e */
int cgroup_start(struct cgroup *g, struct err *e) MUST_CHECK;

/* cgroup_is_set() - these are the limits in force: cgroup_set() would write none */
bool cgroup_is_set(const struct cgroup *g, const struct cgroup_limits *l);

/*
 * cgroup_rest() - v1: close what is needed only to write limits and to join, eight descriptors; counters can still be read
 * cgroup_rouse() - open it again.  Return: 0 or -errno with @e, and it rests still
 */
void cgroup_rest(struct cgroup *g);
int cgroup_rouse(const struct cgroup_host *h, unsigned slot, struct cgroup *g, struct err *e) MUST_CHECK;

/* cgroup_join() - in the child, v1 only (v2: nothing to do).  Async-signal-safe.  Return: 0 or -1 with errno */
int cgroup_join(const struct cgroup *g);

struct cgroup_usage {
	bool has_cpu;
	bool has_peak;
	uint64_t cpu_ns;       /* since cgroup_start() */
	uint64_t peak_bytes;   /* since cgroup_start(), without what earlier runs left in the page cache */
	uint64_t oom_kills;    /* processes that the OOM killer struck since cgroup_start() */
	uint64_t pids_refused; /* forks refused by the pids limit since cgroup_start() */
};

/*
 * cgroup_usage() - what was used since cgroup_start(); never fails (a counter that can't be read is 0 or not had)
 */
void cgroup_usage(const struct cgroup *g, struct cgroup_usage *ret);

/*
 * cgroup_is_oom() - oom_fd was readable: is this group out of memory?  Re-arms oom_fd.
 *
 * On v1 the event comes before the kill (oom_kills may still be 0), and also when a group above ours is out of memory,
 * for every group below that one at once.  On v2 it can mean other things.
 */
bool cgroup_is_oom(const struct cgroup *g);

/* cgroup_is_empty() - no process is inside, not even one that nobody has reaped; false where that can't be told */
bool cgroup_is_empty(const struct cgroup *g);

/* cgroup_close() - close the descriptors; with @remove also the folders (all processes must be reaped) */
void cgroup_close(struct cgroup *g, const struct cgroup_host *h, unsigned slot, bool remove);
