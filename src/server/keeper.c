/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Supervisors.
 *
 * Each tenant has one of its own, started when its first request comes and ended when it was idle for a while, so that
 * no interpreter is forked for two of them (or all use the server's own user's: share_zygotes).  A tenant's current one
 * takes its new runs.  When it dies its runs are lost, each learns it from its own channel, and the next is started: at
 * once, and ever later when that does not help.  When settings are read again the own user's next one is started; if it
 * gets ready, the settings are in force, and all others are replaced.  An old one goes when its last run has ended.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "server/log.h"
#include "server/notify.h"
#include "server/server.h"

#define STABLE_NS    (10 * NS_PER_SEC) /* who lived so long is no part of a row of failures */
#define END_NS       (2 * NS_PER_SEC)  /* what a supervisor gets to end by itself, and then by SIGTERM */
#define START_NS     (30 * NS_PER_SEC) /* who is not ready by then never will be */
#define BACKOFF_NS   (100 * NS_PER_MS)
#define BACKOFF_STEP 6                /* doublings, at most */
#define KEEPERS_MAX  32               /* in use at the same time, and again so many on their way out */
#define PLACE_NS     (2 * NS_PER_SEC) /* who has had a place for so long gives it to who has waited so long */
#ifdef CLOCHE_FAIL_STEPS
#define FULL_NS      (2 * NS_PER_SEC) /* as below: tests have no time */
#else
#define FULL_NS      (10 * NS_PER_SEC) /* as many jobs as its socket holds are waiting for a supervisor that takes none */
#endif

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
	sh->settings.options.launcher = s->launch.sock >= 0 ? &s->launch.by : NULL;
	r = supervisor_start(&sh->settings.options, &k->supervisor, e);
	if (r < 0) {
		shared_explain(s, e);
		free(k);
		return r;
	}
	k->shared = sh;
	sh->refs++;
	k->started_ns = k->idle_ns = clock_now_ns();
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
	k->tenant = NULL;
	k->next = s->old;
	s->old = k;
}

/* Its current one takes no new runs. */
static void give_up(struct server *s, struct tenant *t)
{
	struct keeper *k = t->current;

	t->current = NULL;
	if (k)
		retire(s, k);
}

static void schedule(struct tenant *t)
{
	uint64_t wait = 0;

	if (t->n_failures > 0)
		wait = BACKOFF_NS << (t->n_failures - 1 < BACKOFF_STEP ? t->n_failures - 1 : BACKOFF_STEP);
	t->start_at_ns = clock_now_ns() + wait;
	t->n_failures++;
}

/* Whose supervisor is a tenant's.  Root can do to the server's user what it wants anyway. */
struct tenant *keeper_host(const struct server *s, struct tenant *t)
{
	bool is_root = t->uid == 0 && !*t->name;

	return is_root || s->shared->settings.conf.server.share_zygotes ? s->own : t;
}

/* The one that a run of this tenant's can be given to now; NULL: it has to wait. */
struct keeper *keeper_of(const struct server *s, struct tenant *t)
{
	struct keeper *k = keeper_host(s, t)->current;

	return k && k->is_ready ? k : NULL;
}

/* How much a socket takes depends on the jobs' sizes: it is asked.  One that is full may be stuck, or it is only behind. */
bool keeper_takes(struct server *s, struct keeper *k)
{
	bool is_full = !supervisor_takes_jobs(k->supervisor);

	if (is_full != (k->full_ns != 0))
		(void)source_set(s, &k->source, k->source.fd, is_full ? EPOLLERR | EPOLLOUT : EPOLLERR);
	if (!is_full)
		k->full_ns = 0;
	else if (!k->full_ns)
		k->full_ns = clock_now_ns();
	return !is_full;
}

/* @k could not start, or has ended. */
static void lose(struct server *s, struct keeper *k, const struct err *e)
{
	bool was_stable = k->is_ready && clock_now_ns() - k->started_ns > STABLE_NS;
	struct tenant *t = k->tenant;

	log_line(LOG_ERROR, "event=supervisor_%s runs=%u error=\"%s\"", k->is_ready ? "lost" : "failed", k->n_runs,
		 e->msg);
	if (k == s->coming) {
		s->coming = NULL;
		log_line(LOG_ERROR, "event=not_reloaded");
		notify_manager("READY=1");
	} else if (t) {
		t->current = NULL;
		if (was_stable)
			t->n_failures = 0;
		schedule(t);
		if (!k->is_ready)
			serve_fail_waiting(s, t, e->msg);
	}
	retire(s, k);
}

static void take_over(struct server *s, struct keeper *k)
{
	for (struct tenant *t = s->tenants; t; t = t->next) {
		give_up(s, t);
		t->start_at_ns = 0;
		t->n_failures = 0;
	}
	s->own->current = k;
	k->tenant = s->own;
	s->coming = NULL;
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
	} else if (k->full_ns) {
		(void)keeper_takes(s, k);
	}
}

/* A run in it was lost: it is ending, even if its own end is not seen yet.  What else runs in it ends as it may. */
void keeper_doubt(struct server *s, struct keeper *k, const struct err *e)
{
	if (k->tenant)
		lose(s, k, e);
}

static int start_for(struct server *s, struct tenant *t, struct err *e)
{
	int r = keeper_new(s, s->shared, &t->current, e);

	if (r == 0)
		t->current->tenant = t;
	return r;
}

int keeper_load(struct server *s, struct err *e)
{
	s->shared = shared_load(s, e);
	if (!s->shared)
		return e->sys ? -e->sys : -EINVAL;
	return 0;
}

static bool is_late(const struct keeper *k)
{
	return !k->is_ready && clock_now_ns() > k->started_ns + START_NS;
}

int keeper_start(struct server *s, struct err *e)
{
	struct keeper *k;
	int r;

	s->own = admit_tenant(s, s->uid, "");
	if (!s->own)
		return err_set(e, ERR_HOST, ENOMEM, "start");
	r = start_for(s, s->own, e);
	if (r < 0)
		return r;
	k = s->own->current;
	while ((r = supervisor_state(k->supervisor, e)) == 0) {
		struct pollfd p = { .fd = supervisor_fd(k->supervisor), .events = POLLIN };

		if (is_late(k))
			return err_set(e, ERR_HOST, ETIMEDOUT, "the supervisor does not get ready");
		(void)poll(&p, 1, START_NS / NS_PER_MS);
	}
	if (r > 0)
		keeper_event(s, k);
	return r < 0 ? r : 0;
}

void keeper_reload(struct server *s)
{
	struct err e = { .kind = ERR_NONE };
	struct shared *sh = s->is_stopping ? NULL : shared_load(s, &e);
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

void keeper_join(struct keeper *k)
{
	k->n_runs++;
	k->idle_ns = 0;
}

void keeper_leave(struct keeper *k)
{
	if (--k->n_runs == 0)
		k->idle_ns = clock_now_ns();
}

/* When what is kept ready for @t may go; 0: it may not. */
static uint64_t idle_until(const struct server *s, const struct tenant *t)
{
	const struct keeper *k = t->current;

	if (!k || t == s->own || k->n_runs || t->n_waiting)
		return 0;
	return k->idle_ns + s->shared->settings.conf.server.tenant_idle_ns;
}

/* None is idle, and @t has waited long enough: whoever has had a place for longest; NULL: nobody for long enough. */
static struct tenant *whose_turn(const struct server *s, const struct tenant *t)
{
	uint64_t now = clock_now_ns();
	struct tenant *oldest = NULL;

	if (now < t->no_place_ns + PLACE_NS)
		return NULL;
	for (struct tenant *u = s->tenants; u; u = u->next) {
		if (u == s->own || !u->current || !u->current->is_ready || now < u->current->started_ns + PLACE_NS)
			continue;
		if (!oldest || u->current->started_ns < oldest->current->started_ns)
			oldest = u;
	}
	return oldest;
}

/* Is there a place for @t, after the one that is idle for longest, or has had its turn, has gone? */
static bool has_place(struct server *s, const struct tenant *t)
{
	struct tenant *idlest = NULL;
	uint64_t idlest_ns = UINT64_MAX;
	unsigned n = 0;
	unsigned n_old = 0;

	for (struct keeper *k = s->old; k; k = k->next)
		n_old++;
	for (struct tenant *u = s->tenants; u; u = u->next) {
		uint64_t until = idle_until(s, u);

		n += u->current != NULL;
		if (until && until < idlest_ns) {
			idlest = u;
			idlest_ns = until;
		}
	}
	if (n_old >= KEEPERS_MAX)
		return false;
	if (n < KEEPERS_MAX)
		return true;
	if (!idlest)
		idlest = whose_turn(s, t);
	if (idlest)
		give_up(s, idlest);
	return idlest != NULL;
}

/* Does it need a supervisor and have none? */
static bool is_wanting(const struct server *s, struct tenant *t)
{
	return !t->current && (t == s->own || (t->n_waiting && keeper_host(s, t) == t));
}

static void start_wanted(struct server *s, struct tenant *t)
{
	struct err e = { .kind = ERR_NONE };

	if (!t->no_place_ns)
		t->no_place_ns = clock_now_ns();
	if (t != s->own && !has_place(s, t))
		return;
	t->no_place_ns = 0;
	if (start_for(s, t, &e) == 0)
		return;
	log_line(LOG_ERROR, "event=supervisor_failed error=\"%s\"", e.msg);
	schedule(t);
	serve_fail_waiting(s, t, e.msg);
}

static void look_at_full(struct server *s)
{
	struct err e = { .kind = ERR_NONE };
	uint64_t now = clock_now_ns();

	(void)err_set(&e, ERR_HOST, ETIMEDOUT, "the supervisor does not take any job");
	for (struct tenant *t = s->tenants; t; t = t->next) {
		if (t->current && t->current->full_ns && now > t->current->full_ns + FULL_NS)
			lose(s, t->current, &e);
	}
}

static void look_at_starts(struct server *s)
{
	struct err e = { .kind = ERR_NONE };

	(void)err_set(&e, ERR_HOST, ETIMEDOUT, "the supervisor does not get ready");
	if (s->coming && is_late(s->coming))
		lose(s, s->coming, &e);
	for (struct tenant *t = s->tenants; t; t = t->next) {
		if (t->current && is_late(t->current))
			lose(s, t->current, &e);
	}
}

static void look_at_tenants(struct server *s)
{
	uint64_t now = clock_now_ns();

	for (struct tenant *t = s->tenants; t; t = t->next) {
		uint64_t until = idle_until(s, t);

		if (until && now >= until)
			give_up(s, t);
		else if (is_wanting(s, t) && now >= t->start_at_ns && !s->is_stopping)
			start_wanted(s, t);
		if (!is_wanting(s, t))
			t->no_place_ns = 0;
	}
}

/* When keeper_tick() has something to do by the clock; 0: never. */
uint64_t keeper_next_tick(const struct server *s)
{
	uint64_t now = clock_now_ns();
	uint64_t next = UINT64_MAX;

	for (const struct keeper *k = s->old; k; k = k->next) {
		if (!k->n_runs && now + 20 * NS_PER_MS < next)
			next = now + 20 * NS_PER_MS;
	}
	if (s->coming && s->coming->started_ns + START_NS + 1 < next)
		next = s->coming->started_ns + START_NS + 1;
	for (struct tenant *t = s->tenants; t; t = t->next) {
		uint64_t at = idle_until(s, t);

		if (t->current && !t->current->is_ready)
			at = t->current->started_ns + START_NS + 1;
		else if (t->current && t->current->full_ns)
			at = t->current->full_ns + FULL_NS + 1;
		if (is_wanting(s, t) && t->start_at_ns > now)
			at = t->start_at_ns;
		else if (t->no_place_ns) /* one comes by an event, or by and by */
			at = t->no_place_ns + PLACE_NS > now ? t->no_place_ns + PLACE_NS : now + PLACE_NS / 20;
		if (at && at < next)
			next = at;
	}
	return next == UINT64_MAX ? 0 : next;
}

void keeper_tick(struct server *s)
{
	struct keeper **at = &s->old;

	while (*at) {
		struct keeper *k = *at;

		struct keeper *next = k->next;

		if (!k->n_runs && end_keeper(k))
			*at = next;
		else
			at = &k->next;
	}
	look_at_starts(s);
	look_at_full(s);
	look_at_tenants(s);
}

void keeper_done(struct server *s)
{
	for (struct tenant *t = s->tenants; t; t = t->next)
		give_up(s, t);
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
