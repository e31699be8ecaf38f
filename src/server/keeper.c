/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Supervisors.
 *
 * One is current and takes new runs.  When settings are read again the next one is started beside it and takes over
 * when it is ready; the old one goes when its last run has ended.  When the current one dies its runs are lost, each
 * learns it from its own channel, and the next is started: at once, and ever later when that does not help.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "server/log.h"
#include "server/notify.h"
#include "server/server.h"

#define STABLE_NS    (10 * NS_PER_SEC) /* who lived so long is no part of a row of failures */
#define END_NS       (2 * NS_PER_SEC)  /* what a supervisor gets to end by itself, and then by SIGTERM */
#define BACKOFF_NS   (100 * NS_PER_MS)
#define BACKOFF_STEP 6 /* doublings, at most */

static struct shared *shared_load(struct err *e)
{
	struct shared *sh = calloc(1, sizeof(*sh));
	int r;

	if (!sh) {
		(void)err_set(e, ERR_HOST, ENOMEM, "configuration");
		return NULL;
	}
	r = settings_load(&sh->settings, environ, e);
	if (r == 0)
		r = settings_finish(&sh->settings, e);
	if (r < 0) {
		settings_done(&sh->settings);
		free(sh);
		return NULL;
	}
	sh->settings.options.pool = (struct run_pool) { .min = sh->settings.conf.server.pool_min,
							.max = sh->settings.conf.server.pool_max,
							.max_runs = sh->settings.conf.server.zygote_max_runs };
	sh->digest = settings_digest(&sh->settings);
	sh->refs = 1;
	return sh;
}

static void shared_leave(struct shared *sh)
{
	if (!sh || --sh->refs > 0)
		return;
	settings_done(&sh->settings);
	free(sh);
}

static void keeper_free(struct keeper *k)
{
	supervisor_stop(k->supervisor);
	shared_leave(k->shared);
	free(k);
}

/* Have it end, helped along when that takes long.  Return: it has, and is freed */
static bool end_keeper(struct keeper *k)
{
	uint64_t now = clock_now_ns();
	int sig = 0;

	if (!k->ending_ns) {
		k->ending_ns = now;
		supervisor_end(k->supervisor, 0);
	}
	if (supervisor_has_ended(k->supervisor)) {
		keeper_free(k);
		return true;
	}
	if (now > k->ending_ns + END_NS)
		sig = now > k->ending_ns + 2 * END_NS ? SIGKILL : SIGTERM;
	if (sig != k->sent) {
		log_line(LOG_WARNING, "event=supervisor_stuck signal=%d", sig);
		supervisor_end(k->supervisor, sig);
		k->sent = sig;
	}
	return false;
}

/* Return: 0 or -errno with @e set */
static int keeper_new(struct server *s, struct shared *sh, struct keeper **ret, struct err *e)
{
	struct keeper *k = calloc(1, sizeof(*k));
	int r;

	if (!k)
		return err_set(e, ERR_HOST, ENOMEM, "supervisor");
	r = supervisor_start(&sh->settings.options, &k->supervisor, e);
	if (r < 0) {
		free(k);
		return r;
	}
	k->shared = sh;
	sh->refs++;
	k->started_ns = clock_now_ns();
	k->source = (struct source) { .kind = SOURCE_KEEPER, .owner = k, .fd = -1 };
	r = source_set(s, &k->source, supervisor_fd(k->supervisor), EPOLLIN);
	if (r < 0) {
		keeper_free(k);
		return err_set(e, ERR_HOST, -r, "watch the supervisor");
	}
	*ret = k;
	return 0;
}

static void retire(struct server *s, struct keeper *k)
{
	(void)source_set(s, &k->source, -1, 0);
	k->next = s->old;
	s->old = k;
}

static void schedule(struct server *s)
{
	uint64_t wait = 0;

	if (s->n_failures > 0)
		wait = BACKOFF_NS << (s->n_failures - 1 < BACKOFF_STEP ? s->n_failures - 1 : BACKOFF_STEP);
	s->start_at_ns = clock_now_ns() + wait;
	s->n_failures++;
}

/* @k could not start, or has ended. */
static void lose(struct server *s, struct keeper *k, const struct err *e)
{
	bool was_stable = k->is_ready && clock_now_ns() - k->started_ns > STABLE_NS;

	log_line(LOG_ERROR, "event=supervisor_%s runs=%u error=\"%s\"", k->is_ready ? "lost" : "failed", k->n_runs,
		 e->msg);
	if (k == s->coming) {
		s->coming = NULL;
		log_line(LOG_ERROR, "event=not_reloaded");
		notify_manager("READY=1");
	} else if (k == s->current) {
		s->current = NULL;
		if (was_stable)
			s->n_failures = 0;
		schedule(s);
		if (!k->is_ready)
			serve_fail_waiting(s, e->msg);
	}
	retire(s, k);
}

static void take_over(struct server *s, struct keeper *k)
{
	if (s->current)
		retire(s, s->current);
	s->current = k;
	s->coming = NULL;
	s->start_at_ns = 0;
	s->n_failures = 0;
	shared_leave(s->shared);
	s->shared = k->shared;
	s->shared->refs++;
	log_line(LOG_INFO, "event=reloaded environments=%zu", s->shared->settings.conf.n_environments);
	notify_manager("READY=1");
}

void keeper_event(struct server *s, struct keeper *k)
{
	struct err e = { .kind = ERR_NONE };
	int state = supervisor_state(k->supervisor, &e);

	if (state < 0) {
		lose(s, k, &e);
	} else if (state > 0 && !k->is_ready) {
		k->is_ready = true;
		(void)source_set(s, &k->source, k->source.fd, EPOLLERR); /* now its end alone is of interest */
		if (k == s->coming)
			take_over(s, k);
	}
}

/* A run in it was lost: it is ending, even if its own end is not seen yet.  What else runs in it ends as it may. */
void keeper_doubt(struct server *s, struct keeper *k, const struct err *e)
{
	if (k == s->current)
		lose(s, k, e);
}

int keeper_start(struct server *s, struct err *e)
{
	int r;

	s->shared = shared_load(e);
	if (!s->shared)
		return e->sys ? -e->sys : -EINVAL;
	r = keeper_new(s, s->shared, &s->current, e);
	if (r < 0)
		return r;
	while ((r = supervisor_state(s->current->supervisor, e)) == 0) {
		struct pollfd p = { .fd = supervisor_fd(s->current->supervisor), .events = POLLIN };

		(void)poll(&p, 1, -1);
	}
	if (r > 0)
		keeper_event(s, s->current);
	return r < 0 ? r : 0;
}

void keeper_reload(struct server *s)
{
	struct err e = { .kind = ERR_NONE };
	struct shared *sh = s->is_stopping ? NULL : shared_load(&e);
	struct keeper *k = NULL;

	if (s->is_stopping)
		return;
	if (!sh || keeper_new(s, sh, &k, &e) < 0) {
		log_line(LOG_ERROR, "event=not_reloaded error=\"%s\"", e.msg);
		shared_leave(sh);
		return;
	}
	shared_leave(sh); /* the keeper has it */
	if (s->coming)
		retire(s, s->coming);
	s->coming = k;
}

void keeper_leave(struct keeper *k)
{
	k->n_runs--;
}

void keeper_tick(struct server *s)
{
	struct err e = { .kind = ERR_NONE };
	struct keeper **at = &s->old;

	while (*at) {
		struct keeper *k = *at;

		struct keeper *next = k->next;

		if (!k->n_runs && end_keeper(k))
			*at = next;
		else
			at = &k->next;
	}
	if (s->start_at_ns && clock_now_ns() >= s->start_at_ns) {
		s->start_at_ns = 0;
		if (keeper_new(s, s->shared, &s->current, &e) < 0) {
			log_line(LOG_ERROR, "event=supervisor_failed error=\"%s\"", e.msg);
			schedule(s);
			serve_fail_waiting(s, e.msg);
		}
	}
}

void keeper_done(struct server *s)
{
	if (s->current)
		retire(s, s->current);
	if (s->coming)
		retire(s, s->coming);
	while (s->old) {
		struct keeper *next = s->old->next;

		if (end_keeper(s->old))
			s->old = next;
		else
			(void)poll(NULL, 0, 2);
	}
	shared_leave(s->shared);
	s->shared = NULL;
}
