/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <event2/util.h>

#include "doors/http_conn.h"

/* Inside http_conn.c, http_share.c and http_server.c alone. */

struct bufferevent;
struct event;

enum conn_state {
	CONN_HEAD,   /* waits for a request, or has its beginning */
	CONN_JUDGED, /* the head is there and is being judged */
	CONN_BODY,
	CONN_HELD,   /* somebody works on the answer */
	CONN_STREAM, /* ... and has begun to give it */
	CONN_FLUSH,  /* all is said, not all is sent */
	CONN_LINGER, /* all is sent; the rest of what comes is thrown away */
};

struct http_conn {
	struct http_conn *next;
	struct http_server *server;
	struct bufferevent *bev;
	struct event *timer;
	enum conn_state state;
	bool is_unix;
	bool closes;  /* after this answer */
	bool is_shut; /* nothing more comes of the client, and what we say may be for nobody */
	bool is_chunked_answer;
	bool is_full; /* on_drained is to be told */
	uid_t uid;
	size_t scanned;  /* bytes of the head without an end */
	size_t lingered; /* bytes thrown away */
	size_t counted;  /* of this body, in server->bodies */
	char *head_text; /* owned; what @head points into */
	struct http_head head;
	struct http_chunked chunked;
	struct buf body;
	struct http_caller caller;
	struct http_watch watch;
	const void *route; /* borrowed */
};

struct listener {
	struct listener *next;
	struct http_server *server;
	struct event *event;
	struct event *pause; /* out of descriptors: again in a moment */
	int fd;
	bool is_unix;
};

struct http_server {
	struct event_base *base;
	struct http_app app;
	struct listener *listeners;
	struct http_conn *conns;
	unsigned n_conns[2]; /* TCP, Unix */
	struct event *ends;  /* of all connections */
	int ends_fd;         /* owned */
	size_t bodies;
	bool is_stopping;
};

void conn_accept(struct http_server *s, int fd, bool is_unix);
void conn_on_ends(evutil_socket_t fd, short what, void *userdata);
void conn_free(struct http_conn *c);
void conn_flush(struct http_conn *c);

/* conn_has_room() - may its tenant hold @len bytes more, and have this request at all? */
bool conn_has_room(const struct http_conn *c, size_t len);

/* conn_make_room() - for one more connection, by closing an idle one if need be.  Return: whether there is */
bool conn_make_room(struct http_server *s, bool is_unix);
bool conn_is_hasty(const struct http_conn *c);
