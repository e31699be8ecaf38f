/* SPDX-License-Identifier: Apache-2.0 */
#include "run/pool.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/pack.h"
#include "run/look.h"
#include "run/work.h"

enum { HEAR, END, NEXT_HEAR, NEXT_END };

#define CALM_NS     (10 * NS_PER_SEC) /* without a miss for this long: one fewer is kept */
#define PAUSE_NS    NS_PER_MS         /* after an answer; what it waits for, not what is waiting, has the CPUs until then */
#define PARKED_ROOM 8                 /* so many are never parked, but left to jobs that fit no parked one */
#define SETTLE_MS   100
#define START_NS    (60 * NS_PER_SEC) /* a zygote that is not ready by then never will be */
#define LOW_MEMORY  16 /* a sixteenth of the host's memory: less is left, nothing more is kept than that */

struct pool *pool_of(struct supervise *s, unsigned env)
{
	for (unsigned i = 0; i < s->n_pools; i++) {
		if (s->pools[i].env == env)
			return &s->pools[i];
	}
	return NULL;
}

bool pool_is_ready(const struct pool *p)
{
	return p->zygote.pid > 0 && p->zygote.is_ready;
}

static void unwatch(struct pool *p, bool is_next)
{
	watch_clear(p->s, &p->watch[is_next ? NEXT_HEAR : HEAR]);
	watch_clear(p->s, &p->watch[is_next ? NEXT_END : END]);
}

static int watch(struct pool *p, bool is_next)
{
	struct zygote *z = is_next ? &p->next : &p->zygote;
	int r = watch_set(p->s, &p->watch[is_next ? NEXT_HEAR : HEAR], z->sock, EPOLLIN);

	return r == 0 ? watch_set(p->s, &p->watch[is_next ? NEXT_END : END], z->pidfd, EPOLLIN) : r;
}

/* Longer after each death in a row, so that a broken environment costs little. */
static void back_off(struct pool *p)
{
	unsigned shift = p->n_deaths < 8 ? p->n_deaths : 8;

	p->n_deaths++;
	p->retry_ns = clock_now_ns() + (100 * NS_PER_MS << shift);
}

void pool_child_lost(struct pool *p)
{
	unsigned shift = p->n_lost < 8 ? p->n_lost : 8;

	p->n_lost++;
	p->refill_ns = clock_now_ns() + (10 * NS_PER_MS << shift);
}

void pool_child_parked(struct pool *p)
{
	p->n_lost = p->n_deaths = 0;
}

static void begin(struct pool *p)
{
	struct err e = { 0 };
	int r;

	r = zygote_start(&p->s->outside, p->env, &p->how, &p->next, &e);
	if (r == 0) {
		r = watch(p, true);
		if (r < 0)
			(void)err_set(&e, ERR_HOST, -r, "watch a zygote");
	}
	if (r == 0)
		return;
	(void)snprintf(p->why, sizeof(p->why), "%.190s", e.msg);
	unwatch(p, true);
	zygote_stop(&p->next);
	back_off(p);
}

/* No answer comes any more: those that wait for one hear so. */
static void give_up(struct pool *p)
{
	for (unsigned i = 0; i < p->s->n_slots; i++) {
		struct work *w = p->s->works[i];

		if (w && w->pool == p && w->state == WORK_FORKING && w->child.pid == 0 && !w->is_done) {
			work_event(w, EVENT_NO_FORK);
			work_finish(w);
		}
	}
	supervise_reap_strays(p->s);
}

void pool_lost(struct pool *p, const char *what)
{
	char words[160];

	zygote_last_words(&p->zygote, words, sizeof(words));
	(void)snprintf(p->why, sizeof(p->why), "%s%s%.150s", what, words[0] ? ": " : "", words);
	unwatch(p, false);
	zygote_stop(&p->zygote);
	back_off(p);
	give_up(p);
}

static void next_lost(struct pool *p)
{
	char words[160];

	zygote_last_words(&p->next, words, sizeof(words));
	(void)snprintf(p->why, sizeof(p->why), "its zygote did not start%s%.150s", words[0] ? ": " : "", words);
	unwatch(p, true);
	zygote_stop(&p->next);
	back_off(p);
}

static void forked(struct pool *p, const struct zygote_news *news)
{
	struct work *w = p->s->works[news->tag % SANDBOX_SLOTS];

	if (w && w->tag != news->tag)
		w = NULL; /* the one that asked is gone, and another has its slot */
	/* one that is ending meanwhile: its init waits until this child is reaped, and that takes a parent that watches
	 * it */
	if (w && w->pool == p && (w->state == WORK_FORKING || w->state == WORK_ENDING) && w->child.pid == 0 &&
	    !w->is_done) {
		work_forked(w, news);
		work_finish(w);
	} else if (news->pid > 0) {
		supervise_reap_strays(p->s); /* its work is gone, and its sandbox with it */
	}
}

static bool is_asked(const struct pool *p)
{
	for (unsigned i = 0; i < p->s->n_slots; i++) {
		const struct work *w = p->s->works[i];

		if (w && w->pool == p && w->state == WORK_FORKING && w->child.pid == 0 && !w->is_done)
			return true;
	}
	return false;
}

/* What the old one was asked for comes first: a fork takes it a millisecond. */
static void settle(struct pool *p)
{
	struct pollfd ready = { .fd = p->zygote.sock, .events = POLLIN };
	struct zygote_news news;

	while (p->zygote.pid > 0 && poll(&ready, 1, is_asked(p) ? SETTLE_MS : 0) == 1) {
		int said = zygote_hear(&p->zygote, &news);

		if (said == ZYGOTE_SAID_FORKED)
			forked(p, &news);
		else if (said == ZYGOTE_SAID_END)
			break;
	}
	if (is_asked(p))
		give_up(p);
}

/* What was forked of a zygote that is out of date has run nothing yet: it need not. */
static void drop_parked(struct pool *p)
{
	for (unsigned i = 0; i < p->s->n_slots; i++) {
		struct work *w = p->s->works[i];

		if (w && w->pool == p && !w->has_job && !w->is_done &&
		    (w->state == WORK_PARKED || w->state == WORK_FORKING))
			work_event(w, EVENT_CANCEL);
	}
}

/* The one that was starting serves now; what the old one has forked stays as it is, but for one that is out of date. */
static void take_over(struct pool *p)
{
	struct zygote_sources now;

	settle(p);
	unwatch(p, false);
	zygote_stop(&p->zygote);
	unwatch(p, true);
	p->zygote = p->next;
	p->next = (struct zygote)ZYGOTE_EMPTY;
	p->n_lost = 0;
	p->why[0] = '\0';
	now = zygote_sources(&p->s->outside, &p->zygote, p->how.python);
	p->changed = now.sum;
	if (p->is_stale)
		drop_parked(p);
	/* has anything changed since this one was begun, maybe under its imports?  It is the next best; the next tick begins another */
	p->is_stale = now.newest_ns >= p->zygote.began_ns;
	if (watch(p, false) < 0)
		pool_lost(p, "its zygote can't be watched");
}

/* An event may be older than what is watched now: of the one that this one took the place of. */
static bool has_ended(const struct zygote *z)
{
	struct pollfd end = { .fd = z->pidfd, .events = POLLIN };

	return poll(&end, 1, 0) == 1;
}

void pool_event(struct supervise *s, struct watch *w, uint32_t events)
{
	struct zygote_news news;
	bool is_next;
	int said;

	(void)events;
	for (unsigned i = 0; i < s->n_pools; i++) {
		struct pool *p = &s->pools[i];

		if (w < p->watch || w >= p->watch + ARRAY_LEN(p->watch) || w->fd < 0)
			continue;
		is_next = w >= p->watch + NEXT_HEAR;
		if ((w == &p->watch[END] && !has_ended(&p->zygote)) || (w == &p->watch[NEXT_END] && !has_ended(&p->next)))
			return;
		said = w == &p->watch[is_next ? NEXT_END : END] ? (int)ZYGOTE_SAID_END
								: zygote_hear(is_next ? &p->next : &p->zygote, &news);
		if (said == ZYGOTE_SAID_END && is_next)
			next_lost(p);
		else if (said == ZYGOTE_SAID_END)
			pool_lost(p, "its zygote ended");
		else if (said == ZYGOTE_SAID_READY && is_next)
			take_over(p);
		else if (said == ZYGOTE_SAID_FORKED && !is_next)
			forked(p, &news);
		return;
	}
}

/*
 * Can a sandbox that was built for @a be dressed for @b?  Files and CPUs are settled when it is built; a process's own
 * limits can be lowered from outside, but to raise them takes the host's root.
 */
static bool can_dress(const struct sandbox_spec *a, const struct sandbox_spec *b, bool is_sampled)
{
	return a->disk_bytes == b->disk_bytes && a->disk_files == b->disk_files && a->cpu_milli == b->cpu_milli &&
	       a->has_loopback == b->has_loopback && b->processes <= a->processes && b->open_files <= a->open_files &&
	       (!is_sampled || b->memory_bytes <= a->memory_bytes) &&
	       (!a->cpu_ns || (b->cpu_ns && b->cpu_ns <= a->cpu_ns));
}

struct work *pool_take(struct pool *p, const struct wire_job *j)
{
	struct work *best = NULL;

	for (unsigned i = 0; i < p->s->n_slots; i++) {
		struct work *w = p->s->works[i];

		if (!w || w->pool != p || w->has_job || w->is_done ||
		    !can_dress(&w->box.spec, &j->spec, sandbox_is_sampled(&w->box)))
			continue;
		if (w->state == WORK_PARKED)
			return w;
		if (w->state == WORK_BUILDING || w->state == WORK_FORKING)
			best = w;
	}
	p->missed_ns = clock_now_ns();
	if (p->target < p->plan.max)
		p->target++;
	return best;
}

static unsigned count(const struct supervise *s, const struct pool *p, unsigned *ret_busy)
{
	unsigned n = 0;

	*ret_busy = 0;
	for (unsigned i = 0; i < s->n_slots; i++) {
		const struct work *w = s->works[i];

		if (!w || w->is_done)
			continue;
		*ret_busy += w->has_job && !w->is_answered;
		n += w->pool == p && !w->has_job;
	}
	return n;
}

/* A running script comes first: while there is one, only an empty shelf is filled; and then the answer on its way. */
static unsigned wanted(const struct pool *p, bool is_busy, bool is_calm)
{
	if (is_busy)
		return p->target ? 1 : 0;
	return is_calm ? p->target : (p->target + 1) / 2;
}

void pool_refill(struct supervise *s)
{
	for (unsigned i = 0; i < s->n_pools; i++) {
		struct pool *p = &s->pools[i];
		bool is_calm;
		unsigned busy;
		unsigned n;

		if (!pool_is_ready(p) || s->n_works + PARKED_ROOM >= (s->max_works ? s->max_works : SANDBOX_SLOTS))
			continue;
		if (p->n_lost && clock_now_ns() < p->refill_ns) {
			due_by(s, p->refill_ns);
			continue;
		}
		n = count(s, p, &busy);
		is_calm = n < p->target && clock_now_ns() >= s->answered_ns + PAUSE_NS;
		if (n < wanted(p, busy > 0, is_calm)) {
			supervise_park(s, p);
			return;
		}
		if (n > 0 && n < p->target && !busy)
			due_by(s, s->answered_ns + PAUSE_NS);
	}
}

static bool is_memory_low(const struct supervise *s)
{
	char text[512];
	unsigned long total, available;
	const char *at;

#ifdef CLOCHE_FAIL_STEPS /* no test can use up the host's memory */
	const char *wanted = getenv("CLOCHE_FAIL_STEP");

	if (wanted && strcmp(wanted, "low-memory") == 0)
		return true;
#endif
	if (fd_read_at(s->outside.proc, "meminfo", text, sizeof(text)) <= 0 ||
	    sscanf(text, "MemTotal: %lu", &total) != 1)
		return false;
	at = strstr(text, "MemAvailable:");
	return at && sscanf(at, "MemAvailable: %lu", &available) == 1 && available < total / LOW_MEMORY;
}

static void drop_one(struct pool *p)
{
	for (unsigned i = 0; i < p->s->n_slots; i++) {
		struct work *w = p->s->works[i];

		if (w && w->pool == p && !w->has_job && w->state == WORK_PARKED && !w->is_done) {
			work_event(w, EVENT_CANCEL);
			return;
		}
	}
}

static void renew(struct pool *p)
{
	uint64_t now = zygote_sources(&p->s->outside, &p->zygote, p->how.python).sum;

	if (p->zygote.forks < p->plan.max_runs && p->changed == now && !p->is_stale)
		return; /* stale with nothing changed since: the one that was to take its place failed */
	p->is_stale |= p->changed != now;
	p->changed = now;
	begin(p); /* it takes over when it is ready */
}

void pool_tick(struct supervise *s)
{
	bool is_low = is_memory_low(s);
	uint64_t now = clock_now_ns();

	for (unsigned i = 0; i < s->n_pools; i++) {
		struct pool *p = &s->pools[i];
		unsigned busy;

		if (p->next.pid > 0 && now > p->next.started_ns + START_NS)
			next_lost(p); /* a module that it imports never comes back */
		else if (p->next.pid == 0 && p->zygote.pid == 0 && now >= p->retry_ns)
			begin(p);
		else if (p->next.pid == 0 && pool_is_ready(p) && now >= p->retry_ns)
			renew(p);
		if (is_low)
			p->target = 0;
		else if (p->target < p->plan.min)
			p->target = p->plan.min;
		else if (p->target > p->plan.min && now - p->missed_ns > CALM_NS)
			p->target--;
		if (count(s, p, &busy) > p->target)
			drop_one(p);
	}
}

/* The lists of environment number @env in the set-up's pack. */
static int read_plan(struct pool *p, const char *setup, size_t len)
{
	const char **lists[] = { NULL, NULL };
	static const uint32_t kinds[] = { WIRE_SETUP_ENV, WIRE_SETUP_MODULE };
	size_t n[2] = { 0, 0 };
	struct pack_record rec;
	size_t offset = 0;

	for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
		lists[k] = calloc(1024, sizeof(*lists[k]));
		if (!lists[k])
			return -ENOMEM;
	}
	p->how.env = lists[0];
	p->how.modules = lists[1]; /* for good, as the pack that they point into */
	for (int at = -1; pack_next(setup, len, &offset, &rec) > 0;) {
		at += rec.kind == WIRE_SETUP_ENVIRONMENT;
		if (at != (int)p->env)
			continue;
		if (rec.kind == WIRE_SETUP_PYTHON)
			p->how.python = rec.data;
		else if (rec.kind == WIRE_SETUP_POOL && rec.len == sizeof(p->plan))
			memcpy(&p->plan, rec.data, sizeof(p->plan));
		for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
			if (rec.kind == kinds[k] && n[k] < 1023)
				lists[k][n[k]++] = rec.data;
		}
	}
	return 0;
}

int pool_start(struct supervise *s, const char *setup, size_t len, int extension, struct err *e)
{
	s->pools = calloc((size_t)s->outside.home->n_envs, sizeof(*s->pools));
	s->outside.is_pooled = true;
	if (!s->pools)
		return err_set(e, ERR_HOST, ENOMEM, "prepare zygotes");
	for (unsigned env = 0; env < (unsigned)s->outside.home->n_envs; env++) {
		struct pool *p = &s->pools[s->n_pools];

		*p = (struct pool) { .s = s, .env = env, .zygote = ZYGOTE_EMPTY, .next = ZYGOTE_EMPTY };
		for (size_t i = 0; i < ARRAY_LEN(p->watch); i++)
			p->watch[i] = (struct watch) { .kind = WATCH_ZYGOTE, .fd = -1 };
		if (read_plan(p, setup, len) < 0)
			return err_set(e, ERR_HOST, ENOMEM, "prepare zygotes");
		if (p->plan.max == 0 || extension < 0 || !p->how.python)
			continue;
		p->how.extension = extension;
		p->target = p->plan.min;
		(void)snprintf(p->why, sizeof(p->why), "its zygote is not ready yet");
		s->n_pools++;
		begin(p);
	}
	return 0;
}

void pool_end(struct supervise *s)
{
	for (unsigned i = 0; i < s->n_pools; i++) {
		unwatch(&s->pools[i], false);
		unwatch(&s->pools[i], true);
		zygote_stop(&s->pools[i].zygote);
		zygote_stop(&s->pools[i].next);
	}
}
