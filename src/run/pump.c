/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of a run: the script's pipes on one side, the run's channel on the other.
 *
 * Nothing here blocks and nothing grows: each pipe has one message's worth of room, and is read only when the channel has
 * taken the last one.  A reader that stops reading so stops its own script, and nobody else's.
 *
 * That room is there only while it is needed: what passes at once goes through one buffer that all runs share.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "run/look.h"
#include "run/work.h"

static struct {
	struct wire_head head;
	char data[WIRE_DATA_MAX];
} room;

int pump_open(struct work *w)
{
	for (int i = 0; i < 3; i++) {
		int pair[2];
		int ours = i == 0 ? 1 : 0;
		int r;

		if (pipe2(pair, O_CLOEXEC) < 0)
			return -errno;
		w->pipes[i] = pair[1 - ours];
		if (i == 0)
			w->input = pair[ours];
		else
			w->out[i - 1].fd = pair[ours];
		if (fcntl(pair[ours], F_SETFL, O_NONBLOCK) < 0)
			return -errno;
		r = sandbox_pipe_owner(&w->s->outside, &w->box, w->pipes[i]);
		if (r < 0)
			return r;
	}
	return 0;
}

static const enum watch_kind kinds[] = { WATCH_STDOUT, WATCH_STDERR };

void pump_listen(struct work *w)
{
	struct err e = { 0 };
	int r = 0;

	w->listen_ns = 0;
	for (int i = 0; i < 2 && r == 0; i++)
		r = w->out[i].fd < 0 ? 0 : watch_set(w->s, &w->watch[kinds[i]], w->out[i].fd, EPOLLIN);
	if (r == 0)
		return;
	(void)err_set(&e, ERR_HOST, -r, "watch the script's output");
	work_fail(w, &e);
}

static void close_input(struct work *w)
{
	watch_clear(w->s, &w->watch[WATCH_STDIN]);
	fd_close(&w->input);
	free(w->input_kept);
	w->input_kept = NULL;
	w->input_held = 0;
}

void pump_start(struct work *w, uint64_t patience_ns)
{
	for (int i = 0; i < 3; i++)
		fd_close(&w->pipes[i]);
	if (w->job.has_no_input)
		close_input(w);
	w->is_piped = true;
	w->listen_ns = clock_now_ns() + patience_ns;
	if (patience_ns)
		due_by(w->s, w->listen_ns);
	else
		pump_listen(w);
}

static void resume(struct work *w, struct pump *p, enum watch_kind kind);

void pump_resume(struct work *w)
{
	resume(w, &w->helper, WATCH_HELPER_OUT);
	if (!w->is_piped)
		return;
	resume(w, &w->out[0], WATCH_STDOUT);
	resume(w, &w->out[1], WATCH_STDERR);
}

/* Nobody takes the bytes any more: what waited for room is let go, and the pipes are read to their ends. */
static void lose_channel(struct work *w)
{
	w->is_channel_gone = true;
	w->is_channel_full = false;
	pump_watch(w);
	pump_resume(w);
}

/* At a script's end: what it wrote and its outcome are one message, and wake their reader once. */
static struct {
	struct work *of; /* NULL: nobody's */
	size_t len;      /* of the room; 0: nothing is held */
	union {
		struct wire_head head;
		char room[4096];
	};
} held;

void pump_hold(struct work *w)
{
	if (held.of)
		pump_release(held.of);
	held.of = w->out[0].bytes + w->out[1].bytes == 0 && !w->is_channel_full ? w : NULL; /* so there is room for all */
	held.len = 0;
}

static bool hold(const void *message, size_t len)
{
	struct wire_part part = { .len = (uint32_t)len };

	if (sizeof(held.head) + sizeof(part) + WIRE_ALIGNED(len) > sizeof(held.room) - held.len)
		return false;
	if (held.len == 0) {
		held.head = (struct wire_head){ .type = WIRE_LAST };
		held.len = sizeof(held.head);
	}
	memcpy(held.room + held.len, &part, sizeof(part));
	memcpy(held.room + held.len + sizeof(part), message, len);
	held.len += sizeof(part) + WIRE_ALIGNED(len);
	return true;
}

void pump_release(struct work *w)
{
	const struct wire_head *message;
	size_t at = 0;
	ssize_t n;

	if (held.of != w)
		return;
	held.of = NULL;
	while (held.len > 0 && (n = wire_next(held.room, held.len, &at, &message)) > 0)
		(void)!pump_send(w, message, (size_t)n);
}

int pump_send_last(struct work *w, const void *message, size_t len)
{
	size_t before = held.len;

	if (held.of == w && before > 0 && hold(message, len)) {
		held.of = NULL;
		if (pump_send(w, held.room, held.len) == 0)
			return 0;
		held.of = w;
		held.len = before;
	}
	pump_release(w);
	return pump_send(w, message, len);
}

int pump_send(struct work *w, const void *message, size_t len)
{
	ssize_t n;

	if (held.of == w && hold(message, len))
		return 0;
	pump_release(w);
	if (w->is_channel_gone)
		return 0; /* nobody listens: let it go */
	do {
		n = send(w->channel, message, len, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n >= 0)
		return 0;
	if (errno == EAGAIN)
		return -EAGAIN;
	/* the caller is gone: that ends the run, and epoll is about to say so; whatever else it was, it says so then, too */
	(void)shutdown(w->channel, SHUT_RDWR);
	return 0;
}

void pump_watch(struct work *w)
{
	uint32_t events = 0;

	if (!w->is_shut)
		events |= EPOLLRDHUP;
	if (w->is_channel_full)
		events |= EPOLLOUT;
	if (w->input >= 0 && w->input_held == 0 && !w->is_shut)
		events |= EPOLLIN;
	if (w->is_channel_gone)
		watch_clear(w->s, &w->watch[WATCH_CHANNEL]);
	else if (watch_set(w->s, &w->watch[WATCH_CHANNEL], w->channel, events) < 0)
		lose_channel(w);
}

static void wait_for_room(struct work *w)
{
	w->is_channel_full = true;
	pump_watch(w);
}

/* Return: whether the message that @p has kept is out of the way. */
static bool hand_on(struct work *w, struct pump *p)
{
	if (p->held == 0)
		return true;
	if (pump_send(w, p->kept, p->held) == -EAGAIN) {
		wait_for_room(w);
		return false;
	}
	free(p->kept);
	p->kept = NULL;
	p->held = 0;
	return true;
}

/* Send @len bytes that are in the shared room, or keep them. */
static void pass(struct work *w, struct pump *p, size_t len)
{
	struct err e = { 0 };

	room.head = (struct wire_head){ .type = p->type, .stream = p->stream };
	len += sizeof(room.head);
	if (pump_send(w, &room, len) == 0)
		return;
	p->kept = malloc(len);
	if (!p->kept) {
		(void)err_set(&e, ERR_HOST, ENOMEM, "keep the script's output");
		work_fail(w, &e);
		return;
	}
	memcpy(p->kept, &room, len);
	p->held = len;
	wait_for_room(w);
}

/* Too much was written and its writers are not all dead yet: they wait at a full pipe, what is in it is read at the end. */
static bool is_flooded(const struct work *w, const struct pump *p)
{
	return p->is_counted && w->outcome.cause == WIRE_CAUSE_OUTPUT && w->box.init != 0;
}

/* One message's worth.  Return: whether there may be more at once */
static bool move(struct work *w, struct pump *p, struct watch *watch)
{
	ssize_t n;

	if (p->fd < 0)
		return false;
	if (is_flooded(w, p) || !hand_on(w, p)) {
		watch_clear(w->s, watch);
		return false;
	}
	n = read(p->fd, room.data, sizeof(room.data));
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n <= 0) {
		watch_clear(w->s, watch);
		fd_close(&p->fd);
		work_event(w, EVENT_DRAINED);
		return false;
	}
	p->bytes += (uint64_t)n;
	pass(w, p, (size_t)n);
	if (p->is_counted && w->out[0].bytes + w->out[1].bytes > w->job.output_max) {
		work_event(w, EVENT_OUTPUT);
		return false;
	}
	return true;
}

void pump_output(struct work *w, struct pump *p, struct watch *watch)
{
	/* a few rounds, then the others have their turn */
	for (int round = 0; round < 4 && move(w, p, watch); round++)
		;
}

bool pump_rest(struct work *w)
{
	for (int i = 0; i < 2; i++) {
		enum work_state state = w->state;
		struct watch *watch = &w->watch[kinds[i]];

		while (move(w, &w->out[i], watch))
			;
		if (w->state != state || w->out[i].held)
			return false;
		watch_clear(w->s, watch);
		fd_close(&w->out[i].fd);
	}
	w->listen_ns = 0;
	return true;
}

static void resume(struct work *w, struct pump *p, enum watch_kind kind)
{
	struct watch *watch = &w->watch[kind];

	if (w->is_channel_full || is_flooded(w, p) || !hand_on(w, p) || p->fd < 0 || watch->fd >= 0)
		return;
	if (watch_set(w->s, watch, p->fd, EPOLLIN) < 0)
		fd_close(&p->fd);
}

/* Return: how many of @len bytes the script has taken now, or -errno: it will take none any more */
static ssize_t offer(struct work *w, const char *data, size_t len)
{
	size_t sent = 0;

	while (sent < len) {
		ssize_t n = write(w->input, data + sent, len - sent);

		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0 && errno != EINTR)
			return -errno;
		sent += n > 0 ? (size_t)n : 0;
	}
	return (ssize_t)sent;
}

static void keep_input(struct work *w, const char *data, size_t len)
{
	struct err e = { 0 };

	w->input_kept = malloc(len);
	if (!w->input_kept || watch_set(w->s, &w->watch[WATCH_STDIN], w->input, EPOLLOUT) < 0) {
		(void)err_set(&e, ERR_HOST, ENOMEM, "keep the script's input");
		work_fail(w, &e);
		return;
	}
	memcpy(w->input_kept, data, len);
	w->input_held = len;
	w->input_sent = 0;
}

static void take_input(struct work *w)
{
	ssize_t n = fd_take(w->channel, &room, sizeof(room), false);
	size_t len;

	if (n == -EAGAIN)
		return;
	if (n < (ssize_t)sizeof(room.head)) { /* shut down, or not our language */
		w->is_shut = true;
		work_event(w, EVENT_CANCEL);
		return;
	}
	if (room.head.type != WIRE_INPUT)
		return;
	len = (size_t)n - sizeof(room.head);
	n = offer(w, room.data, len);
	if (len == 0 || n < 0) /* the end of standard input; or the script closed it: what is left is nobody's */
		close_input(w);
	else if ((size_t)n < len)
		keep_input(w, room.data + n, len - (size_t)n);
}

void pump_channel(struct work *w, uint32_t events)
{
	if (events & EPOLLOUT) {
		w->is_channel_full = false;
		pump_resume(w);
	}
	if (events & (EPOLLHUP | EPOLLERR))
		lose_channel(w);
	if (events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)) {
		w->is_shut = true;
		work_event(w, EVENT_CANCEL);
	}
	if ((events & EPOLLIN) && !w->is_shut && w->input >= 0 && w->input_held == 0)
		take_input(w);
	pump_watch(w);
}

void pump_input(struct work *w)
{
	ssize_t n = offer(w, w->input_kept + w->input_sent, w->input_held);

	if (n < 0) {
		close_input(w);
	} else {
		w->input_sent += (size_t)n;
		w->input_held -= (size_t)n;
		if (w->input_held > 0)
			return;
		watch_clear(w->s, &w->watch[WATCH_STDIN]);
		free(w->input_kept);
		w->input_kept = NULL;
	}
	pump_watch(w);
}

bool pump_is_dry(const struct work *w)
{
	bool is_held = w->out[0].held || w->out[1].held || w->helper.held;

	return w->out[0].fd < 0 && w->out[1].fd < 0 && w->helper.fd < 0 && (!is_held || w->is_channel_gone);
}

void pump_close(struct work *w)
{
	static const enum watch_kind all[] = { WATCH_STDIN, WATCH_STDOUT, WATCH_STDERR, WATCH_HELPER_OUT };

	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		watch_clear(w->s, &w->watch[all[i]]);
	fd_close(&w->out[0].fd);
	fd_close(&w->out[1].fd);
	fd_close(&w->helper.fd);
	fd_close(&w->input);
	for (int i = 0; i < 3; i++)
		fd_close(&w->pipes[i]);
	free(w->out[0].kept);
	free(w->out[1].kept);
	free(w->helper.kept);
	free(w->input_kept);
}
