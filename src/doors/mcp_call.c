/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/mcp_call.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "job/request.h"

struct mcp_call {
	struct mcp_listener to;
	enum mcp_era era;
	char *id;                       /* owned */
	char *progress;                 /* owned; NULL: nobody asked */
	struct runner_run *at_server;   /* NULL: not there, or over */
	struct runner_own_run *at_home; /* NULL: not there, or over */
	struct event *timer;            /* of its progress; or tells what could not start */
	char *refusal;                  /* owned; the error object of what could not start */
	uint64_t started_ns;
	uint64_t timeout_ns;
	unsigned n_told; /* progress so far */
};

static void call_free(struct mcp_call *c)
{
	if (c->timer)
		event_free(c->timer);
	if (c->at_server)
		runner_drop(c->at_server);
	if (c->at_home)
		runner_own_drop(c->at_home);
	free(c->refusal);
	free(c->progress);
	free(c->id);
	free(c);
}

static void reply(struct mcp_call *c, const char *json, size_t len)
{
	size_t text_len = 0;
	auto_free char *text = json ? mcp_result_write(c->id, c->era, json, len, &text_len) : NULL;

	if (!text) {
		text = mcp_error_write(c->id, MCP_INTERNAL_ERROR, "out of memory");
		text_len = text ? strlen(text) : 0;
	}
	c->to.on_message(c->to.userdata, c, text ? text : "", text_len, true);
	call_free(c);
}

static void tell_progress(struct mcp_call *c)
{
	uint64_t ms = (clock_now_ns() - c->started_ns) / NS_PER_MS;
	double seconds = (double)ms / 1e3;
	double total = (double)c->timeout_ns / (double)NS_PER_SEC;
	auto_free char *text = NULL;
	char words[100];

	if (!c->n_told)
		(void)snprintf(words, sizeof(words), "handed over, for at most %g seconds", total);
	else
		(void)snprintf(words, sizeof(words), "%.0f of at most %g seconds", seconds, total);
	/* it has to grow: the first one is none, later ones are a second apart */
	text = mcp_progress_write(c->progress, c->n_told++ ? seconds : 0, total, words);
	if (text)
		c->to.on_message(c->to.userdata, c, text, strlen(text), false);
}

static void on_done(void *userdata, struct runner_answer *answer)
{
	struct mcp_call *c = userdata;

	c->at_server = NULL;
	c->at_home = NULL;
	if (c->progress && !c->n_told) /* faster than its first word: who asked hears one all the same */
		tell_progress(c);
	reply(c, answer->json, answer->len);
	free(answer->json);
}

static void on_timer(evutil_socket_t fd, short what, void *userdata)
{
	static const struct timeval second = { .tv_sec = 1 };
	struct mcp_call *c = userdata;

	(void)fd;
	(void)what;
	if (c->refusal) {
		reply(c, c->refusal, strlen(c->refusal));
		return;
	}
	tell_progress(c);
	(void)event_add(c->timer, &second);
}

/* No room, or no server: said in the shape of every other refusal. */
static char *refusal_of(const struct err *e)
{
	struct job_error why = { .field = "server", .given = "this call" };

	(void)snprintf(why.allowed, sizeof(why.allowed), "%s",
		       e->kind == ERR_BUSY ? "when there is room: try again" : "none");
	(void)snprintf(why.message, sizeof(why.message), "server: %.340s%s", e->msg,
		       e->kind == ERR_BUSY ? "; try again" : "");
	return job_error_write(&why);
}

static int start(const struct mcp_place *place, struct mcp_call *c, const struct mcp_message *m)
{
	struct runner_request q = {
		.tenant = place->tenant,
		.json = m->request,
		.len = m->request_len,
		.hooks = { .userdata = c, .on_done = on_done },
	};
	struct err e = { .kind = ERR_NONE };
	int r = place->server ? runner_start(place->server, &q, &c->at_server, &e) : -ENOENT;
	bool is_absent = !place->server || e.sys == ENOENT || e.sys == ECONNREFUSED;

	if (r < 0 && is_absent && place->own)
		r = runner_own_start(place->own, &q, &c->at_home, &e);
	if (r == 0)
		return 0;
	c->refusal = refusal_of(&e);
	return c->refusal ? 0 : -ENOMEM;
}

int mcp_call_start(const struct mcp_place *place, struct mcp_message *m, const struct mcp_listener *to,
		   struct mcp_call **ret)
{
	static const struct timeval now = { .tv_sec = 0 };
	struct mcp_call *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return -ENOMEM;
	c->to = *to;
	c->era = m->era;
	c->id = m->id;
	c->progress = m->progress;
	m->id = NULL;
	m->progress = NULL;
	c->timeout_ns = m->timeout_ns;
	c->started_ns = clock_now_ns();
	r = start(place, c, m);
	if (r == 0 && (c->progress || c->refusal)) {
		c->timer = event_new(place->base, -1, 0, on_timer, c);
		if (!c->timer || event_add(c->timer, &now) < 0)
			r = -ENOMEM;
	}
	if (r < 0) {
		call_free(c);
		return -ENOMEM;
	}
	*ret = c;
	return 0;
}

const char *mcp_call_id(const struct mcp_call *call)
{
	return call->id;
}

void mcp_call_drop(struct mcp_call *call)
{
	call_free(call);
}
