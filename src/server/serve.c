/* SPDX-License-Identifier: Apache-2.0 */
/* The loop, the signals, the end. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "server/log.h"
#include "server/notify.h"
#include "server/server.h"

#define EXIT_WRONG     2 /* as the command line has them */
#define EXIT_COULD_NOT 125
#define EVENTS         64
#define ACCEPTS        16               /* in one turn */
#define KILL_NS        (3 * NS_PER_SEC) /* what cancelled runs get to end */
#define READ_NS        NS_PER_SEC       /* ... and their clients, to read what they have for them */
#define LOOK_NS        NS_PER_SEC
#define FLUSH_NS       (2 * NS_PER_SEC) /* what clients get to read their last answers */

int source_set(struct server *s, struct source *src, int fd, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = src };
	int op = src->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;

	if (!events || fd < 0) {
		if (src->events)
			(void)epoll_ctl(s->epoll, EPOLL_CTL_DEL, src->fd, NULL);
		src->events = 0;
		src->fd = fd;
		return 0;
	}
	if (src->events == events && src->fd == fd)
		return 0;
	src->fd = fd;
	if (epoll_ctl(s->epoll, op, fd, &ev) < 0)
		return -errno;
	src->events = events;
	return 0;
}

void serve_fail_waiting(struct server *s, const struct tenant *host, const char *why)
{
	for (struct client *c = s->clients; c; c = c->next) {
		if (c->state != CLIENT_WAITING || keeper_host(s, c->tenant) != host)
			continue;
		admit_leave(s, c);
		work_fail(s, c, STATUS_INTERNAL_ERROR, why);
	}
}

static void accept_some(struct server *s)
{
	for (int i = 0; i < ACCEPTS; i++) {
		uid_t uid;
		int fd = listener_accept(&s->listener, &uid);

		if (fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM || fd == -ENOBUFS) {
			log_line(LOG_WARNING, "event=no_descriptor clients=%u", s->n_clients);
			(void)source_set(s, &s->listen_source, s->listener.fd, 0);
			s->accept_at_ns = clock_now_ns() + 100 * NS_PER_MS;
			return;
		}
		if (fd == -EAGAIN)
			return;
		if (fd >= 0)
			client_add(s, fd, uid);
	}
}

/* The first time: no new requests, and runs may end by themselves for a while.  The second: no while. */
static void stop(struct server *s)
{
	if (s->is_stopping) {
		s->stop_at_ns = clock_now_ns();
		return;
	}
	log_line(LOG_INFO, "event=stopping running=%u waiting=%u", s->n_running, s->n_waiting);
	door_stop(s, SIGTERM);
	notify_manager("STOPPING=1");
	s->is_stopping = true;
	s->stop_at_ns = clock_now_ns() + s->shared->settings.conf.server.grace_ns;
	(void)source_set(s, &s->listen_source, s->listener.fd, 0);
	listener_close(&s->listener);
	launch_unlisten(&s->launch);
	for (struct client *c = s->clients; c; c = c->next) {
		if (c->state != CLIENT_WAITING)
			continue;
		admit_leave(s, c);
		work_release(c);
		intake_busy(s, c);
	}
}

static void reload(struct server *s)
{
	char state[64];

	(void)snprintf(state, sizeof(state), "RELOADING=1\nMONOTONIC_USEC=%llu",
		       (unsigned long long)(clock_now_ns() / 1000));
	notify_manager(state);
	keeper_reload(s);
	if (!s->coming)
		notify_manager("READY=1");
}

static void take_signals(struct server *s)
{
	struct signalfd_siginfo info;

	while (read(s->signal_source.fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		if (info.ssi_signo == SIGHUP)
			reload(s);
		else
			stop(s);
	}
}

/* It speaks only when it is asked: this is its end.  There is no other, and supervisors can't do without for long. */
static void lose_launcher(struct server *s)
{
	log_line(LOG_ERROR, "event=launcher_lost");
	(void)source_set(s, &s->launch_source, s->launch.sock, 0);
	s->status = EXIT_COULD_NOT;
	s->is_over = true;
}

static void dispatch(struct server *s, const struct epoll_event *ev)
{
	struct source *src = ev->data.ptr;

	if (!src->events)
		return; /* something before it in this turn has closed it */
	switch (src->kind) {
	case SOURCE_LISTENER:
		accept_some(s);
		break;
	case SOURCE_SIGNAL:
		take_signals(s);
		break;
	case SOURCE_CLIENT:
		client_event(s, src->owner, ev->events);
		break;
	case SOURCE_RUN:
		work_event(s, src->owner, ev->events);
		break;
	case SOURCE_KEEPER:
		keeper_event(s, src->owner);
		break;
	case SOURCE_DOOR:
		door_event(s);
		break;
	case SOURCE_LAUNCHER:
		lose_launcher(s);
		break;
	}
}

/* Who does not read what we have for him hurts himself alone, but not for ever. */
static void drop_stalled(struct server *s, uint64_t now)
{
	if (!s->has_stalled)
		return;
	s->has_stalled = false;
	for (struct client *c = s->clients; c; c = c->next) {
		if (c->is_gone || !c->out)
			continue;
		if (now > c->patience_ns) {
			log_line(LOG_WARNING, "event=stalled uid=%u", c->uid);
			client_close(s, c);
		} else {
			s->has_stalled = true;
		}
	}
}

/* Being stopped: is all done, or the time over? */
static void get_on_with_the_end(struct server *s, uint64_t now)
{
	bool is_flushed = true;

	if (s->n_running == 0 && !s->flush_at_ns)
		s->flush_at_ns = now + FLUSH_NS;
	for (struct client *c = s->clients; c; c = c->next) {
		if (c->state == CLIENT_RUNNING && now >= s->stop_at_ns)
			work_cancel(c);
		if (c->out && now >= s->stop_at_ns + READ_NS)
			client_close(s, c); /* what it does not read holds its run up */
		else if (c->state == CLIENT_IDLE && !c->out)
			client_close(s, c);
		is_flushed &= c->is_gone;
	}
	s->is_over = (s->n_running == 0 && (is_flushed || now >= s->flush_at_ns)) || now >= s->stop_at_ns + KILL_NS;
}

/* Nobody waits for ever: a supervisor that does not answer is replaced, and its runs hear of it. */
static void look_at_runs(struct server *s, uint64_t now)
{
	if (s->n_running == 0 || now < s->look_at_ns)
		return;
	s->look_at_ns = now + LOOK_NS;
	for (struct client *c = s->clients; c; c = c->next) {
		if (c->run && !c->out && run_wait_ms(c->run) == 0)
			work_event(s, c, 0);
	}
}

static void tick(struct server *s)
{
	uint64_t now = clock_now_ns();

	if (s->accept_at_ns && now >= s->accept_at_ns && !s->is_stopping) {
		s->accept_at_ns = 0;
		(void)source_set(s, &s->listen_source, s->listener.fd, EPOLLIN);
	}
	keeper_tick(s);
	door_tick(s);
	admit_next(s);
	look_at_runs(s, now);
	drop_stalled(s, now);
	if (s->is_stopping)
		get_on_with_the_end(s, now);
	client_reap(s);
}

static void sooner(uint64_t *next, uint64_t at)
{
	if (at && at < *next)
		*next = at;
}

/* Milliseconds until there is something to do by the clock; -1: never. */
static int next_tick(const struct server *s)
{
	uint64_t now = clock_now_ns();
	uint64_t next = UINT64_MAX;

	sooner(&next, s->accept_at_ns);
	sooner(&next, s->door.start_at_ns);
	sooner(&next, keeper_next_tick(s));
	if (s->has_stalled)
		sooner(&next, now + NS_PER_SEC);
	if (s->n_running)
		sooner(&next, s->look_at_ns);
	if (s->is_stopping) {
		sooner(&next, s->stop_at_ns > now ? s->stop_at_ns : now + 50 * NS_PER_MS);
		sooner(&next, s->flush_at_ns);
	}
	if (next == UINT64_MAX)
		return -1;
	next = next > now ? (next - now) / NS_PER_MS + 1 : 0;
	return next < 60000 ? (int)next : 60000;
}

static void loop(struct server *s)
{
	struct epoll_event events[EVENTS];

	while (!s->is_over) {
		int n = epoll_wait(s->epoll, events, EVENTS, next_tick(s));

		for (int i = 0; i < n; i++)
			dispatch(s, &events[i]);
		tick(s);
	}
}

static int open_signals(struct server *s, struct err *e)
{
	static const int wanted[] = { SIGTERM, SIGINT, SIGHUP };
	sigset_t set;
	int fd;

	(void)sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
		(void)sigaddset(&set, wanted[i]);
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	/* blocked, not ignored: supervisors start with an empty mask and default actions */
	(void)sigaddset(&set, SIGPIPE);
	(void)sigprocmask(SIG_BLOCK, &set, NULL);
	if (fd < 0 || source_set(s, &s->signal_source, fd, EPOLLIN) < 0)
		return err_set(e, ERR_HOST, errno, "signalfd");
	return 0;
}

/* A connection and a run each need one, a run some more for a moment. */
static void raise_descriptors(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) < 0)
		return;
	l.rlim_cur = l.rlim_max < 8 * CLIENTS_MAX ? l.rlim_max : 8 * CLIENTS_MAX;
	(void)setrlimit(RLIMIT_NOFILE, &l);
}

/* The socket; and, of root's server, from here on without root's rights. */
static int open_socket(struct server *s, const char *path, struct err *e)
{
	const char *group = s->shared->settings.conf.server.group;
	struct front_user front = { .is_own = false };
	int r;

	s->uid = s->trusted = geteuid();
	if (s->uid != 0)
		return listener_open(&s->listener, path, NULL, (gid_t)-1, e);
	confine_find_user(&front);
	r = listener_open(&s->listener, path, group, front.is_own ? front.gid : (gid_t)-1, e);
	if (r < 0)
		return r;
	record_prepare(s, front.uid, front.gid, front.is_own);
	r = launch_split(&s->launch, &s->listener, &front, e);
	if (r < 0)
		return r;
	if (r == 0)
		log_line(LOG_WARNING, "event=front_is_root reason=\"there is no other user here\"");
	if (front.is_own)
		s->trusted = front.uid;
	if (source_set(s, &s->launch_source, s->launch.sock, EPOLLIN) < 0)
		return err_set(e, ERR_HOST, errno, "epoll");
	return 0;
}

static int start(struct server *s, const char *path, struct err *e)
{
	int r;

	s->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (s->epoll < 0)
		return err_set(e, ERR_HOST, errno, "epoll");
	raise_descriptors();
	r = keeper_load(s, e);
	if (r == 0)
		r = open_socket(s, path, e);
	if (r == 0)
		r = open_signals(s, e);
	if (r == 0)
		r = keeper_start(s, e);
	if (r == 0 && source_set(s, &s->listen_source, s->listener.fd, EPOLLIN) < 0)
		r = err_set(e, ERR_HOST, errno, "epoll");
	if (r == 0)
		log_json(s->shared->settings.conf.server.logs_json);
	if (r == 0)
		record_start(s);
	return r;
}

static void end(struct server *s)
{
	for (struct client *c = s->clients; c; c = c->next) {
		struct err e = { .kind = ERR_NONE };
		struct result r;

		client_close(s, c);
		if (c->run && run_finish(c->run, &r, &e) == 0) {
			struct record_run run;

			record_take(s, c, &run);
			record_add(s, &run, &r);
			result_done(&r);
		}
		if (c->state != CLIENT_IDLE)
			work_release(c);
	}
	client_reap(s);
	listener_close(&s->listener);
	record_end(s);
	door_end(s);
	keeper_done(s);
	admit_done(s);
	(void)source_set(s, &s->launch_source, s->launch.sock, 0);
	launch_end(&s->launch);
	fd_close(&s->signal_source.fd);
	fd_close(&s->epoll);
}

int serve(const char *path)
{
	struct server s = {
		.launch = { .sock = -1 },
		.listener = { .fd = -1, .lock = -1 },
		.launch_source = { .kind = SOURCE_LAUNCHER, .fd = -1 },
		.listen_source = { .kind = SOURCE_LISTENER, .fd = -1 },
		.door = { .source = { .kind = SOURCE_DOOR, .fd = -1 }, .pidfd = -1 },
		.signal_source = { .kind = SOURCE_SIGNAL, .fd = -1 },
		.epoll = -1,
	};
	struct err e = { .kind = ERR_NONE };

	log_open();
	stats_start(&s.stats);
	if (start(&s, path, &e) < 0 || !s.shared) {
		(void)fprintf(stderr, "cloche: %s\n", e.msg);
		s.status = e.kind == ERR_INVALID ? EXIT_WRONG : EXIT_COULD_NOT;
	} else {
		log_line(LOG_INFO, "event=ready socket=\"%s\" max_running=%u queue_max=%u environments=%zu",
			 s.listener.path, admit_max(&s), s.shared->settings.conf.server.queue_max,
			 s.shared->settings.conf.n_environments);
		notify_manager("READY=1");
		door_start(&s);
		loop(&s);
		log_line(LOG_INFO, "event=stopped");
	}
	end(&s);
	return s.status;
}
