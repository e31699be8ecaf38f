/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Model Context Protocol on standard input and output: a message is a line.
 *
 * A client that sends and does not read is not listened to until it reads: nothing here grows without a bound, and
 * nothing waits.
 */
#include "doors/mcp_stdio.h"

#include <errno.h>
#include <event2/event.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "job/request.h"

#define LINE_MAX_BYTES (JOB_REQUEST_MAX + MCP_ENVELOPE_MAX)
#define OUT_MAX        ((size_t)1 << 30)
#define OUT_ENOUGH     ((size_t)1 << 20) /* unsent bytes from which on nothing more is read */
#define CALLS_MAX      256
#define CHUNK          65536
#define PIPE_ROOM      4096             /* what a pipe takes whenever it takes anything */
#define FLUSH_NS       (1 * NS_PER_SEC) /* what a reader gets for the last replies */

struct session {
	struct mcp_place place;
	const struct mcp_terms *terms;
	int in;
	int out;
	bool is_socket;   /* out: until a write says no */
	bool is_deaf;     /* the reader does not read: we do not either */
	bool is_writing;  /* writable is added */
	bool is_skipping; /* the rest of a line that was too long */
	struct event *readable;
	struct event *writable;
	struct event *deaf; /* while nothing is read: has its writer gone? */
	struct event *signals[2];
	struct buf line;
	struct buf unsent;
	size_t sent; /* of unsent */
	struct mcp_call *calls[CALLS_MAX];
	size_t n_calls;
};

static void end(struct session *s)
{
	(void)event_base_loopbreak(s->place.base);
}

/* Whatever @out is: it must not wait, and its flags are not ours alone. */
static ssize_t write_some(struct session *s, const char *data, size_t len)
{
	struct pollfd p = { .fd = s->out, .events = POLLOUT };
	ssize_t n;

	if (s->is_socket) {
		n = send(s->out, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n >= 0 || errno != ENOTSOCK)
			return n < 0 ? -errno : n;
		s->is_socket = false;
	}
	if (poll(&p, 1, 0) <= 0)
		return -EAGAIN;
	n = write(s->out, data, len < PIPE_ROOM ? len : PIPE_ROOM);
	return n < 0 ? -errno : n;
}

/* Return: 0, or -errno: nobody reads any more */
static int flush(struct session *s)
{
	while (s->sent < s->unsent.len) {
		ssize_t n = write_some(s, s->unsent.data + s->sent, s->unsent.len - s->sent);

		if (n == -EINTR)
			continue;
		if (n == -EAGAIN)
			return 0;
		if (n < 0)
			return (int)n;
		s->sent += (size_t)n;
	}
	buf_done(&s->unsent);
	s->sent = 0;
	return 0;
}

static size_t unsent(const struct session *s)
{
	return s->unsent.len - s->sent;
}

/* Listen and write as far as the reader reads. */
static void settle(struct session *s)
{
	static const struct timeval second = { .tv_sec = 1 };
	bool is_deaf = unsent(s) > OUT_ENOUGH;
	bool is_writing = unsent(s) > 0;

	if (is_deaf != s->is_deaf) {
		(void)(is_deaf ? event_del(s->readable) : event_add(s->readable, NULL));
		(void)(is_deaf ? event_add(s->deaf, &second) : event_del(s->deaf));
	}
	if (is_writing != s->is_writing)
		(void)(is_writing ? event_add(s->writable, NULL) : event_del(s->writable));
	s->is_deaf = is_deaf;
	s->is_writing = is_writing;
}

static void say(struct session *s, const char *json, size_t len)
{
	int r = buf_add(&s->unsent, json, len);

	if (r == 0)
		r = buf_add(&s->unsent, "\n", 1);
	if (r == 0 && !s->is_writing)
		r = flush(s);
	if (r < 0)
		end(s);
	else
		settle(s);
}

static void forget(struct session *s, const struct mcp_call *call)
{
	for (size_t i = 0; i < s->n_calls; i++) {
		if (s->calls[i] == call)
			s->calls[i--] = s->calls[--s->n_calls];
	}
}

static struct mcp_call *find(const struct session *s, const char *id)
{
	for (size_t i = 0; i < s->n_calls; i++) {
		if (strcmp(mcp_call_id(s->calls[i]), id) == 0)
			return s->calls[i];
	}
	return NULL;
}

static void on_message(void *userdata, struct mcp_call *call, const char *json, size_t len, bool is_last)
{
	struct session *s = userdata;

	if (is_last)
		forget(s, call);
	if (len)
		say(s, json, len);
}

static void say_error(struct session *s, const char *id, int code, const char *why)
{
	char *text = mcp_error_write(id, code, why);

	if (text)
		say(s, text, strlen(text));
	free(text);
}

static void on_call(struct session *s, struct mcp_message *m)
{
	struct mcp_listener to = { .userdata = s, .on_message = on_message };
	struct mcp_call *call;

	if (find(s, m->id))
		say_error(s, m->id, MCP_INVALID_REQUEST, "this id is that of a call under way");
	else if (s->n_calls == CALLS_MAX)
		say_error(s, m->id, MCP_INTERNAL_ERROR, "too many calls are under way");
	else if (mcp_call_start(&s->place, m, &to, &call) < 0)
		say_error(s, m->id, MCP_INTERNAL_ERROR, "out of memory");
	else
		s->calls[s->n_calls++] = call;
}

static void on_line(struct session *s, const char *line, size_t len)
{
	struct err ignored = { .kind = ERR_NONE };
	struct mcp_message m;
	struct mcp_call *call;

	if (strspn(line, " \t\r") == len) /* which stops at a NUL: then it is a message, and a bad one */
		return;
	if (mcp_read(s->terms, NULL, line, len, &m) < 0) {
		say_error(s, NULL, MCP_INTERNAL_ERROR, "out of memory");
		return;
	}
	if (m.is_serious && !s->place.server)
		(void)runner_own_warm(s->place.own, &ignored); /* a call will say what is wrong */
	switch (m.what) {
	case MCP_NOTHING:
		break;
	case MCP_ANSWERED:
		say(s, m.reply, m.reply_len);
		break;
	case MCP_CALL:
		on_call(s, &m);
		break;
	case MCP_CANCEL:
		call = find(s, m.id);
		if (call) {
			forget(s, call);
			mcp_call_drop(call);
		}
		break;
	}
	mcp_message_done(&m);
}

static void on_too_long(struct session *s)
{
	s->is_skipping = true;
	buf_done(&s->line);
	say_error(s, NULL, MCP_INVALID_REQUEST, "the message is too long");
}

/* Bytes as they came: lines end in them, or do not yet. */
static void take(struct session *s, const char *data, size_t len)
{
	while (len) {
		const char *newline = memchr(data, '\n', len);
		size_t n = newline ? (size_t)(newline - data) : len;

		if (!s->is_skipping && buf_add(&s->line, data, n) < 0)
			on_too_long(s);
		if (newline && !s->is_skipping && s->line.len)
			on_line(s, s->line.data, s->line.len);
		if (newline) {
			s->is_skipping = false;
			buf_done(&s->line);
			n++;
		}
		data += n;
		len -= n;
	}
}

static void on_readable(evutil_socket_t fd, short what, void *userdata)
{
	struct session *s = userdata;
	static char data[CHUNK];
	ssize_t n = read(s->in, data, sizeof(data));

	(void)fd;
	(void)what;
	if (n > 0)
		take(s, data, (size_t)n);
	else if (n == 0 || (errno != EINTR && errno != EAGAIN))
		end(s);
}

static void on_writable(evutil_socket_t fd, short what, void *userdata)
{
	struct session *s = userdata;

	(void)fd;
	(void)what;
	if (flush(s) < 0)
		end(s);
	else
		settle(s);
}

/* The end of what we do not read is told apart from its bytes. */
static void on_deaf(evutil_socket_t fd, short what, void *userdata)
{
	struct session *s = userdata;
	struct pollfd p = { .fd = s->in, .events = POLLRDHUP };

	(void)fd;
	(void)what;
	if (poll(&p, 1, 0) > 0 && p.revents & (POLLRDHUP | POLLHUP | POLLERR))
		end(s);
}

static void on_signal(evutil_socket_t sig, short what, void *userdata)
{
	(void)sig;
	(void)what;
	end(userdata);
}

static int open_events(struct session *s)
{
	struct event_base *base = s->place.base;

	s->readable = event_new(base, s->in, EV_READ | EV_PERSIST, on_readable, s);
	s->writable = event_new(base, s->out, EV_WRITE | EV_PERSIST, on_writable, s);
	s->deaf = event_new(base, -1, EV_PERSIST, on_deaf, s);
	s->signals[0] = evsignal_new(base, SIGTERM, on_signal, s);
	s->signals[1] = evsignal_new(base, SIGINT, on_signal, s);
	if (!s->readable || !s->writable || !s->deaf || !s->signals[0] || !s->signals[1] ||
	    event_add(s->readable, NULL) < 0 || event_add(s->signals[0], NULL) < 0 ||
	    event_add(s->signals[1], NULL) < 0)
		return -ENOMEM;
	return 0;
}

static void close_events(struct session *s)
{
	struct event *all[] = { s->readable, s->writable, s->deaf, s->signals[0], s->signals[1] };

	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		if (all[i])
			event_free(all[i]);
	}
}

/* What was answered already is for a reader that still reads. */
static void say_the_last(struct session *s)
{
	uint64_t until = clock_now_ns() + FLUSH_NS;

	while (unsent(s) && flush(s) == 0 && unsent(s) && clock_now_ns() < until) {
		struct pollfd p = { .fd = s->out, .events = POLLOUT };

		(void)poll(&p, 1, 50);
	}
}

int mcp_stdio(const struct mcp_place *place, const struct mcp_terms *terms, int in, int out, struct err *e)
{
	struct session *s = calloc(1, sizeof(*s));
	int r = s ? 0 : -ENOMEM;

	if (s) {
		s->place = *place;
		s->terms = terms;
		s->in = in;
		s->out = out;
		s->is_socket = true;
		buf_init(&s->line, LINE_MAX_BYTES);
		buf_init(&s->unsent, OUT_MAX);
		r = open_events(s);
	}
	if (r == 0 && event_base_dispatch(place->base) < 0)
		r = -EIO;
	if (s) {
		while (s->n_calls)
			mcp_call_drop(s->calls[--s->n_calls]);
		say_the_last(s);
		close_events(s);
		buf_done(&s->line);
		buf_done(&s->unsent);
		free(s);
	}
	return r < 0 ? err_set(e, ERR_HOST, -r, "serve") : 0;
}
