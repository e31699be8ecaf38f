/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "doors/http_conn.h"
#include "doors/mcp.h"
#include "doors/runner.h"

/*
 * The Model Context Protocol at the HTTP server: POST /mcp, one message each.  Without sessions: what a client says in
 * one request means nothing for the next, but for a cancellation, which finds its call by tenant, session and id.
 */
struct mcp_http;

/* Whether a call may run: a token has limits of its own. */
struct mcp_gate {
	void *userdata;
	/*
	 * @request: as it goes to the server.  Return: whether it may; then on_leave is told once, when its run is
	 * over. If not, *@ret_refusal is the error object why, heap (NULL: no memory)
	 */
	bool (*on_enter)(void *userdata, struct http_conn *c, const char *request, size_t len, char **ret_refusal);
	void (*on_leave)(void *userdata, const struct http_caller *who);
};

/*
 * mcp_http_new() - @base, @runner: borrowed until mcp_http_free()
 * @gate: copied
 *
 * Return: 0 or -errno with @e set.
 */
int mcp_http_new(struct event_base *base, struct runner *runner, const struct mcp_terms *terms,
		 const struct mcp_gate *gate, struct mcp_http **ret, struct err *e) MUST_CHECK;

/* mcp_http_free() - ends what is under way without a word: after its connections; NULL is fine */
void mcp_http_free(struct mcp_http *m);

/*
 * mcp_http_request() - a POST that is whole; it will be answered
 *
 * Host, Origin, who asks (http_conn_caller()) and the content type were judged before.
 */
void mcp_http_request(struct mcp_http *m, struct http_conn *c);
