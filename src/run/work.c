/* SPDX-License-Identifier: Apache-2.0 */
/* A run's birth and end inside the supervisor, and what it listens to. */
#include "run/work.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "run/look.h"
#include "run/pool.h"
#include "sandbox/probe.h"

#define FDS_FEW   160 /* networks that wait, zygotes, a message that is being received */
#define FDS_FIRST (SANDBOX_FDS + SANDBOX_FDS_AWAKE)
#define FDS_OWN   (FDS_FEW + SANDBOX_AWAKE * SANDBOX_FDS_AWAKE)

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

/* Before the descriptor is closed: another may have its number afterwards, and it is that which would be let go of. */
void watch_clear(struct supervise *s, struct watch *w)
{
	if (w->fd >= 0)
		(void)epoll_ctl(s->epoll, EPOLL_CTL_DEL, w->fd, NULL);
	w->fd = -1;
}

static void work_done(struct work *w)
{
	w->is_done = true;
	w->s->has_done = true;
}

static void answer(struct work *w)
{
	look_final(w);
	w->outcome.output_bytes[0] = w->out[0].bytes;
	w->outcome.output_bytes[1] = w->out[1].bytes;
	w->outcome.head = (struct wire_head){ .type = WIRE_OUTCOME };
	if (pump_send_last(w, &w->outcome, sizeof(w->outcome)) == -EAGAIN) {
		w->is_channel_full = true;
		pump_watch(w);
		return;
	}
	w->is_answered = true;
	w->s->answered_ns = clock_now_ns();
	w->is_channel_gone = true; /* nothing more is said, or heard */
	pump_watch(w);
}

void work_finish(struct work *w)
{
	bool is_over = w->box.init == 0 && w->child.pidfd < 0;

	if (w->is_done || w->state != WORK_ENDING || !(is_over || w->is_empty))
		return;
	for (int i = 0; i < 2 && !w->is_piped; i++) {
		watch_clear(w->s, &w->watch[i == 0 ? WATCH_STDOUT : WATCH_STDERR]);
		fd_close(&w->out[i].fd);
	}
	if (!w->is_answered && !w->is_channel_full && pump_is_dry(w))
		answer(w);
	pump_release(w);
	if (w->is_init_due && w->child.pidfd < 0) {
		w->is_init_due = false;
		sandbox_kill(&w->box);
	}
	if (is_over && (w->is_answered || (w->is_channel_gone && pump_is_dry(w))))
		work_done(w);
}

static void let_go(const char *bundle, size_t len)
{
	if (bundle)
		(void)munmap((void *)(uintptr_t)bundle, len);
}

static void work_free(struct work *w)
{
	struct supervise *s = w->s;

	if (!w->has_job && w->pool && w->outcome.cause == WIRE_CAUSE_FAILED)
		pool_child_lost(w->pool);
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
	fd_close(&w->child.listener);
	if (w->has_box)
		sandbox_destroy(&s->outside, &w->box);
	fd_close(&w->channel);
	fd_close(&w->script);
	if (w->bundle_fd >= 0)
		let_go(w->bundle, w->bundle_len);
	fd_close(&w->bundle_fd);
	let_go(w->screen, w->screen_len);
	free(w->findings);
	if (s->n_spare < ARRAY_LEN(s->spare))
		s->spare[s->n_spare++] = w;
	else
		free(w);
}

void supervise_reap(struct supervise *s)
{
	if (!s->has_done)
		return;
	s->has_done = false;
	for (unsigned i = 0; i < s->n_slots; i++) {
		if (!s->works[i] || !s->works[i]->is_done)
			continue;
		work_free(s->works[i]);
		s->works[i] = NULL;
		s->n_works--;
	}
	while (s->n_slots > 0 && !s->works[s->n_slots - 1])
		s->n_slots--;
}

void supervise_end(struct supervise *s)
{
	for (unsigned i = 0; i < s->n_slots; i++) {
		if (s->works[i])
			sandbox_kill(&s->works[i]->box);
	}
	/* all of them: a zygote may have made a child that it could not tell us of, and that child's init waits for it */
	while (waitpid(-1, NULL, __WALL) > 0 || errno == EINTR)
		;
	for (unsigned i = 0; i < s->n_slots; i++) {
		struct work *w = s->works[i];

		if (!w)
			continue;
		w->box.init = 0;
		for (int k = 0; k < WATCH_MAX; k++)
			watch_clear(s, &w->watch[k]);
		fd_close(&w->child.pidfd);
		fd_close(&w->child.listener);
		work_done(w);
	}
	supervise_reap(s);
	while (s->n_spare > 0)
		free(s->spare[--s->n_spare]);
}

/* Descriptors are the first thing to run out; a job that they do not suffice for must hear so. */
static unsigned max_works(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) < 0 || l.rlim_cur >= FDS_OWN + (rlim_t)SANDBOX_FDS * SANDBOX_SLOTS)
		return SANDBOX_SLOTS;
	/* few: as if all of them were among the first */
	if (l.rlim_cur < FDS_OWN + (rlim_t)SANDBOX_FDS * SANDBOX_AWAKE) {
		l.rlim_cur -= l.rlim_cur < FDS_FEW ? l.rlim_cur : FDS_FEW;
		return l.rlim_cur > 2 * FDS_FIRST ? (unsigned)l.rlim_cur / FDS_FIRST : 2;
	}
	return (unsigned)(l.rlim_cur - FDS_OWN) / SANDBOX_FDS;
}

/* A work without a job, in a free slot; not yet in the table.  NULL: no room */
static struct work *work_new(struct supervise *s, unsigned *ret_slot)
{
	struct work *w;

	*ret_slot = 0;
	if (s->max_works == 0)
		s->max_works = max_works();
	if (s->n_works >= s->max_works)
		return NULL;
	while (*ret_slot < SANDBOX_SLOTS && s->works[*ret_slot])
		(*ret_slot)++;
	if (*ret_slot == SANDBOX_SLOTS)
		return NULL;
	w = s->n_spare > 0 ? s->spare[--s->n_spare] : malloc(sizeof(*w));
	if (!w)
		return NULL;
	memset(w, 0, offsetof(struct work, body));
	w->s = s;
	w->is_channel_gone = true;
	w->outcome.wall = -1;
	w->box = (struct sandbox)SANDBOX_EMPTY;
	w->child = (struct sandbox_child)SANDBOX_CHILD_EMPTY;
	w->channel = w->input = w->script = w->helper.fd = w->bundle_fd = -1;
	for (int i = 0; i < 3; i++)
		w->pipes[i] = -1;
	for (int i = 0; i < 2; i++) {
		w->out[i].fd = -1;
		w->out[i].type = WIRE_OUTPUT;
		w->out[i].stream = (uint32_t)i + 1;
		w->out[i].is_counted = true;
	}
	for (int i = 0; i < WATCH_MAX; i++)
		w->watch[i] = (struct watch){ .kind = (enum watch_kind)i, .work = w, .fd = -1 };
	return w;
}

/* A short bundle came in the message; other bodies are sealed, so that their sender can't change them while a sandbox reads them. */
static int take_bodies(struct work *w, const char *body, size_t len, int *fds, size_t n_fds, struct err *e)
{
	bool is_short = len > 0;
	int r = 0;

	if (n_fds != (w->is_probe || is_short ? 1u : w->job.is_screened ? 4u : 2u) || (is_short && w->job.is_screened))
		return err_set(e, ERR_BUG, 0, "a job with %zu descriptors", n_fds);
	if (is_short) {
		memcpy(w->body, body, len);
		w->bundle = w->body;
		w->bundle_len = len;
	}
	if (n_fds < 2)
		return 0;
	r = fd_map_sealed(fds[1], &w->bundle, &w->bundle_len);
	if (r == 0)
		w->bundle_fd = take_fd(&fds[1]);
	if (r == 0 && w->job.is_screened)
		r = fd_map_sealed(fds[2], &w->screen, &w->screen_len);
	if (r < 0)
		return err_set(e, ERR_BUG, -r, "the job's bodies");
	if (w->job.is_screened)
		w->script = take_fd(&fds[3]);
	return 0;
}

/* Its sandbox is begun and listened to. */
static int work_start(struct work *w, unsigned slot, struct err *e)
{
	struct supervise *s = w->s;
	int r;

	if (w->job.environment >= (uint32_t)s->outside.home->n_envs)
		return err_set(e, ERR_BUG, 0, "environment %u of %d", w->job.environment, s->outside.home->n_envs);
	if (due_prepare(s) < 0)
		return err_set(e, ERR_HOST, errno, "make a timer");
	r = sandbox_create(&s->outside, slot, w->job.environment, &w->job.spec, &w->box, e);
	if (r < 0) {
		work_blame(w, probe_namespaces(false), e); /* whichever it is */
		return r;
	}
	w->has_box = true;
	if (!w->pool) { /* else: when its process is parked */
		r = sandbox_count(&w->box, e);
		if (r < 0)
			return r;
	}
	r = watch_set(s, &w->watch[WATCH_INIT_SOCK], w->box.init_sock, EPOLLIN);
	if (r == 0)
		r = watch_set(s, &w->watch[WATCH_INIT], w->box.init_fd, EPOLLIN);
	if (r < 0)
		return err_set(e, ERR_HOST, -r, "watch the sandbox");
	s->works[slot] = w;
	s->n_works++;
	if (s->n_slots <= slot)
		s->n_slots = slot + 1;
	w->tag = s->n_tags++ * SANDBOX_SLOTS + slot;
	w->deadline_ns = clock_now_ns() + BUILD_NS;
	due_by(s, w->deadline_ns);
	return 0;
}

void work_blame(struct work *w, int wall, struct err *e)
{
	char words[64];

	w->outcome.wall = wall;
	if (wall < 0)
		return;
	(void)snprintf(words, sizeof(words), "the %s wall can't be had here", probe_name((enum probe_wall)wall));
	(void)err_wrap(e, 0, words);
	(void)snprintf(w->outcome.remedy, sizeof(w->outcome.remedy), "%s", probe_remedy((enum probe_wall)wall, e->sys));
}

/* An answer for a job that never became a run. */
static void refuse(int channel, struct wire_outcome *o, const struct err *e)
{
	o->head = (struct wire_head){ .type = WIRE_OUTCOME };
	o->cause = WIRE_CAUSE_FAILED;
	o->err = *e;
	(void)send(channel, o, sizeof(*o), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Warm or cold: what the caller asks for, what this host keeps ready, and what could be told apart. */
static struct pool *choose(struct work *w, struct err *e)
{
	struct pool *p = w->is_probe || w->job.mode == WIRE_COLD ? NULL : pool_of(w->s, w->job.environment);
	const char *why = "no interpreter of this environment is kept ready";

	if (w->job.mode == WIRE_COLD || w->is_probe)
		return NULL;
	if (p && w->job.is_screened)
		why = "the script is to be screened first";
	else if (p && !pool_is_ready(p))
		why = p->why;
	else if (p)
		why = zygote_fits(&p->zygote, w->bundle, w->bundle_len, &w->is_buffered);
	if (!why)
		return p;
	if (w->job.mode == WIRE_WARM)
		(void)err_set(e, ERR_INVALID, 0, "mode: warm is not allowed here: %s", why);
	else if (p && !pool_is_ready(p) && p->n_deaths > 0) /* one that is still starting is no news */
		(void)snprintf(w->outcome.note, sizeof(w->outcome.note), "%s", why);
	return NULL;
}

/* The job moves into a sandbox that was begun before it came. */
static void move_in(struct work *to, struct work *from)
{
	to->job = from->job;
	to->channel = take_fd(&from->channel);
	to->bundle_fd = take_fd(&from->bundle_fd);
	to->bundle = from->bundle;
	to->bundle_len = from->bundle_len;
	if (from->bundle == from->body)
		to->bundle = memcpy(to->body, from->body, from->bundle_len);
	to->is_buffered = from->is_buffered;
	to->has_job = true;
	to->is_channel_gone = false;
	work_event(to, EVENT_JOB); /* first of all: it is waited for */
	pump_watch(to);
	work_finish(to);
	work_free(from);
}

void supervise_job(struct supervise *s, const struct wire_job_message *m, size_t len, int *fds, size_t n_fds)
{
	struct err e = { 0 };
	struct work *parked = NULL;
	unsigned slot;
	struct work *w = work_new(s, &slot);
	int r;

	if (!w) {
		(void)err_set(&e, ERR_BUSY, ENOMEM, "no room for another run (%u at most%s)", s->max_works,
			      s->max_works > 1 && s->max_works < SANDBOX_SLOTS ? ", by RLIMIT_NOFILE" : "");
		if (n_fds > 0)
			refuse(fds[0], &(struct wire_outcome){ .wall = -1 }, &e);
	} else {
		w->job = m->job;
		w->is_probe = m->job.head.type == WIRE_PROBE;
		r = take_bodies(w, m->body, len, fds, n_fds, &e);
		w->channel = n_fds > 0 ? take_fd(&fds[0]) : -1;
		w->has_job = true;
		w->is_channel_gone = false;
		if (r == 0)
			w->pool = choose(w, &e);
		if (w->pool)
			parked = pool_take(w->pool, &m->job);
		if (parked)
			move_in(parked, w);
		else if (e.kind == ERR_NONE)
			r = work_start(w, slot, &e);
		if (e.kind != ERR_NONE) {
			refuse(w->channel, &w->outcome, &e);
			work_free(w);
		} else if (!parked) {
			pump_watch(w);
		}
		(void)r;
	}
	for (size_t i = 0; i < n_fds; i++)
		fd_close(&fds[i]);
}

/* Known children are reaped by their works; a zygote that died may have left others. */
static bool is_known(pid_t pid, void *arg)
{
	const struct supervise *s = arg;

	for (unsigned i = 0; i < s->n_slots; i++) {
		const struct work *w = s->works[i];

		if (w && (w->child.pid == pid || w->box.init == pid))
			return true;
	}
	for (unsigned i = 0; i < s->n_pools; i++) {
		if (s->pools[i].zygote.pid == pid || s->pools[i].next.pid == pid)
			return true;
	}
	return false;
}

void supervise_reap_strays(struct supervise *s)
{
	zygote_reap_strays(is_known, s);
}

bool work_has_job(const struct work *w)
{
	return w->has_job;
}

void supervise_park(struct supervise *s, struct pool *p)
{
	struct err e = { 0 };
	unsigned slot;
	struct work *w = work_new(s, &slot);

	if (!w)
		return;
	w->job.spec = p->plan.spec;
	w->job.environment = p->env;
	w->pool = p;
	if (work_start(w, slot, &e) == 0)
		return;
	work_free(w);
	p->target = 0; /* the next tick tries again */
}
