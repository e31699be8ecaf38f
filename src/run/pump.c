/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of a run: the script's pipes on one side, the run's channel on the other.
 *
 * Nothing here blocks and nothing grows: each pipe has one message's worth of room, and is read only when the channel has
 * taken the last one.  A reader that stops reading so stops its own script, and nobody else's.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "run/work.h"

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

int pump_start(struct work *w)
{
	int r;

	for (int i = 0; i < 3; i++)
		fd_close(&w->pipes[i]);
	w->is_piped = true;
	r = watch_set(w->s, &w->watch[WATCH_STDOUT], w->out[0].fd, EPOLLIN);
	if (r == 0)
		r = watch_set(w->s, &w->watch[WATCH_STDERR], w->out[1].fd, EPOLLIN);
	return r;
}

static void resume(struct work *w, struct pump *p, enum watch_kind kind);

static void resume_all(struct work *w)
{
	w->is_channel_full = false;
	resume(w, &w->helper, WATCH_HELPER_OUT);
	resume(w, &w->out[0], WATCH_STDOUT);
	resume(w, &w->out[1], WATCH_STDERR);
}

/* Nobody takes the bytes any more: what waited for room is let go, and the pipes are read to their ends. */
static void lose_channel(struct work *w)
{
	w->is_channel_gone = true;
	pump_watch(w);
	resume_all(w);
}

int pump_send(struct work *w, const void *message, size_t len)
{
	ssize_t n;

	if (w->is_channel_gone)
		return 0; /* nobody listens: let it go */
	do {
		n = send(w->channel, message, len, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n >= 0)
		return 0;
	if (errno == EAGAIN)
		return -EAGAIN;
	lose_channel(w);
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

/* Return: whether the message in @p is out of the way. */
static bool hand_on(struct work *w, struct pump *p)
{
	if (p->held == 0)
		return true;
	p->message.head = (struct wire_head){ .type = p->type, .stream = p->stream };
	if (pump_send(w, &p->message, sizeof(p->message.head) + p->held) == -EAGAIN) {
		w->is_channel_full = true;
		pump_watch(w);
		return false;
	}
	p->held = 0;
	return true;
}

void pump_output(struct work *w, struct pump *p, struct watch *watch)
{
	/* a few rounds, then the others have their turn */
	for (int round = 0; round < 4; round++) {
		ssize_t n;

		if (p->fd < 0)
			return;
		if (!hand_on(w, p)) {
			watch_clear(w->s, watch);
			return;
		}
		n = read(p->fd, p->message.data, sizeof(p->message.data));
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0) {
			watch_clear(w->s, watch);
			fd_close(&p->fd);
			work_event(w, EVENT_DRAINED);
			return;
		}
		p->held = (size_t)n;
		p->bytes += (uint64_t)n;
		(void)hand_on(w, p);
		if (p->is_counted && w->out[0].bytes + w->out[1].bytes > w->job.output_max) {
			work_event(w, EVENT_OUTPUT);
			return;
		}
	}
}

static void resume(struct work *w, struct pump *p, enum watch_kind kind)
{
	struct watch *watch = &w->watch[kind];

	if (w->is_channel_full || !hand_on(w, p) || p->fd < 0 || watch->fd >= 0)
		return;
	if (watch_set(w->s, watch, p->fd, EPOLLIN) < 0)
		fd_close(&p->fd);
}

static void take_input(struct work *w)
{
	struct wire_head head;
	ssize_t n;

	n = fd_take(w->channel, w->input_data, sizeof(w->input_data), false);
	if (n == -EAGAIN)
		return;
	if (n < (ssize_t)sizeof(head)) { /* shut down, or not our language */
		w->is_shut = true;
		work_event(w, EVENT_CANCEL);
		return;
	}
	memcpy(&head, w->input_data, sizeof(head));
	if (head.type != WIRE_INPUT)
		return;
	w->input_sent = sizeof(head);
	w->input_held = (size_t)n - sizeof(head);
	if (w->input_held == 0) { /* the end of standard input */
		watch_clear(w->s, &w->watch[WATCH_STDIN]);
		fd_close(&w->input);
	} else {
		pump_input(w);
	}
}

void pump_channel(struct work *w, uint32_t events)
{
	if (events & EPOLLOUT)
		resume_all(w);
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
	while (w->input_held > 0) {
		ssize_t n = write(w->input, w->input_data + w->input_sent, w->input_held);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			if (watch_set(w->s, &w->watch[WATCH_STDIN], w->input, EPOLLOUT) == 0)
				return;
		}
		if (n < 0) { /* the script closed it: what is left is nobody's */
			watch_clear(w->s, &w->watch[WATCH_STDIN]);
			fd_close(&w->input);
			w->input_held = 0;
			break;
		}
		w->input_sent += (size_t)n;
		w->input_held -= (size_t)n;
	}
	watch_clear(w->s, &w->watch[WATCH_STDIN]);
	pump_watch(w);
}

bool pump_is_dry(const struct work *w)
{
	bool is_held = w->out[0].held || w->out[1].held || w->helper.held;

	return w->out[0].fd < 0 && w->out[1].fd < 0 && w->helper.fd < 0 && (!is_held || w->is_channel_gone);
}

void pump_close(struct work *w)
{
	static const enum watch_kind kinds[] = { WATCH_STDIN, WATCH_STDOUT, WATCH_STDERR, WATCH_HELPER_OUT };

	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		watch_clear(w->s, &w->watch[kinds[i]]);
	fd_close(&w->out[0].fd);
	fd_close(&w->out[1].fd);
	fd_close(&w->helper.fd);
	fd_close(&w->input);
	for (int i = 0; i < 3; i++)
		fd_close(&w->pipes[i]);
}
