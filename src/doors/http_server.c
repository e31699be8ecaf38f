/* SPDX-License-Identifier: Apache-2.0 */
/* Listening sockets, and what connections say by themselves. */
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "doors/http_conn_priv.h"
#include "doors/http_status.h"

#define ACCEPTS 16 /* in one turn */

static void on_pause(evutil_socket_t fd, short what, void *userdata)
{
	struct listener *l = userdata;

	(void)fd;
	(void)what;
	(void)event_add(l->event, NULL);
}

static void on_connection(evutil_socket_t listening, short what, void *userdata)
{
	struct listener *l = userdata;

	(void)what;
	for (int i = 0; i < ACCEPTS; i++) {
		/* cppcheck-suppress nullPointer ; its library file says that accept4() takes no NULL address */
		int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			conn_accept(l->server, fd, l->is_unix);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
			struct timeval moment = { .tv_usec = 100000 };

			(void)event_del(l->event);
			(void)evtimer_add(l->pause, &moment);
		}
		if (errno != EINTR && errno != ECONNABORTED)
			return;
	}
}

static void listener_free(struct listener *l)
{
	if (l->event)
		event_free(l->event);
	if (l->pause)
		event_free(l->pause);
	fd_close(&l->fd);
	free(l);
}

int http_server_listen(struct http_server *s, int fd, bool is_unix, struct err *e)
{
	struct listener *l = calloc(1, sizeof(*l));

	if (!l) {
		(void)close(fd);
		return err_set(e, ERR_HOST, ENOMEM, "listen");
	}
	l->server = s;
	l->fd = fd;
	l->is_unix = is_unix;
	l->event = event_new(s->base, fd, EV_READ | EV_PERSIST, on_connection, l);
	l->pause = evtimer_new(s->base, on_pause, l);
	if (!l->event || !l->pause || event_add(l->event, NULL) < 0) {
		listener_free(l);
		return err_set(e, ERR_HOST, ENOMEM, "listen");
	}
	l->next = s->listeners;
	s->listeners = l;
	return 0;
}

int http_server_new(struct event_base *base, const struct http_app *app, struct http_server **ret, struct err *e)
{
	struct http_server *s = calloc(1, sizeof(*s));

	if (!s)
		return err_set(e, ERR_HOST, ENOMEM, "start");
	s->base = base;
	s->app = *app;
	s->ends_fd = epoll_create1(EPOLL_CLOEXEC);
	s->ends = s->ends_fd >= 0 ? event_new(base, s->ends_fd, EV_READ | EV_PERSIST, conn_on_ends, s) : NULL;
	if (!s->ends || event_add(s->ends, NULL) < 0) {
		int sys = errno;

		http_server_free(s);
		return err_set(e, ERR_HOST, sys, "epoll");
	}
	*ret = s;
	return 0;
}

unsigned http_server_count(const struct http_server *s)
{
	return s->n_conns[0] + s->n_conns[1];
}

size_t http_server_bodies(const struct http_server *s)
{
	return s->bodies;
}

static void drop_listeners(struct http_server *s)
{
	while (s->listeners) {
		struct listener *l = s->listeners;

		s->listeners = l->next;
		listener_free(l);
	}
}

unsigned http_server_stop(struct http_server *s)
{
	struct http_conn *next;

	s->is_stopping = true;
	drop_listeners(s);
	for (struct http_conn *c = s->conns; c; c = next) {
		next = c->next;
		c->closes = true;
		if (c->state == CONN_HEAD || c->state == CONN_BODY || c->state == CONN_LINGER)
			conn_free(c);
	}
	return http_server_count(s);
}

void http_server_free(struct http_server *s)
{
	if (!s)
		return;
	drop_listeners(s);
	while (s->conns)
		conn_free(s->conns);
	if (s->ends)
		event_free(s->ends);
	fd_close(&s->ends_fd);
	free(s);
}

const struct http_head *http_conn_head(const struct http_conn *c)
{
	return &c->head;
}

struct http_caller *http_conn_caller(struct http_conn *c)
{
	return &c->caller;
}

void http_conn_set_route(struct http_conn *c, const void *route)
{
	c->route = route;
}

const void *http_conn_route(const struct http_conn *c)
{
	return c->route;
}

bool http_conn_uid(const struct http_conn *c, uid_t *ret)
{
	if (c->is_unix)
		*ret = c->uid;
	return c->is_unix;
}

struct buf *http_conn_body(struct http_conn *c)
{
	return &c->body;
}

void http_conn_drop_body(struct http_conn *c)
{
	buf_done(&c->body);
	c->server->bodies -= c->counted;
	c->counted = 0;
}

const char *http_status_reason(int status)
{
	static const struct {
		int status;
		const char *reason;
	} reasons[] = {
		{ 200, "OK" },
		{ 202, "Accepted" },
		{ 204, "No Content" },
		{ 400, "Bad Request" },
		{ 401, "Unauthorized" },
		{ 403, "Forbidden" },
		{ 404, "Not Found" },
		{ 405, "Method Not Allowed" },
		{ 408, "Request Timeout" },
		{ 409, "Conflict" },
		{ 413, "Content Too Large" },
		{ 415, "Unsupported Media Type" },
		{ 417, "Expectation Failed" },
		{ 421, "Misdirected Request" },
		{ 422, "Unprocessable Content" },
		{ 429, "Too Many Requests" },
		{ 431, "Request Header Fields Too Large" },
		{ 500, "Internal Server Error" },
		{ 501, "Not Implemented" },
		{ 503, "Service Unavailable" },
		{ 505, "HTTP Version Not Supported" },
	};

	for (size_t i = 0; i < ARRAY_LEN(reasons); i++)
		if (reasons[i].status == status)
			return reasons[i].reason;
	return "Unknown";
}

static const char *method_name(enum http_method m)
{
	switch (m) {
	case HTTP_GET:
		return "GET";
	case HTTP_HEAD:
		return "HEAD";
	case HTTP_POST:
		return "POST";
	case HTTP_DELETE:
		return "DELETE";
	case HTTP_OPTIONS:
		return "OPTIONS";
	case HTTP_OTHER:
		break;
	}
	return "other";
}

/* Status line and headers; @length: what Content-Length says, -1: nothing. */
static void say_head(struct http_conn *c, const struct http_answer *a, int64_t length)
{
	struct evbuffer *out = bufferevent_get_output(c->bev);
	time_t now = time(NULL);
	char date[64];
	struct tm tm;

	/* a request whose body was not read must not have its rest taken for another one */
	if (c->state != CONN_HELD && (c->state != CONN_JUDGED || c->head.is_chunked || c->head.length))
		c->closes = true;
	if (conn_is_hasty(c))
		c->closes = true;
	(void)strftime(date, sizeof(date), "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&now, &tm));
	(void)evbuffer_add_printf(out,
				  "HTTP/1.1 %d %s\r\nDate: %s\r\n%s%s%sCache-Control: no-store\r\n"
				  "X-Content-Type-Options: nosniff\r\n%s",
				  a->status, http_status_reason(a->status), date, a->type ? "Content-Type: " : "",
				  a->type ? a->type : "", a->type ? "\r\n" : "", a->headers ? a->headers : "");
	if (length >= 0)
		(void)evbuffer_add_printf(out, "Content-Length: %lld\r\n", (long long)length);
	if (c->is_chunked_answer)
		(void)evbuffer_add_printf(out, "Transfer-Encoding: chunked\r\n");
	(void)evbuffer_add_printf(out, "Connection: %s\r\n\r\n", c->closes ? "close" : "keep-alive");
	if (c->server->app.on_answer)
		c->server->app.on_answer(c->server->app.userdata, c->route, method_name(c->head.method), a->status);
}

static void free_body(const void *data, size_t len, void *extra)
{
	(void)data;
	(void)len;
	free(extra);
}

void http_reply(struct http_conn *c, const struct http_answer *a)
{
	struct evbuffer *out = bufferevent_get_output(c->bev);
	char *owned = a->frees_body ? (char *)(uintptr_t)a->body : NULL;
	bool has_body = a->type && a->len && c->head.method != HTTP_HEAD;

	c->is_chunked_answer = false;
	say_head(c, a, a->status == 204 ? -1 : (int64_t)a->len);
	if (has_body && owned && evbuffer_add_reference(out, a->body, a->len, free_body, owned) == 0)
		owned = NULL;
	else if (has_body)
		(void)evbuffer_add(out, a->body, a->len);
	free(owned);
	conn_flush(c);
}

void http_stream_start(struct http_conn *c, const struct http_answer *a)
{
	c->is_chunked_answer = !c->head.is_1_0;
	if (c->head.is_1_0)
		c->closes = true; /* its end is the connection's */
	say_head(c, a, -1);
	c->state = CONN_STREAM;
}
