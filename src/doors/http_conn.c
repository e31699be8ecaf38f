/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/http_conn.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "doors/http_conn_priv.h"

#define IDLE_NS          (75 * NS_PER_SEC)
#define BODY_PATIENCE    3                    /* times that for a head */
#define BODY_BYTES_A_SEC ((uint64_t)64 << 10) /* and longer for long ones, at this pace */
#define WRITE_SECONDS    60                   /* without a byte taken; the whole of an answer: and longer, as above */
#define COUNT_STEP       ((size_t)64 << 10)   /* of a body in chunks: room is asked for ahead */
#define BUSY             "your requests, and answers that you have not read, take all the room that you may have now"
#define LINGER_NS        (2 * NS_PER_SEC)
#define LINGER_MAX       ((size_t)4 << 20)
#define READ_MAX         ((size_t)64 << 10)  /* held of what was not looked at yet */
#define OUTPUT_LOW       ((size_t)64 << 10)  /* ... and when more is welcome again */
#define OUTPUT_MAX       ((size_t)256 << 10) /* of a stream's parts that wait */

static void deadline(struct http_conn *c, uint64_t ns)
{
	struct timeval tv = { .tv_sec = (time_t)(ns / NS_PER_SEC), .tv_usec = (suseconds_t)(ns % NS_PER_SEC / 1000) };

	(void)evtimer_add(c->timer, &tv);
}

static void forget_request(struct http_conn *c)
{
	c->server->bodies -= c->counted;
	c->counted = 0;
	buf_done(&c->body);
	free(c->head_text);
	c->head_text = NULL;
	c->head = (struct http_head) { .method = HTTP_OTHER };
	c->route = NULL;
	c->watch = (struct http_watch) { .userdata = NULL };
	c->chunked = (struct http_chunked) { .state = 0 };
	c->is_full = false;
}

void conn_free(struct http_conn *c)
{
	struct http_server *s = c->server;
	struct http_watch watch = c->watch;
	struct http_conn **at = &s->conns;
	int fd = bufferevent_getfd(c->bev);

	while (*at && *at != c)
		at = &(*at)->next;
	if (*at)
		*at = c->next;
	s->n_conns[c->is_unix]--;
	forget_request(c);
	event_free(c->timer);
	bufferevent_free(c->bev);
	(void)close(fd); /* epoll forgets it with that */
	free(c);
	if (watch.on_gone)
		watch.on_gone(watch.userdata);
}

/* Ready for a request. */
static void await(struct http_conn *c)
{
	forget_request(c);
	c->state = CONN_HEAD;
	c->scanned = 0;
	deadline(c, evbuffer_get_length(bufferevent_get_input(c->bev)) ? c->server->app.patience_ns : IDLE_NS);
	(void)bufferevent_enable(c->bev, EV_READ);
}

/*
 * The answer is out.  What the client still sends is taken and thrown away for a moment: closing at once would make the
 * kernel tear the connection down, and what we said with it.
 */
static void linger(struct http_conn *c)
{
	forget_request(c);
	c->state = CONN_LINGER;
	c->lingered = 0;
	(void)shutdown(bufferevent_getfd(c->bev), SHUT_WR);
	deadline(c, LINGER_NS);
	(void)bufferevent_enable(c->bev, EV_READ);
}

static void refuse(struct http_conn *c, int status, const char *why)
{
	c->closes = true;
	c->server->app.on_refuse(c->server->app.userdata, c, status, why);
}

/*
 * The client's end, told apart from its bytes: while its request is held nothing is read.  Edge-triggered, and of an
 * epoll of our own: the event loop's does not tell a reset to who waits for an end alone.
 */
void conn_on_ends(evutil_socket_t fd, short what, void *userdata)
{
	struct epoll_event ev;

	(void)what;
	(void)userdata;
	while (epoll_wait(fd, &ev, 1, 0) == 1) {
		struct http_conn *c = ev.data.ptr;

		c->is_shut = true;
		if (c->state == CONN_HELD || c->state == CONN_STREAM)
			conn_free(c);
	}
}

static void hand_over(struct http_conn *c)
{
	c->state = CONN_HELD;
	(void)evtimer_del(c->timer);
	(void)bufferevent_disable(c->bev, EV_READ);
	if (buf_add(&c->body, "", 0) < 0) {
		refuse(c, 503, "no memory");
		return;
	}
	c->server->app.on_request(c->server->app.userdata, c);
	if (c->is_shut && (c->state == CONN_HELD || c->state == CONN_STREAM))
		conn_free(c);
}

/* Room for a body, or for more of it. */
static bool count_body(struct http_conn *c, size_t len)
{
	if (!conn_has_room(c, len))
		return false;
	c->server->bodies += len;
	c->counted += len;
	return true;
}

static void begin_body(struct http_conn *c, int64_t max)
{
	uint64_t len = c->head.is_chunked ? (uint64_t)max : c->head.length;

	if (c->head.length > (uint64_t)max) {
		refuse(c, 413, "the body is too long");
		return;
	}
	if (!count_body(c, (size_t)c->head.length)) {
		refuse(c, 503, BUSY);
		return;
	}
	buf_init(&c->body, (size_t)max);
	c->state = CONN_BODY;
	deadline(c, BODY_PATIENCE * c->server->app.patience_ns + len * NS_PER_SEC / BODY_BYTES_A_SEC);
	if (c->head.expects_continue && (c->head.is_chunked || c->head.length))
		(void)evbuffer_add_printf(bufferevent_get_output(c->bev), "HTTP/1.1 100 Continue\r\n\r\n");
}

/* Return: whether there may be more to do with what has come */
static bool take_head(struct http_conn *c)
{
	struct evbuffer *in = bufferevent_get_input(c->bev);
	struct evbuffer_ptr from;
	struct evbuffer_ptr at;
	const char *why;
	int64_t max;
	size_t len;
	int status;

	if (evbuffer_get_length(in) == 0)
		return false;
	if (c->scanned == 0)
		deadline(c, c->server->app.patience_ns);
	(void)evbuffer_ptr_set(in, &from, c->scanned > 3 ? c->scanned - 3 : 0, EVBUFFER_PTR_SET);
	at = evbuffer_search(in, "\r\n\r\n", 4, &from);
	len = at.pos < 0 ? evbuffer_get_length(in) : (size_t)at.pos + 4;
	c->scanned = len;
	if (len > HTTP_HEAD_MAX) {
		refuse(c, 431, "request line and headers are too long");
		return false;
	}
	if (at.pos < 0)
		return false;
	c->head_text = malloc(len);
	if (!c->head_text) {
		conn_free(c);
		return false;
	}
	(void)evbuffer_remove(in, c->head_text, len);
	status = http_head_parse(c->head_text, len, &c->head, &why);
	if (status) {
		refuse(c, status, why);
		return false;
	}
	c->closes = !c->head.keeps_alive || c->server->is_stopping;
	c->state = CONN_JUDGED;
	max = c->server->app.on_head(c->server->app.userdata, c);
	if (max >= 0)
		begin_body(c, max);
	return c->state == CONN_BODY;
}

static void take_chunks(struct http_conn *c)
{
	struct evbuffer *in = bufferevent_get_input(c->bev);
	int r = 0;

	while (r == 0 && evbuffer_get_length(in)) {
		size_t n = evbuffer_get_contiguous_space(in);
		size_t used = 0;

		r = http_chunked_feed(&c->chunked, (const char *)evbuffer_pullup(in, (ev_ssize_t)n), n, &used,
				      &c->body);
		if (r >= 0 && c->body.len > c->counted && !count_body(c, c->body.len - c->counted + COUNT_STEP))
			r = -ENOMEM;
		if (r >= 0)
			(void)evbuffer_drain(in, used);
	}
	if (r > 0)
		hand_over(c);
	else if (r == -ENOMEM)
		refuse(c, 503, BUSY);
	else if (r < 0)
		refuse(c, r == -EFBIG ? 413 : 400, r == -EFBIG ? "the body is too long" : "malformed chunks");
}

static void take_body(struct http_conn *c)
{
	struct evbuffer *in = bufferevent_get_input(c->bev);

	if (c->head.is_chunked) {
		take_chunks(c);
		return;
	}
	while (c->body.len < c->head.length && evbuffer_get_length(in)) {
		size_t n = evbuffer_get_contiguous_space(in);

		if (n > c->head.length - c->body.len)
			n = (size_t)(c->head.length - c->body.len);
		if (buf_add(&c->body, evbuffer_pullup(in, (ev_ssize_t)n), n) < 0) {
			refuse(c, 503, "no memory");
			return;
		}
		(void)evbuffer_drain(in, n);
	}
	if (c->body.len == c->head.length)
		hand_over(c);
}

static void on_read(struct bufferevent *bev, void *userdata)
{
	struct http_conn *c = userdata;
	struct evbuffer *in = bufferevent_get_input(bev);
	size_t n = evbuffer_get_length(in);

	if (c->state == CONN_LINGER) {
		(void)evbuffer_drain(in, n);
		c->lingered += n;
		if (c->lingered > LINGER_MAX)
			conn_free(c);
		return;
	}
	if (c->state == CONN_HEAD && !take_head(c))
		return;
	if (c->state == CONN_BODY)
		take_body(c);
}

/* All that was to be said is said, or there is room for more of a stream. */
static void on_written(struct bufferevent *bev, void *userdata)
{
	struct http_conn *c = userdata;

	(void)bev;
	if (c->state == CONN_STREAM && c->is_full) {
		c->is_full = false;
		if (c->watch.on_drained)
			c->watch.on_drained(c->watch.userdata);
		return;
	}
	if (c->state != CONN_FLUSH || evbuffer_get_length(bufferevent_get_output(c->bev)))
		return;
	if (c->closes) {
		linger(c);
		return;
	}
	await(c);
	if (evbuffer_get_length(bufferevent_get_input(c->bev)))
		on_read(c->bev, c);
}

static void on_event(struct bufferevent *bev, short what, void *userdata)
{
	(void)bev;
	(void)what;
	conn_free(userdata); /* its end, an error, or it takes nothing for too long */
}

static void on_deadline(evutil_socket_t fd, short what, void *userdata)
{
	struct http_conn *c = userdata;
	bool has_begun = c->state == CONN_BODY || (c->state == CONN_HEAD && c->scanned);

	(void)fd;
	(void)what;
	if (has_begun)
		refuse(c, 408, "the request did not come in time");
	else
		conn_free(c);
}

/* All is said; what is in a bufferevent is written when the loop has its turn. */
void conn_flush(struct http_conn *c)
{
	uint64_t len = evbuffer_get_length(bufferevent_get_output(c->bev));

	c->state = CONN_FLUSH;
	c->watch = (struct http_watch) { .userdata = NULL };
	(void)bufferevent_disable(c->bev, EV_READ);
	deadline(c, WRITE_SECONDS * NS_PER_SEC + len * NS_PER_SEC / BODY_BYTES_A_SEC);
}

/* Did the client send more than one request, without waiting for the answer? */
bool conn_is_hasty(const struct http_conn *c)
{
	int n = 0;

	if (evbuffer_get_length(bufferevent_get_input(c->bev)))
		return true;
	return ioctl(bufferevent_getfd(c->bev), FIONREAD, &n) == 0 && n > 0;
}

void http_conn_watch(struct http_conn *c, const struct http_watch *w)
{
	c->watch = *w;
}

static struct http_conn *conn_new(struct http_server *s, int fd)
{
	struct timeval patience = { .tv_sec = WRITE_SECONDS };
	struct http_conn *c = calloc(1, sizeof(*c));
	struct epoll_event ends = { .events = EPOLLRDHUP | EPOLLET, .data.ptr = c };

	if (!c)
		return NULL;
	c->server = s;
	c->bev = bufferevent_socket_new(s->base, fd, 0);
	c->timer = evtimer_new(s->base, on_deadline, c);
	if (!c->bev || !c->timer || epoll_ctl(s->ends_fd, EPOLL_CTL_ADD, fd, &ends) < 0) {
		if (c->bev)
			bufferevent_free(c->bev);
		if (c->timer)
			event_free(c->timer);
		free(c);
		return NULL;
	}
	bufferevent_setcb(c->bev, on_read, on_written, on_event, c);
	bufferevent_setwatermark(c->bev, EV_READ, 0, READ_MAX);
	bufferevent_setwatermark(c->bev, EV_WRITE, OUTPUT_LOW, 0);
	(void)bufferevent_set_timeouts(c->bev, NULL, &patience);
	(void)bufferevent_enable(c->bev, EV_WRITE);
	return c;
}

void conn_accept(struct http_server *s, int fd, bool is_unix)
{
	struct ucred peer = { .uid = 0 };
	socklen_t len = sizeof(peer);
	struct http_conn *c = NULL;
	int one = 1;

	if (s->is_stopping || !conn_make_room(s, is_unix)) {
		static const char busy[] = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n"
					   "Content-Length: 0\r\nConnection: close\r\n\r\n";

		(void)send(fd, busy, sizeof(busy) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
	} else if (!is_unix || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0) {
		c = conn_new(s, fd);
	}
	if (!c) {
		(void)close(fd);
		return;
	}
	if (!is_unix)
		(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	c->is_unix = is_unix;
	c->uid = peer.uid;
	c->next = s->conns;
	s->conns = c;
	s->n_conns[is_unix]++;
	await(c);
	deadline(c, c->server->app.patience_ns);
}

bool http_stream_add(struct http_conn *c, const void *data, size_t len)
{
	struct evbuffer *out = bufferevent_get_output(c->bev);

	if (len && c->head.method != HTTP_HEAD) {
		if (c->is_chunked_answer)
			(void)evbuffer_add_printf(out, "%zx\r\n", len);
		(void)evbuffer_add(out, data, len);
		if (c->is_chunked_answer)
			(void)evbuffer_add(out, "\r\n", 2);
	}
	c->is_full = evbuffer_get_length(out) > OUTPUT_MAX;
	return !c->is_full;
}

void http_stream_end(struct http_conn *c)
{
	if (c->is_chunked_answer && c->head.method != HTTP_HEAD)
		(void)evbuffer_add(bufferevent_get_output(c->bev), "0\r\n\r\n", 5);
	conn_flush(c);
	if (!evbuffer_get_length(bufferevent_get_output(c->bev)))
		bufferevent_trigger(c->bev, EV_WRITE, BEV_OPT_DEFER_CALLBACKS);
}
