/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/mcp_http.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "doors/mcp_call.h"
#include "run/run.h"

#define SESSION_SIZE 33 /* 32 hexadecimal digits */
#define JSON_TYPE    "application/json"
#define EVENTS_TYPE  "text/event-stream"

struct mcp_http {
	struct mcp_place place;
	struct mcp_terms terms;
	struct mcp_gate gate;
	struct request *requests; /* calls under way */
};

/* A call, and the connection that waits for its reply. */
struct request {
	struct request *next;
	struct mcp_http *m;
	struct http_conn *conn;
	struct mcp_call *call;
	struct http_caller who;
	char session[SESSION_SIZE]; /* empty: none */
	bool is_stream;             /* the answer comes as events, and has begun */
};

int mcp_http_new(struct event_base *base, struct runner *runner, const struct mcp_terms *terms,
		 const struct mcp_gate *gate, struct mcp_http **ret, struct err *e)
{
	struct mcp_http *m = calloc(1, sizeof(*m));

	if (!m)
		return err_set(e, ERR_HOST, ENOMEM, "start");
	m->place = (struct mcp_place) { .base = base, .server = runner };
	m->terms = *terms;
	m->gate = *gate;
	*ret = m;
	return 0;
}

static void request_free(struct request *q)
{
	struct request **at = &q->m->requests;

	while (*at && *at != q)
		at = &(*at)->next;
	if (*at)
		*at = q->next;
	if (q->call)
		mcp_call_drop(q->call);
	q->m->gate.on_leave(q->m->gate.userdata, &q->who);
	free(q);
}

void mcp_http_free(struct mcp_http *m)
{
	while (m && m->requests)
		request_free(m->requests);
	free(m);
}

static void answer(struct http_conn *c, int status, const char *json, size_t len, const char *headers)
{
	struct http_answer a = {
		.status = status,
		.type = json ? JSON_TYPE : NULL,
		.headers = headers,
		.body = json,
		.len = len,
	};

	http_reply(c, &a);
}

static void answer_error(struct http_conn *c, int status, const char *id, int code, const char *why)
{
	auto_free char *text = mcp_error_write(id, code, why);

	answer(c, status, text, text ? strlen(text) : 0, NULL);
}

static void stream_start(struct request *q)
{
	static const struct http_answer begin = {
		.status = 200,
		.type = EVENTS_TYPE,
		.headers = "X-Accel-Buffering: no\r\n",
	};

	http_stream_start(q->conn, &begin);
	q->is_stream = true;
}

static void stream_say(struct request *q, const char *json, size_t len)
{
	static const char before[] = "event: message\ndata: ";

	(void)http_stream_add(q->conn, before, sizeof(before) - 1);
	(void)http_stream_add(q->conn, json, len);
	(void)http_stream_add(q->conn, "\n\n", 2);
}

/* Progress is told only to who asked for it and takes events: then the answer is a stream from its first word on. */
static void on_message(void *userdata, struct mcp_call *call, const char *json, size_t len, bool is_last)
{
	struct request *q = userdata;

	(void)call;
	if (!is_last) {
		if (!q->is_stream)
			stream_start(q);
		stream_say(q, json, len);
		return;
	}
	q->call = NULL;
	if (q->is_stream) {
		stream_say(q, json, len);
		http_stream_end(q->conn);
	} else {
		answer(q->conn, 200, json, len, NULL);
	}
	request_free(q);
}

static void on_gone(void *userdata)
{
	request_free(userdata);
}

/* A session is a name that we made; nothing is kept of it.  Return: whether @name is one, or none was given */
static bool is_session(const char *name)
{
	return !name || (strlen(name) == SESSION_SIZE - 1 && strspn(name, "0123456789abcdef") == SESSION_SIZE - 1);
}

static const char *session_of(const struct http_conn *c)
{
	const char *name = http_header(http_conn_head(c), "mcp-session-id");

	return name ? name : "";
}

/* Its client waits no more: what it waits on ends without a message. */
static void cancel(struct mcp_http *m, struct http_conn *c, const char *id)
{
	const char *tenant = http_conn_caller(c)->tenant;
	struct request *q = m->requests;

	while (q && (strcmp(q->who.tenant, tenant) != 0 || strcmp(q->session, session_of(c)) != 0 ||
		     strcmp(mcp_call_id(q->call), id) != 0))
		q = q->next;
	if (!q)
		return;
	if (!q->is_stream)
		stream_start(q);
	http_stream_end(q->conn);
	request_free(q);
}

static bool takes_events(const struct http_conn *c)
{
	const char *accept = http_conn_head(c)->accept;

	return accept && strcasestr(accept, EVENTS_TYPE);
}

/* Return: whether it may run; if not, it was answered. */
static bool enter(struct mcp_http *m, struct http_conn *c, const struct mcp_message *msg)
{
	auto_free char *refusal = NULL;
	auto_free char *text = NULL;
	size_t len = 0;

	if (m->gate.on_enter(m->gate.userdata, c, msg->request, msg->request_len, &refusal))
		return true;
	if (refusal)
		text = mcp_result_write(msg->id, msg->era, refusal, strlen(refusal), &len);
	if (text)
		answer(c, 200, text, len, NULL);
	else
		answer_error(c, 500, msg->id, MCP_INTERNAL_ERROR, "out of memory");
	return false;
}

static void on_call(struct mcp_http *m, struct http_conn *c, struct mcp_message *msg)
{
	struct http_watch watch = { .on_gone = on_gone };
	struct mcp_listener to = { .on_message = on_message };
	struct mcp_place place = m->place;
	struct request *q;

	if (!enter(m, c, msg))
		return;
	if (msg->progress && !takes_events(c)) {
		free(msg->progress);
		msg->progress = NULL;
	}
	q = calloc(1, sizeof(*q));
	if (q) {
		q->m = m;
		q->conn = c;
		q->who = *http_conn_caller(c);
		(void)snprintf(q->session, sizeof(q->session), "%s", session_of(c));
		watch.userdata = to.userdata = q;
		place.tenant = q->who.tenant;
	}
	if (!q || mcp_call_start(&place, msg, &to, &q->call) < 0) {
		m->gate.on_leave(m->gate.userdata, http_conn_caller(c));
		free(q);
		answer_error(c, 500, NULL, MCP_INTERNAL_ERROR, "out of memory");
		return;
	}
	q->next = m->requests;
	m->requests = q;
	http_conn_watch(c, &watch);
}

/* The older clients get a name for what they take for a session, so that no two of them cancel each other's calls. */
static void answer_initialize(struct http_conn *c, const struct mcp_message *msg)
{
	char name[SESSION_SIZE];
	char header[64] = "";

	if (run_make_id(name) == 0)
		(void)snprintf(header, sizeof(header), "Mcp-Session-Id: %s\r\n", name);
	answer(c, msg->http_status, msg->reply, msg->reply_len, *header ? header : NULL);
}

static void on_message_read(struct mcp_http *m, struct http_conn *c, struct mcp_message *msg)
{
	switch (msg->what) {
	case MCP_CALL:
		on_call(m, c, msg);
		break;
	case MCP_CANCEL:
		cancel(m, c, msg->id);
		answer(c, 202, NULL, 0, NULL);
		break;
	case MCP_ANSWERED:
		if (msg->is_initialize)
			answer_initialize(c, msg);
		else
			answer(c, msg->http_status, msg->reply, msg->reply_len, NULL);
		break;
	case MCP_NOTHING:
		answer(c, 202, NULL, 0, NULL);
		break;
	}
}

void mcp_http_request(struct mcp_http *m, struct http_conn *c)
{
	const struct http_head *head = http_conn_head(c);
	struct mcp_headers h = {
		.version = http_header(head, "mcp-protocol-version"),
		.method = http_header(head, "mcp-method"),
		.name = http_header(head, "mcp-name"),
	};
	struct buf *body = http_conn_body(c);
	struct mcp_message msg;

	if (!is_session(http_header(head, "mcp-session-id"))) {
		answer_error(c, 404, NULL, MCP_INVALID_REQUEST, "there is no such session: begin anew");
		return;
	}
	if (mcp_read(&m->terms, &h, body->data ? body->data : "", body->len, &msg) < 0) {
		answer_error(c, 500, NULL, MCP_INTERNAL_ERROR, "out of memory");
		return;
	}
	http_conn_drop_body(c);
	on_message_read(m, c, &msg);
	mcp_message_done(&msg);
}
