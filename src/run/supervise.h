/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "run/wire.h"
#include "sandbox/outside.h"

/*
 * Supervising runs: one epoll loop, a table of state x event for each run.  Everything that decides a verdict is in
 * supervise.c; the bytes are moved by pump.c.
 */

struct work; /* one run under way, or a sandbox that is kept ready for one */
struct pool; /* pool.h */

struct supervise {
	struct outside outside;
	int epoll;
	int nothing; /* /dev/null */
	struct work *works[SANDBOX_SLOTS]; /* by slot */
	unsigned n_works;
	struct work *spare[4]; /* owned; for the next ones: a run takes two, and the kernel's pages for them cost more than they do */
	unsigned n_spare;
	unsigned max_works; /* as many as there are descriptors for; 0: not known yet */
	unsigned n_slots;   /* none is in use from here on */
	uint32_t n_tags;    /* works so far */
	bool has_done;      /* a work has been answered */
	struct watch *clock; /* owned; one timer for all works; NULL: not needed yet */
	uint64_t clock_ns;  /* what it is set to; 0: it is not */
	uint64_t answered_ns; /* when the last answer went */
	struct pool *pools; /* owned; of the environments that keep something ready */
	unsigned n_pools;
};

/* What an epoll event is about. */
enum watch_kind {
	WATCH_CONTROL,
	WATCH_LIFE,
	WATCH_CHANNEL,
	WATCH_INIT_SOCK,
	WATCH_INIT,
	WATCH_MAIN,
	WATCH_STATUS,
	WATCH_STDIN,
	WATCH_STDOUT,
	WATCH_STDERR,
	WATCH_OOM,
	WATCH_SOCKET,
	WATCH_HELPER_OUT,
	WATCH_MAX,    /* from here on: not a work's */
	WATCH_CLOCK,
	WATCH_ZYGOTE,
	WATCH_TICK,
};

struct watch {
	enum watch_kind kind;
	struct work *work; /* NULL: the supervisor's own */
	int fd;            /* borrowed from the work; -1: not watched */
	uint32_t events;
};

int watch_set(struct supervise *s, struct watch *w, int fd, uint32_t events) MUST_CHECK;
void watch_clear(struct supervise *s, struct watch *w);

/*
 * supervise_job() - a new run
 * @len: bytes of its bundle in @m; 0: it is a memfd
 * @fds: channel, bundle, and for a screened job the screen's bundle and the script; taken over
 *
 * A run that can't even start answers on its channel by itself.
 */
void supervise_job(struct supervise *s, const struct wire_job_message *m, size_t len, int *fds, size_t n_fds);

/* work_has_job() - else it is only kept ready */
bool work_has_job(const struct work *w);

/* supervise_park() - begin a sandbox without a job, for @p */
void supervise_park(struct supervise *s, struct pool *p);

/* supervise_event() - one epoll event of a run */
void supervise_event(struct supervise *s, struct watch *w, uint32_t events);

/* supervise_reap_strays() - reap ended children that nobody knows */
void supervise_reap_strays(struct supervise *s);

/* supervise_reap() - free the runs that were answered; between two rounds of events */
void supervise_reap(struct supervise *s);

/* supervise_end() - kill and reap everything (at the end of the supervisor) */
void supervise_end(struct supervise *s);
