/* SPDX-License-Identifier: Apache-2.0 */
/* A run's birth and end inside the supervisor, and what it listens to. */
#include "run/work.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/fd.h"
#include "run/look.h"

int watch_set(struct supervise *s, struct watch *w, int fd, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = w };

	if (w->fd == fd && w->events == events)
		return 0;
	if (epoll_ctl(s->epoll, w->fd == fd ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &ev) < 0)
		return -errno;
	w->fd = fd;
	w->events = events;
	return 0;
}

void watch_clear(struct supervise *s, struct watch *w)
{
	if (w->fd >= 0)
		(void)epoll_ctl(s->epoll, EPOLL_CTL_DEL, w->fd, NULL);
	w->fd = -1;
}

static void answer(struct work *w)
{
	look_final(w);
	w->outcome.output_bytes[0] = w->out[0].bytes;
	w->outcome.output_bytes[1] = w->out[1].bytes;
	w->outcome.head = (struct wire_head){ .type = WIRE_OUTCOME };
	if (pump_send(w, &w->outcome, sizeof(w->outcome)) == -EAGAIN) {
		w->is_channel_full = true;
		pump_watch(w);
		return;
	}
	w->is_done = true;
}

void work_finish(struct work *w)
{
	if (w->is_done || w->state != WORK_ENDING || w->child.pidfd >= 0 || w->box.init != 0)
		return;
	for (int i = 0; i < 2 && !w->is_piped; i++)
		fd_close(&w->out[i].fd);
	if (!w->is_channel_full && pump_is_dry(w))
		answer(w);
	else if (w->is_channel_gone && pump_is_dry(w))
		w->is_done = true;
}

static void unmap(const char **bundle, size_t len)
{
	if (*bundle)
		(void)munmap((void *)(uintptr_t)*bundle, len);
	*bundle = NULL;
}

static void work_free(struct work *w)
{
	struct supervise *s = w->s;

	for (int i = 0; i < WATCH_MAX; i++)
		watch_clear(s, &w->watch[i]);
	pump_close(w);
	if (w->child.pidfd >= 0) {
		siginfo_t info;
		struct rusage usage;

		sandbox_kill(&w->box);
		while (sandbox_reap(&w->child, &info, &usage) == 0)
			(void)usleep(1000);
	}
	if (w->has_box)
		sandbox_destroy(&s->outside, &w->box);
	fd_close(&w->channel);
	fd_close(&w->clock);
	fd_close(&w->look);
	fd_close(&w->script);
	unmap(&w->bundle, w->bundle_len);
	unmap(&w->screen, w->screen_len);
	free(w);
}

void supervise_reap(struct supervise *s)
{
	for (unsigned i = 0; i < SANDBOX_SLOTS && s->n_works > 0; i++) {
		if (!s->works[i] || !s->works[i]->is_done)
			continue;
		work_free(s->works[i]);
		s->works[i] = NULL;
		s->n_works--;
	}
}

void supervise_end(struct supervise *s)
{
	for (unsigned i = 0; i < SANDBOX_SLOTS; i++) {
		if (s->works[i])
			s->works[i]->is_done = true;
	}
	supervise_reap(s);
}

static struct work *work_new(struct supervise *s, const struct wire_job *j, bool is_probe)
{
	struct work *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->s = s;
	w->job = *j;
	w->is_probe = is_probe;
	w->box = (struct sandbox)SANDBOX_EMPTY;
	w->child = (struct sandbox_child)SANDBOX_CHILD_EMPTY;
	w->channel = w->input = w->script = w->clock = w->look = w->helper.fd = -1;
	for (int i = 0; i < 3; i++)
		w->pipes[i] = -1;
	for (int i = 0; i < 2; i++) { /* member by member: the buffers behind them need not be touched yet */
		w->out[i].fd = -1;
		w->out[i].type = WIRE_OUTPUT;
		w->out[i].stream = (uint32_t)i + 1;
		w->out[i].is_counted = true;
	}
	for (int i = 0; i < WATCH_MAX; i++)
		w->watch[i] = (struct watch){ .kind = (enum watch_kind)i, .work = w, .fd = -1 };
	return w;
}

/* The job's bodies: sealed, so that their sender can't change them while a sandbox reads them. */
static int take_bodies(struct work *w, int *fds, size_t n_fds, struct err *e)
{
	int r;

	if (n_fds != (w->is_probe ? 1u : w->job.is_screened ? 4u : 2u))
		return err_set(e, ERR_BUG, 0, "a job with %zu descriptors", n_fds);
	if (n_fds < 2)
		return 0;
	r = fd_map_sealed(fds[1], &w->bundle, &w->bundle_len);
	if (r == 0 && w->job.is_screened)
		r = fd_map_sealed(fds[2], &w->screen, &w->screen_len);
	if (r < 0)
		return err_set(e, ERR_BUG, -r, "the job's bodies");
	if (w->job.is_screened)
		w->script = take_fd(&fds[3]);
	return 0;
}

static int work_start(struct work *w, unsigned slot, struct err *e)
{
	struct supervise *s = w->s;
	int r;

	if (w->job.environment >= (uint32_t)s->outside.home->n_envs)
		return err_set(e, ERR_BUG, 0, "environment %u of %d", w->job.environment, s->outside.home->n_envs);
	w->clock = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	w->look = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (w->clock < 0 || w->look < 0)
		return err_set(e, ERR_HOST, errno, "make a timer");
	r = sandbox_create(&s->outside, slot, w->job.environment, &w->job.spec, &w->box, e);
	if (r < 0)
		return r;
	w->has_box = true;
	r = watch_set(s, &w->watch[WATCH_INIT_SOCK], w->box.init_sock, EPOLLIN);
	if (r == 0)
		r = watch_set(s, &w->watch[WATCH_INIT], w->box.init_fd, EPOLLIN);
	if (r == 0)
		r = watch_set(s, &w->watch[WATCH_CLOCK], w->clock, EPOLLIN);
	return r < 0 ? err_set(e, ERR_HOST, -r, "watch the sandbox") : 0;
}

/* Runs that are answered without ever having been one. */
static void refuse(int *fds, size_t n_fds, struct work *w, const struct err *e)
{
	struct wire_outcome o = { .head = { .type = WIRE_OUTCOME }, .cause = WIRE_CAUSE_FAILED, .err = *e };

	if (n_fds > 0)
		(void)send(w ? w->channel : fds[0], &o, sizeof(o), MSG_NOSIGNAL | MSG_DONTWAIT);
	if (w)
		work_free(w);
}

void supervise_job(struct supervise *s, const struct wire_job *j, int *fds, size_t n_fds, bool is_probe)
{
	struct err e = { 0 };
	struct work *w;
	unsigned slot = 0;
	int r;

	while (slot < SANDBOX_SLOTS && s->works[slot])
		slot++;
	w = slot < SANDBOX_SLOTS ? work_new(s, j, is_probe) : NULL;
	if (!w) {
		(void)err_set(&e, ERR_BUSY, ENOMEM, "no room for another run");
		refuse(fds, n_fds, NULL, &e);
	} else {
		r = take_bodies(w, fds, n_fds, &e);
		w->channel = take_fd(&fds[0]);
		if (r == 0)
			r = work_start(w, slot, &e);
		if (r == 0) {
			s->works[slot] = w;
			s->n_works++;
			pump_watch(w);
		} else {
			refuse(fds, n_fds, w, &e);
		}
	}
	for (size_t i = 0; i < n_fds; i++)
		fd_close(&fds[i]);
}
