/* SPDX-License-Identifier: Apache-2.0 */
/* POST /v1/runs: one run, answered by its result, by what it writes as it comes, or by its id. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/parse.h"
#include "doors/door.h"
#include "job/json.h"
#include "job/text.h"

#define EVENT_MAX ((size_t)128 << 20)
#define CARRY_MAX 4 /* bytes of a character that is not whole yet */

/* The beginning of a character at the end of what a stream has brought so far. */
struct carry {
	char bytes[CARRY_MAX];
	size_t len;
};

/* A request until its run has ended; its client may be gone before that. */
struct posted {
	struct live live;       /* its place in the door's list from its acceptance on */
	struct http_conn *conn; /* NULL: nobody waits */
	enum http_form form;
	bool is_async;
	bool is_accepted;
	bool is_streaming; /* the answer has begun */
	struct carry carry[2];
};

static void posted_free(struct posted *p)
{
	if (p->is_accepted)
		live_remove(&p->live);
	limits_leave(p->live.door, &p->live.caller);
	free(p);
}

/* One event of a stream: an object on one line. */
static void send_event(struct posted *p, const char *name, struct buf *b)
{
	bool is_welcome;

	if (p->form == HTTP_FORM_EVENTS) {
		(void)http_stream_add(p->conn, "event: ", 7);
		(void)http_stream_add(p->conn, name, strlen(name));
		(void)http_stream_add(p->conn, "\ndata: ", 7);
		(void)http_stream_add(p->conn, b->data, b->len);
		is_welcome = http_stream_add(p->conn, "\n\n", 2);
	} else {
		(void)http_stream_add(p->conn, b->data, b->len);
		is_welcome = http_stream_add(p->conn, "\n", 1);
	}
	if (!is_welcome && p->live.run)
		runner_pause(p->live.run);
}

static void begin_stream(struct posted *p)
{
	struct http_answer a = { .status = 200 };
	char headers[96];
	struct buf b;

	(void)snprintf(headers, sizeof(headers), "Location: /v1/runs/%s\r\nX-Accel-Buffering: no\r\n", p->live.run_id);
	a.type = p->form == HTTP_FORM_EVENTS ? "text/event-stream" : "application/x-ndjson";
	a.headers = headers;
	p->is_streaming = true;
	http_stream_start(p->conn, &a);
	buf_init(&b, EVENT_MAX);
	if (buf_printf(&b, "{\"event\": \"accepted\", \"run_id\": \"%s\"}", p->live.run_id) == 0)
		send_event(p, "accepted", &b);
	buf_done(&b);
}

static void answer_async(struct posted *p)
{
	struct http_answer a = { .status = 202, .type = "application/json" };
	char headers[64];
	char body[80];

	(void)snprintf(headers, sizeof(headers), "Location: /v1/runs/%s\r\n", p->live.run_id);
	(void)snprintf(body, sizeof(body), "{\"run_id\": \"%s\", \"state\": \"running\"}", p->live.run_id);
	a.headers = headers;
	a.body = body;
	a.len = strlen(body);
	http_reply(p->conn, &a);
	p->conn = NULL;
}

static void on_accepted(void *userdata, const char *run_id)
{
	struct posted *p = userdata;

	(void)snprintf(p->live.run_id, sizeof(p->live.run_id), "%s", run_id);
	p->is_accepted = true;
	live_add(&p->live);
	if (p->is_async)
		answer_async(p);
	else if (p->form != HTTP_FORM_JSON)
		begin_stream(p);
}

/* How many bytes at the end of @s are the beginning of a character. */
static size_t cut_at_end(const char *s, size_t len)
{
	for (size_t n = 1; n < CARRY_MAX && n <= len; n++) {
		unsigned char c = (unsigned char)s[len - n];
		enum utf8_part part;

		if ((c & 0xc0) == 0x80)
			continue;
		if (c >= 0xc0 && utf8_next(s + len - n, n, &part) == n && part == UTF8_CUT)
			return n;
		return 0;
	}
	return 0;
}

/* {"event": "stdout", "text": "..."}, and what the bytes were where they were no UTF-8. */
static int write_output(struct buf *b, const char *name, const char *data, size_t len)
{
	auto_free char *exact = NULL;
	bool has_errors = false;
	int r = buf_printf(b, "{\"event\": \"%s\", \"text\": ", name);

	if (r == 0)
		r = job_json_add_bytes(b, data, len, &has_errors);
	if (r == 0 && has_errors) {
		exact = base64_encode(data, len);
		r = exact ? buf_printf(b, ", \"base64\": \"%s\"", exact) : -ENOMEM;
	}
	if (r == 0)
		r = buf_add(b, "}", 1);
	return r;
}

static void send_output(struct posted *p, int stream, const char *data, size_t len)
{
	const char *name = stream == 1 ? "stdout" : "stderr";
	struct buf b;

	if (!len)
		return;
	buf_init(&b, EVENT_MAX);
	if (write_output(&b, name, data, len) == 0)
		send_event(p, name, &b);
	buf_done(&b);
}

static void on_output(void *userdata, int stream, const void *data, size_t len)
{
	struct posted *p = userdata;
	struct carry *carry = &p->carry[stream == 2];
	struct buf b;
	size_t cut;

	if (!p->conn)
		return;
	buf_init(&b, EVENT_MAX);
	if (buf_add(&b, carry->bytes, carry->len) == 0 && buf_add(&b, data, len) == 0) {
		cut = cut_at_end(b.data, b.len);
		send_output(p, stream, b.data, b.len - cut);
		memcpy(carry->bytes, b.data + b.len - cut, cut);
		carry->len = cut;
	}
	buf_done(&b);
}

static void end_stream(struct posted *p, struct runner_answer *a)
{
	const char *name = a->is_refused ? "error" : "result";
	struct buf b;
	int r;

	for (int i = 0; i < 2; i++)
		send_output(p, i + 1, p->carry[i].bytes, p->carry[i].len);
	buf_init(&b, a->len + 64);
	r = buf_printf(&b, "{\"event\": \"%s\"", name);
	if (r == 0 && a->is_refused)
		r = problem_add_error(&b, a->json, a->len);
	else if (r == 0)
		r = buf_printf(&b, ", \"result\": ");
	if (r == 0 && !a->is_refused)
		r = buf_add(&b, a->json, a->len);
	if (r == 0)
		r = buf_add(&b, "}", 1);
	if (r == 0)
		send_event(p, name, &b);
	buf_done(&b);
	http_stream_end(p->conn);
	free(a->json);
}

static void answer_result(struct posted *p, struct runner_answer *a)
{
	if (a->is_refused) {
		problem_refusal(p->conn, a);
		free(a->json);
	} else {
		answer_json(p->conn, 200, a->json);
	}
}

/* An accepted one whose client went on: it can be asked for. */
static void keep(struct posted *p, struct runner_answer *a)
{
	struct live *l = malloc(sizeof(*l));

	if (!l || !a->json) {
		free(l);
		free(a->json);
		return;
	}
	*l = p->live;
	l->next = NULL;
	l->json = a->json;
	l->len = a->len;
	l->is_refused = a->is_refused;
	live_keep(l);
}

static void on_done(void *userdata, struct runner_answer *a)
{
	struct posted *p = userdata;

	p->live.run = NULL;
	if (p->is_async && p->is_accepted)
		keep(p, a);
	else if (p->is_streaming && a->json)
		end_stream(p, a);
	else if (p->is_streaming)
		http_stream_end(p->conn);
	else
		answer_result(p, a);
	posted_free(p);
}

static void on_gone(void *userdata)
{
	struct posted *p = userdata;

	runner_drop(p->live.run);
	posted_free(p);
}

static void on_drained(void *userdata)
{
	struct posted *p = userdata;

	if (p->live.run)
		runner_resume(p->live.run);
}

/* Return: 0 or -1: answered */
static int read_query(struct http_conn *c, bool *ret_async)
{
	static const char *const known[] = { "async", NULL };
	const char *query = http_conn_head(c)->query;
	char text[48];
	int r;

	*ret_async = false;
	if (http_query_unknown(query, known, text, sizeof(text))) {
		problem_reply(c, &(struct problem) { .status = 400,
						     .type = "query",
						     .detail = "the one known parameter is async" });
		return -1;
	}
	r = http_query(query, "async", text, sizeof(text));
	if (r < 0 || (r > 0 && parse_bool(text, ret_async) < 0)) {
		problem_reply(c, &(struct problem) { .status = 400, .type = "query", .detail = "async: 1 or 0" });
		return -1;
	}
	return 0;
}

static void start(struct posted *p)
{
	struct http_watch watch = { .userdata = p, .on_gone = on_gone, .on_drained = on_drained };
	struct buf *body = http_conn_body(p->conn);
	struct runner_request q = {
		.tenant = p->live.caller.tenant,
		.json = body->data,
		.len = body->len,
		.hooks = { .userdata = p, .on_accepted = on_accepted, .on_done = on_done },
	};
	struct err e = { .kind = ERR_NONE };

	if (p->form != HTTP_FORM_JSON)
		q.hooks.on_output = on_output;
	if (runner_start(p->live.door->runner, &q, &p->live.run, &e) < 0) {
		problem_start(p->conn, &e);
		posted_free(p);
		return;
	}
	http_conn_drop_body(p->conn);
	http_conn_watch(p->conn, &watch);
}

void runs_post(struct door *d, struct http_conn *c)
{
	const struct buf *body = http_conn_body(c);
	struct limit_refusal no;
	struct posted *p;
	bool is_async;

	if (read_query(c, &is_async) < 0)
		return;
	if (limits_take(d, http_conn_caller(c), body->data, body->len, &no) < 0) {
		problem_reply(c, &no.problem);
		free(no.error);
		return;
	}
	p = calloc(1, sizeof(*p));
	if (!p) {
		limits_leave(d, http_conn_caller(c));
		problem_reply(c, &(struct problem) { .status = 503, .detail = "no memory", .headers = RETRY_SOON });
		return;
	}
	p->live.door = d;
	p->live.caller = *http_conn_caller(c);
	p->conn = c;
	p->is_async = is_async;
	p->form = is_async ? HTTP_FORM_JSON : http_accept(http_conn_head(c)->accept);
	start(p);
}
