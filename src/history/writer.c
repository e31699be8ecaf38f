/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue, and the one thread that writes.
 *
 * Who adds holds the lock for a few instructions; the thread holds it while it takes rows out or counts them, never
 * while it touches the file.  What could not be written stays, and is tried again: a lock or a full disk costs rows
 * only when the queue is full, too.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "history/history.h"
#include "history/store.h"

#define QUEUE_ROWS  4096
#define QUEUE_BYTES ((size_t)32 << 20)
#define BATCH_BYTES ((size_t)8 << 20)
#define BATCH_NS    (50 * NS_PER_MS)  /* a row waits this long for others */
#define AGAIN_NS    (500 * NS_PER_MS) /* until what failed is tried again */
#define BROKEN_NS   (30 * NS_PER_SEC) /* ... when somebody has to do something first */
#define IDLE_NS     (60 * NS_PER_SEC) /* rows grow old without new ones, too */
#define CLOSE_NS    (2 * NS_PER_SEC)
#define SAY_NS      (60 * NS_PER_SEC)
#define ENTRY_BYTES (sizeof(struct history_entry) + 256)
#define LEFT_OUT    "not kept in the history"

struct history {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	char *path;         /* owned */
	struct store store; /* the thread's alone */
	size_t row_max;
	bool stores_scripts;
	bool stores_output;
	void (*say)(bool is_bad, const char *line);
	uint64_t said_ns; /* the thread's: when the last line was written; 0: never */
	bool is_told;     /* the thread's: the trouble that lasts is in the log */
	/* under the lock: */
	struct history_entry *first; /* owned, oldest to newest */
	struct history_entry **last;
	struct history_stats stats;
	bool is_asleep; /* the thread waits for a row */
	bool is_closing;
	uint64_t close_at_ns;
};

/* A line a minute at most; what is said of the end of trouble is due whenever its beginning was said. */
static void PRINTF_LIKE(3, 4) say(struct history *h, bool is_bad, const char *fmt, ...)
{
	uint64_t now = clock_now_ns();
	char line[512];
	va_list ap;

	if (!h->say || (is_bad && h->said_ns && now - h->said_ns < SAY_NS))
		return;
	va_start(ap, fmt);
	(void)vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	if (is_bad)
		h->said_ns = now;
	h->is_told = is_bad;
	h->say(is_bad, line);
}

/* wait_until() - with the lock held: until somebody wakes us or @at */
static void wait_until(struct history *h, uint64_t at)
{
	struct timespec t = { .tv_sec = (time_t)(at / NS_PER_SEC), .tv_nsec = (long)(at % NS_PER_SEC) };

	(void)pthread_cond_timedwait(&h->wake, &h->lock, &t);
}

static bool goes_on(void *userdata)
{
	struct history *h = userdata;
	bool is_over;

	(void)pthread_mutex_lock(&h->lock);
	is_over = h->is_closing && clock_now_ns() >= h->close_at_ns;
	(void)pthread_mutex_unlock(&h->lock);
	return !is_over;
}

/* wait_for_rows() - until there are some that have waited for others.  Return: false: there will be none */
static bool wait_for_rows(struct history *h)
{
	uint64_t at = clock_now_ns() + IDLE_NS;
	bool has_more;

	(void)pthread_mutex_lock(&h->lock);
	h->is_asleep = true;
	while (!h->first && !h->is_closing && clock_now_ns() < at)
		wait_until(h, at);
	h->is_asleep = false;
	at = clock_now_ns() + BATCH_NS;
	while (h->first && h->stats.queued < STORE_BATCH_ROWS && !h->is_closing && clock_now_ns() < at)
		wait_until(h, at);
	has_more = h->first || !h->is_closing;
	(void)pthread_mutex_unlock(&h->lock);
	return has_more;
}

/* take_batch() - out of the queue, still counted there */
static struct history_entry *take_batch(struct history *h)
{
	struct history_entry *batch;
	struct history_entry **end;
	size_t bytes = 0;
	unsigned n = 0;

	(void)pthread_mutex_lock(&h->lock);
	batch = h->first;
	for (end = &h->first; *end && n < STORE_BATCH_ROWS && (n == 0 || bytes + (*end)->cost <= BATCH_BYTES); n++) {
		bytes += (*end)->cost;
		end = &(*end)->next;
	}
	if (batch && *end) {
		h->first = *end;
		*end = NULL;
	} else {
		h->first = NULL;
		h->last = &h->first;
	}
	(void)pthread_mutex_unlock(&h->lock);
	return batch;
}

/* settle() - what came of rows that were taken out; frees them */
static void settle(struct history *h, struct history_entry *batch, bool is_written)
{
	uint64_t n = 0;
	uint64_t bytes = 0;

	while (batch) {
		struct history_entry *next = batch->next;

		n++;
		bytes += batch->cost;
		entry_free(batch);
		batch = next;
	}
	(void)pthread_mutex_lock(&h->lock);
	h->stats.queued -= n;
	h->stats.queue_bytes -= bytes;
	if (is_written)
		h->stats.written += n;
	else
		h->stats.dropped += n;
	(void)pthread_mutex_unlock(&h->lock);
}

/* put_back() - a batch that is to be tried again */
static void put_back(struct history *h, struct history_entry *batch)
{
	struct history_entry **end = &batch;

	while (*end)
		end = &(*end)->next;
	(void)pthread_mutex_lock(&h->lock);
	*end = h->first;
	if (!h->first)
		h->last = end;
	h->first = batch;
	(void)pthread_mutex_unlock(&h->lock);
}

static void set_state(struct history *h, enum history_state state, const char *error)
{
	(void)pthread_mutex_lock(&h->lock);
	h->stats.state = state;
	(void)snprintf(h->stats.error, sizeof(h->stats.error), "%.*s", (int)sizeof(h->stats.error) - 1, error);
	(void)pthread_mutex_unlock(&h->lock);
}

static uint64_t dropped(struct history *h)
{
	struct history_stats s;

	history_stats(h, &s);
	return s.dropped;
}

/* recover() - @o has happened: note it, tell it, wait */
static void recover(struct history *h, enum store_outcome o, const struct err *e)
{
	uint64_t at = clock_now_ns() + (o == STORE_BROKEN ? BROKEN_NS : AGAIN_NS);

	set_state(h, o == STORE_BROKEN ? HISTORY_BROKEN : HISTORY_OPENING, e->msg);
	say(h, true, "%s (rows lost so far: %llu)", e->msg, (unsigned long long)dropped(h));
	if (o == STORE_BROKEN)
		store_close(&h->store);
	(void)pthread_mutex_lock(&h->lock);
	while (!h->is_closing && clock_now_ns() < at)
		wait_until(h, at);
	if (h->is_closing && o == STORE_AGAIN)
		wait_until(h, clock_now_ns() + CLOSE_NS / 40);
	(void)pthread_mutex_unlock(&h->lock);
}

/* drop_queue() - nobody will write these */
static void drop_queue(struct history *h)
{
	struct history_entry *batch;

	while ((batch = take_batch(h)) != NULL)
		settle(h, batch, false);
}

static enum store_outcome ensure_open(struct history *h, struct err *e)
{
	enum store_outcome o;

	if (h->store.db && !store_is_there(&h->store))
		store_close(&h->store); /* moved away: the next rows go into a new one */
	if (h->store.db)
		return STORE_DONE;
	o = store_open(&h->store, e);
	if (o == STORE_DONE)
		set_state(h, HISTORY_WRITING, "");
	return o;
}

static enum store_outcome prune(struct history *h, struct err *e)
{
	enum store_outcome o = STORE_DONE;
	bool has_more = true;

	while (has_more && o == STORE_DONE && goes_on(h))
		o = store_prune(&h->store, clock_wall_us(), &has_more, e);
	return o;
}

/* write_some() - one batch, and what has to make room for it */
static enum store_outcome write_some(struct history *h, struct err *e)
{
	struct history_entry *batch;
	enum store_outcome o = ensure_open(h, e);

	if (o == STORE_BROKEN)
		drop_queue(h);
	if (o != STORE_DONE)
		return o;
	batch = take_batch(h);
	o = batch ? store_write(&h->store, batch, e) : STORE_DONE;
	if (o == STORE_AGAIN)
		put_back(h, batch);
	else
		settle(h, batch, o == STORE_DONE);
	if (o == STORE_DONE) {
		set_state(h, HISTORY_WRITING, "");
		if (h->is_told)
			say(h, false, "history is written again (rows lost so far: %llu)",
			    (unsigned long long)dropped(h));
	}
	/* a full disk: what pruning frees is room, too */
	if (o != STORE_BROKEN) {
		struct err ignored = { .kind = ERR_NONE };
		enum store_outcome p = prune(h, o == STORE_DONE ? e : &ignored);

		o = o == STORE_DONE ? p : o;
	}
	return o;
}

static void *writer(void *arg)
{
	struct history *h = arg;
	struct err e = { .kind = ERR_NONE };
	enum store_outcome o = ensure_open(h, &e);

	if (o != STORE_DONE)
		recover(h, o, &e);
	while (wait_for_rows(h) && goes_on(h)) {
		o = write_some(h, &e);
		if (o != STORE_DONE)
			recover(h, o, &e);
	}
	drop_queue(h);
	store_close(&h->store);
	return NULL;
}

static int start_thread(struct history *h)
{
	sigset_t all;
	sigset_t old;
	int r;

	/* signals are for the thread that has made us */
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&h->thread, NULL, writer, h);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	return r;
}

int history_open(const struct history_options *o, struct history **ret, struct err *e)
{
	struct history *h = calloc(1, sizeof(*h));
	pthread_condattr_t attributes;
	int r;

	if (!h)
		return err_set(e, ERR_HOST, ENOMEM, "history");
	h->path = strdup(o->path);
	if (!h->path) {
		free(h);
		return err_set(e, ERR_HOST, ENOMEM, "history");
	}
	h->store = (struct store) { .path = h->path,
				    .max_age_ns = o->max_age_ns,
				    .max_rows = o->max_rows,
				    .max_bytes = o->max_bytes,
				    .goes_on = goes_on,
				    .userdata = h };
	h->row_max = store_row_max(&h->store);
	h->stores_scripts = o->stores_scripts;
	h->stores_output = o->stores_output;
	h->say = o->say;
	h->last = &h->first;
	(void)pthread_mutex_init(&h->lock, NULL);
	(void)pthread_condattr_init(&attributes);
	(void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&h->wake, &attributes);
	(void)pthread_condattr_destroy(&attributes);
	r = start_thread(h);
	if (r != 0) {
		(void)pthread_cond_destroy(&h->wake);
		(void)pthread_mutex_destroy(&h->lock);
		free(h->path);
		free(h);
		return err_set(e, ERR_HOST, r, "history: start a thread");
	}
	*ret = h;
	return 0;
}

/* Bodies of artifacts are never kept; their names are, and say so. */
static void forget_artifacts(struct result *r)
{
	for (size_t i = 0; i < r->n_artifacts; i++) {
		struct artifact *a = &r->artifacts[i];

		if (a->left_out)
			continue;
		free(a->body.data);
		a->body = (struct job_blob) { .data = NULL };
		a->left_out = strdup(LEFT_OUT);
	}
}

static size_t cost(const struct history_entry *n)
{
	const struct result *r = &n->result;
	size_t bytes = ENTRY_BYTES + n->script.len + r->out.head_size + r->err.head_size;

	bytes += r->out.tail ? (size_t)(r->out.max / 2) : 0;
	bytes += r->err.tail ? (size_t)(r->err.max / 2) : 0;
	for (size_t i = 0; i < r->n_artifacts; i++)
		bytes += sizeof(r->artifacts[i]) + (r->artifacts[i].name ? strlen(r->artifacts[i].name) : 0) +
			 sizeof(LEFT_OUT);
	for (size_t i = 0; i < r->n_warnings; i++)
		bytes += strlen(r->warnings[i]);
	return bytes;
}

static struct history_entry *entry_make(const struct history *h, struct history_run *r)
{
	struct history_entry *n = calloc(1, sizeof(*n));

	if (!n)
		return NULL;
	n->result = *r->result;
	*r->result = (struct result) { .status = STATUS_INTERNAL_ERROR };
	if (r->script && h->stores_scripts) {
		n->script = *r->script;
		*r->script = (struct job_blob) { .data = NULL };
	}
	(void)snprintf(n->tenant, sizeof(n->tenant), "%.*s", (int)sizeof(n->tenant) - 1, r->tenant);
	(void)snprintf(n->environment, sizeof(n->environment), "%.*s", (int)sizeof(n->environment) - 1,
		       r->environment ? r->environment : "");
	n->time_us = clock_wall_us() - (int64_t)((clock_now_ns() - r->arrived_ns) / 1000);
	n->has_output = h->stores_output && !r->is_streamed;
	forget_artifacts(&n->result);
	if (!n->has_output) {
		struct job_blob script = n->script;

		n->script = (struct job_blob) { .data = NULL };
		entry_strip(n);
		n->script = script;
	}
	n->cost = cost(n);
	return n;
}

void history_add(struct history *h, struct history_run *r)
{
	struct history_entry *n = entry_make(h, r);
	bool is_stripped = false;
	bool has_room;

	if (n && n->cost > h->row_max) {
		entry_strip(n);
		n->cost = cost(n);
		is_stripped = true;
	}
	(void)pthread_mutex_lock(&h->lock);
	/* half of the room is for rows alone: that a run was is worth more than what it wrote */
	if (n && !is_stripped && h->stats.queue_bytes + n->cost > QUEUE_BYTES / 2) {
		entry_strip(n);
		n->cost = cost(n);
		is_stripped = true;
	}
	has_room = n && !h->is_closing && h->stats.queued < QUEUE_ROWS && h->stats.queue_bytes + n->cost <= QUEUE_BYTES;
	if (has_room) {
		*h->last = n;
		h->last = &n->next;
		h->stats.queued++;
		h->stats.queue_bytes += n->cost;
		h->stats.stripped += is_stripped;
		if (h->is_asleep || h->stats.queued == STORE_BATCH_ROWS)
			(void)pthread_cond_signal(&h->wake);
	} else {
		h->stats.dropped++;
	}
	(void)pthread_mutex_unlock(&h->lock);
	if (!has_room)
		entry_free(n);
}

void history_stats(struct history *h, struct history_stats *ret)
{
	if (!h) {
		*ret = (struct history_stats) { .state = HISTORY_BROKEN };
		return;
	}
	(void)pthread_mutex_lock(&h->lock);
	*ret = h->stats;
	(void)pthread_mutex_unlock(&h->lock);
}

void history_close(struct history *h)
{
	if (!h)
		return;
	(void)pthread_mutex_lock(&h->lock);
	h->is_closing = true;
	h->close_at_ns = clock_now_ns() + CLOSE_NS;
	(void)pthread_cond_signal(&h->wake);
	(void)pthread_mutex_unlock(&h->lock);
	(void)pthread_join(h->thread, NULL);
	(void)pthread_cond_destroy(&h->wake);
	(void)pthread_mutex_destroy(&h->lock);
	free(h->path);
	free(h);
}
