/* SPDX-License-Identifier: Apache-2.0 */
/* Warm runs, as far as they differ: a zygote's fork, parked until it has a job; cold where there can be none. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/fd.h"
#include "run/pool.h"
#include "run/work.h"

/*
 * Most scripts are over sooner: what they have written is read at their end, and each of their writes would cost two changes
 * from one process to another.  A pipe holds 64 KiB until then.
 */
#define PATIENCE_NS (2 * NS_PER_MS)

static void not_forked(struct work *w)
{
	struct err e = { 0 };

	(void)err_set(&e, ERR_HOST, 0, "no warm process can be had: %.200s", w->outcome.note);
	work_fail(w, &e);
}

/* Ask for a parked child; where there can be none the run goes cold, in the same sandbox. */
void warm_fork(struct work *w)
{
	struct err e = { 0 };
	int r = -EPIPE;

	if (pool_is_ready(w->pool))
		r = zygote_ask(&w->s->outside, &w->pool->zygote, &w->box, w->tag, !w->has_job, w->pipes, &w->child, &e);
	if (r == 0)
		r = watch_set(w->s, &w->watch[WATCH_STATUS], w->child.status, EPOLLIN);
	w->state = WORK_FORKING;
	if (r == 0)
		work_enter(w, WORK_FORKING, BUILD_NS);
	else
		work_event(w, EVENT_NO_FORK);
}

/* The job and its limits for a parked child: its time begins now. */
void warm_hand_over(struct work *w)
{
	struct err e = { 0 };
	uint64_t now = 0;
	int r;

	r = sandbox_dress(&w->s->outside, &w->box, &w->child, &w->job.spec, &e);
	if (r == 0) {
		now = clock_now_ns();
		r = zygote_go(&w->child, w->bundle_fd, w->bundle, w->bundle_len, w->is_buffered);
	}
	if (r < 0) {
		if (e.kind == ERR_NONE)
			(void)err_set(&e, ERR_HOST, -r, "give a parked process its job");
		work_fail(w, &e);
		return;
	}
	w->outcome.is_warm = 1;
	pump_start(w, PATIENCE_NS);
	work_begin(w, now);
}

/* What it took to get here is not the script's. */
void warm_parked(struct work *w)
{
	struct err e = { 0 };

	if (sandbox_count(&w->box, &e) < 0) {
		work_fail(w, &e);
		return;
	}
	pool_child_parked(w->pool);
	watch_clear(w->s, &w->watch[WATCH_STATUS]); /* whether it gets as far as its script is told by its end */
	if (w->has_job)
		warm_hand_over(w);
	else
		work_enter(w, WORK_PARKED, 0);
	for (int i = 0; i < 3; i++) /* the child has its own */
		fd_close(&w->pipes[i]);
}

static void leave_pool(struct work *w)
{
	watch_clear(w->s, &w->watch[WATCH_STATUS]);
	watch_clear(w->s, &w->watch[WATCH_SOCKET]); /* it may have parked, and its zygote not told of it */
	fd_close(&w->child.listener);
	fd_close(&w->child.status); /* a child that was made is waiting on it, and ends; it is still to be reaped */
	(void)snprintf(w->outcome.note, sizeof(w->outcome.note), "%s", w->pool->why);
	if (!w->has_job)
		pool_child_lost(w->pool);
	w->pool = NULL;
}

/* No warm child after all: what is waiting for it goes cold in the sandbox that is there; nobody waits: it is let go. */
void warm_lost(struct work *w)
{
	struct err e = { 0 };
	bool may_go_cold = w->has_job && w->job.mode != WIRE_WARM;

	if (w->pool)
		leave_pool(w);
	if (may_go_cold && w->child.pidfd >= 0) { /* when it is reaped, this is called again */
		(void)sandbox_signal(&w->child, SIGKILL);
		return;
	}
	if (may_go_cold &&
	    sandbox_dress(&w->s->outside, &w->box, NULL, &w->job.spec, &e) == 0 && sandbox_count(&w->box, &e) == 0)
		work_start_main(w);
	else
		not_forked(w);
}

/* A zygote that does not answer is as good as dead: another is started, and whoever waits for this one goes cold. */
void warm_late(struct work *w)
{
	if (w->pool && w->child.pid == 0 && pool_is_ready(w->pool))
		pool_lost(w->pool, "its zygote does not answer");
	else
		work_build_late(w);
}
