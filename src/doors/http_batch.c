/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /v1/runs/batch: many runs in one request, their results as lines in the order in which they finish.
 *
 *   application/x-ndjson   a request a line, as it is, or as {"id": "...", "request": {...}}
 *   application/json       {"script_content": "...", "stdins": ["...", {"base64": "..."}], ...}: one request, run once
 *                          for each standard input
 *
 * Each line of the answer: {"line": N, "id": "..."?, "result": {...}}, or "error" for "result".  N counts lines, or
 * inputs, from 1.  A few run at the same time; where there is no room now, a line waits its turn.
 */
#include <errno.h>
#include <event2/event.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "doors/door.h"
#include "job/json.h"
#include "job/refuse.h"

#define AT_A_TIME  8
#define RETRY_NS   (50 * NS_PER_MS)
#define INPUTS_MAX 10000
#define TURN_COST  65536 /* of one turn of the loop: bytes of lines, and LINE_COST for each of them */
#define LINE_COST  64

/* A line under way, or that waits for another try. */
struct item {
	struct batch *batch;
	struct runner_run *run; /* NULL: to be started */
	size_t line;            /* 0: free */
	char *id;               /* owned: as JSON; NULL: none */
	char *owned;            /* NULL: @json is part of the body */
	const char *json;
	size_t len;
	bool is_counted; /* limits_leave() is due */
};

struct batch {
	struct door *door;
	struct http_conn *conn;
	struct http_caller caller;
	struct event *retry;
	struct buf body; /* owned */
	size_t at;
	size_t line;
	json_t *template; /* owned; one script: what each run has */
	json_t *inputs;   /* owned; ... and where they differ */
	struct item items[AT_A_TIME];
	unsigned most; /* at the same time */
	bool is_full;  /* the client reads slower than we write */
};

static void item_free(struct item *i)
{
	if (i->is_counted)
		limits_leave(i->batch->door, &i->batch->caller);
	free(i->id);
	free(i->owned);
	*i = (struct item) { .batch = i->batch };
}

static void batch_free(struct batch *b)
{
	for (size_t i = 0; i < AT_A_TIME; i++) {
		if (b->items[i].run)
			runner_drop(b->items[i].run);
		item_free(&b->items[i]);
	}
	if (b->retry)
		event_free(b->retry);
	buf_done(&b->body);
	json_decref(b->template);
	json_decref(b->inputs);
	free(b);
}

/* "result" and a value that is JSON; of an error object, its one member. */
static void put_line(struct item *i, bool is_error, const char *json, size_t len)
{
	struct batch *b = i->batch;
	struct buf out;
	int r;

	buf_init(&out, len + (i->id ? strlen(i->id) : 0) + 128);
	r = buf_printf(&out, "{\"line\": %zu", i->line);
	if (r == 0 && i->id)
		r = buf_printf(&out, ", \"id\": %s", i->id);
	if (r == 0 && is_error)
		r = problem_add_error(&out, json, len);
	else if (r == 0)
		r = buf_printf(&out, ", \"result\": ");
	if (r == 0 && !is_error)
		r = buf_add(&out, json, len);
	if (r == 0)
		r = buf_add(&out, "}\n", 2);
	if (r == 0)
		b->is_full = !http_stream_add(b->conn, out.data, out.len);
	buf_done(&out);
}

static void put_error(struct item *i, const struct job_error *why)
{
	auto_free char *json = job_error_write(why);

	if (json)
		put_line(i, true, json, strlen(json));
}

/* Again in a moment: the server or the token has no room now. */
static void wait_for_room(struct batch *b, uint64_t ns)
{
	struct timeval tv;

	if (ns < RETRY_NS)
		ns = RETRY_NS;
	tv = (struct timeval) { .tv_sec = (time_t)(ns / NS_PER_SEC), .tv_usec = (suseconds_t)(ns % NS_PER_SEC / 1000) };
	if (!evtimer_pending(b->retry, NULL))
		(void)evtimer_add(b->retry, &tv);
}

static void go_on(struct batch *b);

static void on_done(void *userdata, struct runner_answer *a)
{
	struct item *i = userdata;
	struct batch *b = i->batch;

	i->run = NULL;
	if (a->is_refused && a->kind == ERR_BUSY) {
		if (i->is_counted)
			limits_leave(b->door, &b->caller);
		i->is_counted = false;
		wait_for_room(b, RETRY_NS);
	} else {
		if (a->json)
			put_line(i, a->is_refused, a->json, a->len);
		item_free(i);
	}
	free(a->json);
	go_on(b);
}

/* Return: whether others may be tried as well */
static bool start_item(struct item *i)
{
	static const struct job_error no_server = {
		.field = "server",
		.given = "this run",
		.allowed = "none",
		.message = "server: no server that makes runs answers; try again",
	};
	struct batch *b = i->batch;
	struct runner_request q = {
		.tenant = b->caller.tenant,
		.json = i->json,
		.len = i->len,
		.hooks = { .userdata = i, .on_done = on_done },
	};
	struct err e = { .kind = ERR_NONE };
	struct limit_refusal no;
	int r = limits_take(b->door, &b->caller, i->json, i->len, &no);

	if (r == -EAGAIN) {
		wait_for_room(b, no.wait_ns);
		free(no.error);
		return false;
	}
	if (r < 0) {
		if (no.error)
			put_line(i, true, no.error, strlen(no.error));
		free(no.error);
		item_free(i);
		return true;
	}
	i->is_counted = true;
	if (runner_start(b->door->runner, &q, &i->run, &e) == 0)
		return true;
	limits_leave(b->door, &b->caller);
	i->is_counted = false;
	if (e.kind == ERR_BUSY) {
		wait_for_room(b, RETRY_NS);
		return false;
	}
	put_error(i, &no_server);
	item_free(i);
	return true;
}

/* {"id": ..., "request": {...}}: what is in it takes the place of the line.  Return: 0, or -1: the line is answered */
static int unwrap(struct item *i)
{
	struct job_error why;
	json_t *o = NULL;
	json_t *request;
	json_t *id;
	int r = 0;

	if (!memmem(i->json, i->len, "\"request\"", 9) || job_json_load(i->json, i->len, &o, &why) < 0)
		return 0; /* cloched says what is wrong with it */
	request = json_object_get(o, "request");
	id = json_object_get(o, "id");
	if (!json_is_object(o) || !request) {
		json_decref(o);
		return 0;
	}
	if (json_is_string(id))
		i->id = json_dumps(id, JSON_ENCODE_ANY);
	if (!json_is_object(request) || json_object_size(o) != (id ? 2u : 1u) || (id && !i->id)) {
		(void)job_refuse(&why, "request", "this line",
				 "a request, or {\"id\": a string, \"request\": a request}");
		put_error(i, &why);
		r = -1;
	} else {
		i->owned = json_dumps(request, JSON_COMPACT);
		i->json = i->owned ? i->owned : "";
		i->len = strlen(i->json);
	}
	json_decref(o);
	return r;
}

/* The next line; a blank one leaves @i free.  Return: whether there is one */
static bool next_of_body(struct batch *b, struct item *i)
{
	const char *line = b->body.data + b->at;
	size_t left = b->body.len - b->at;
	const char *end = left ? memchr(line, '\n', left) : NULL;
	size_t len = end ? (size_t)(end - line) : left;

	if (!left)
		return false;
	b->at += len + (end != NULL);
	b->line++;
	if (len && line[len - 1] == '\r')
		len--;
	if (strspn(line, " \t\r") >= len)
		return true;
	i->line = b->line;
	i->json = line;
	i->len = len;
	return true;
}

static bool next_input(struct batch *b, struct item *i)
{
	json_t *input = json_array_get(b->inputs, b->line);

	if (!input)
		return false;
	i->line = ++b->line;
	(void)json_object_set(b->template, "stdin", input);
	i->owned = json_dumps(b->template, JSON_COMPACT);
	i->json = i->owned ? i->owned : "";
	i->len = strlen(i->json);
	return true;
}

static struct item *find_item(struct batch *b, bool is_waiting)
{
	unsigned n = 0;

	for (size_t i = 0; i < AT_A_TIME; i++)
		n += b->items[i].line != 0;
	for (size_t i = 0; i < AT_A_TIME; i++) {
		struct item *item = &b->items[i];

		if (is_waiting ? item->line && !item->run : !item->line && n < b->most)
			return item;
	}
	return NULL;
}

/* As many lines as there is room for, a reader for their answers, and time for in this turn: others wait, too. */
static void start_next(struct batch *b)
{
	static const struct timeval now = { .tv_sec = 0 };
	bool may_start = true;
	size_t cost = 0;
	struct item *i;

	while (may_start && !b->is_full && (i = find_item(b, false))) {
		if (cost >= TURN_COST) {
			(void)evtimer_add(b->retry, &now);
			return;
		}
		if (!(b->inputs ? next_input(b, i) : next_of_body(b, i)))
			return;
		cost += i->len + LINE_COST;
		if (!i->line)
			continue;
		if (!b->inputs && unwrap(i) < 0)
			item_free(i);
		else
			may_start = start_item(i);
	}
}

/* Whatever can be started is started; after the last line's answer, the end. */
static void go_on(struct batch *b)
{
	bool may_start = !b->is_full && !evtimer_pending(b->retry, NULL);
	struct item *i;

	while (may_start && (i = find_item(b, true)))
		may_start = start_item(i);
	if (may_start)
		start_next(b);
	for (size_t k = 0; k < AT_A_TIME; k++)
		if (b->items[k].line)
			return;
	if (b->is_full || evtimer_pending(b->retry, NULL))
		return;
	http_stream_end(b->conn);
	batch_free(b);
}

static void on_retry(evutil_socket_t fd, short what, void *userdata)
{
	(void)fd;
	(void)what;
	go_on(userdata);
}

static void on_gone(void *userdata)
{
	batch_free(userdata);
}

static void on_drained(void *userdata)
{
	struct batch *b = userdata;

	b->is_full = false;
	go_on(b);
}

/* One script with many inputs.  Return: NULL, or what is wrong with it */
static const char *take_inputs(struct batch *b)
{
	struct job_error ignored;

	if (job_json_load(b->body.data, b->body.len, &b->template, &ignored) == 0)
		b->inputs = json_incref(json_object_get(b->template, "stdins"));
	if (!json_is_object(b->template) || !json_is_array(b->inputs))
		return "one script for many inputs: {\"script_content\": \"...\", \"stdins\": [...]}";
	if (json_object_get(b->template, "stdin"))
		return "stdin: not beside stdins";
	if (json_array_size(b->inputs) > INPUTS_MAX)
		return "stdins: at most 10000";
	(void)json_object_del(b->template, "stdins");
	buf_done(&b->body);
	return NULL;
}

static struct batch *batch_new(struct door *d, struct http_conn *c)
{
	struct batch *b = calloc(1, sizeof(*b));
	unsigned most = limits_concurrent(d, http_conn_caller(c));
	struct buf *body = http_conn_body(c);

	if (!b)
		return NULL;
	b->door = d;
	b->conn = c;
	b->caller = *http_conn_caller(c);
	b->most = most && most < AT_A_TIME ? most : AT_A_TIME;
	b->retry = evtimer_new(d->base, on_retry, b);
	for (size_t i = 0; i < AT_A_TIME; i++)
		b->items[i].batch = b;
	b->body = *body;
	body->data = NULL; /* ours now; what it counts for is given back with the request */
	if (!b->retry) {
		batch_free(b);
		return NULL;
	}
	return b;
}

void batch_post(struct door *d, struct http_conn *c)
{
	bool is_one_script = http_is_media(http_conn_head(c)->content_type, "application/json");
	struct http_answer begin = { .status = 200,
				     .type = "application/x-ndjson",
				     .headers = "X-Accel-Buffering: no\r\n" };
	struct http_watch watch = { .on_gone = on_gone, .on_drained = on_drained };
	struct batch *b = batch_new(d, c);
	const char *wrong = b && is_one_script ? take_inputs(b) : NULL;

	if (!b || wrong) {
		problem_reply(c, &(struct problem) {
					 .status = b ? 422 : 503,
					 .type = b ? "request-refused" : NULL,
					 .detail = wrong ? wrong : "no memory",
					 .headers = b ? NULL : RETRY_SOON,
				 });
		if (b)
			batch_free(b);
		return;
	}
	watch.userdata = b;
	http_conn_watch(c, &watch);
	http_stream_start(c, &begin);
	go_on(b);
}
