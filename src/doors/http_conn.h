/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "doors/http_parse.h"
#include "doors/tokens.h"

struct event_base;

/*
 * Connections of an HTTP/1.1 server: bytes to requests, answers to bytes, one request at a time.
 *
 * Theory of operation.  A request's head comes first and is judged by the application (on_head) before a byte of the
 * body is read, so that who may not ask costs no memory.  While a request is held nothing is read; the end of the
 * connection is watched apart, so that a client that goes away is noticed at once.  Who sends the next request before
 * the answer to this one gets this one's answer and "Connection: close".  Every wait has a time limit.
 */
struct http_server;
struct http_conn;

/* Who is there, as the application has found out. */
struct http_caller {
	char tenant[TENANT_SIZE];
	char token[TOKEN_NAME_MAX + 1]; /* empty: the socket itself told who it is */
};

struct http_app {
	void *userdata;
	uint64_t patience_ns; /* what a client gets to send a head; three times that, and more by length, for a body */
	/*
	 * The head of a request.  Return: the most bytes that its body may have; -1: it was answered by http_reply()
	 * The application may put what it found into http_conn_caller() and http_conn_set_route().
	 */
	int64_t (*on_head)(void *userdata, struct http_conn *c);
	/* All of it.  Sooner or later http_reply() or http_stream_end() must come, or on_gone is told. */
	void (*on_request)(void *userdata, struct http_conn *c);
	/* An error of the protocol: answer it with http_reply() */
	void (*on_refuse)(void *userdata, struct http_conn *c, int status, const char *why);
	/* An answer was begun; @route: what was set, or NULL */
	void (*on_answer)(void *userdata, const void *route, const char *method, int status);
};

/* What whoever holds a request wants to be told.  No call of them comes from within http_reply() and the like. */
struct http_watch {
	void *userdata;
	void (*on_gone)(void *userdata);    /* the client went away: the connection is no more */
	void (*on_drained)(void *userdata); /* after http_stream_add() had said that it is full; NULL: nobody asks */
};

struct http_answer {
	int status;
	const char *type;    /* NULL: no body */
	const char *headers; /* more of them, "Name: value\r\n" each; NULL: none */
	const char *body;
	size_t len;
	bool frees_body; /* @body is heap and is taken, in every case */
};

#define HTTP_CONNS_MAX 1024              /* of each kind of socket; idle ones make room for new ones */
#define HTTP_HELD_MAX  ((size_t)1 << 30) /* bytes of requests, and of answers that are not taken, together */

int http_server_new(struct event_base *base, const struct http_app *app, struct http_server **ret,
		    struct err *e) MUST_CHECK;

/* http_server_listen() - take connections of @fd, a listening socket that becomes the server's.  Return: 0 or -errno */
int http_server_listen(struct http_server *s, int fd, bool is_unix, struct err *e) MUST_CHECK;

/* http_server_stop() - no more connections; those without a request are closed.  Return: how many are left */
unsigned http_server_stop(struct http_server *s);
unsigned http_server_count(const struct http_server *s);
size_t http_server_bodies(const struct http_server *s);

/* http_server_free() - closes what is there; on_gone is told.  NULL is fine */
void http_server_free(struct http_server *s);

const struct http_head *http_conn_head(const struct http_conn *c);
struct http_caller *http_conn_caller(struct http_conn *c);
void http_conn_set_route(struct http_conn *c, const void *route);
const void *http_conn_route(const struct http_conn *c);

/* http_conn_uid() - of a Unix socket's peer.  Return: whether it is one */
bool http_conn_uid(const struct http_conn *c, uid_t *ret);

/* http_conn_body() - the whole body, NUL-terminated once anything came; to be emptied by taking ->data */
struct buf *http_conn_body(struct http_conn *c);

/* http_conn_drop_body() - it is of no further use: others may have its room */
void http_conn_drop_body(struct http_conn *c);

/* http_conn_watch() - while it is held; once at most for each request */
void http_conn_watch(struct http_conn *c, const struct http_watch *w);

/* http_reply() - the one answer to a request; the connection is not the caller's any more */
void http_reply(struct http_conn *c, const struct http_answer *a);

/* http_stream_start() - an answer that comes in parts; @a has no body */
void http_stream_start(struct http_conn *c, const struct http_answer *a);

/* http_stream_add() - one part.  Return: whether more is welcome now; if not, on_drained is told when it is */
bool http_stream_add(struct http_conn *c, const void *data, size_t len);

/* http_stream_end() - the connection is not the caller's any more */
void http_stream_end(struct http_conn *c);
