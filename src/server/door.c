/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP door: a process that is started where [http] says that somebody listens, started again when it ends, later
 * each time if that does not help, and ended with the server.  What it listens at is settled when the server starts.
 */
#include "server/door.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/place.h"
#include "server/log.h"
#include "server/server.h"

#define STABLE_NS    (10 * NS_PER_SEC) /* who lived so long is no part of a row of failures */
#define BACKOFF_NS   (250 * NS_PER_MS)
#define BACKOFF_STEP 7 /* doublings, at most */
#define END_MS       3000

/* The door is not the one to tell the service manager anything. */
static char **environment(void)
{
	size_t n = 0;
	char **ret;

	for (size_t i = 0; environ[i]; i++)
		n++;
	ret = calloc(n + 1, sizeof(*ret));
	if (!ret)
		return NULL;
	n = 0;
	for (size_t i = 0; environ[i]; i++) {
		if (strncmp(environ[i], "NOTIFY_SOCKET=", 14) != 0)
			ret[n++] = environ[i];
	}
	return ret;
}

int door_spawn(const char *server, pid_t *ret, struct err *e)
{
	auto_free char *server_copy = strdup(server);
	char *argv[] = { (char[]) { "cloche-door" }, (char[]) { "http" }, (char[]) { "--server" }, server_copy, NULL };
	posix_spawn_file_actions_t actions;
	auto_free char **env = environment();
	posix_spawnattr_t attr;
	char program[PATH_MAX];
	sigset_t none;
	int r = place_beside("cloche-door", program, sizeof(program));

	if (r < 0)
		return err_set(e, ERR_HOST, -r, "find cloche-door beside cloched");
	if (!env || !server_copy || posix_spawn_file_actions_init(&actions) != 0)
		return err_set(e, ERR_HOST, ENOMEM, "start the door");
	(void)sigemptyset(&none);
	r = posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
	if (r == 0)
		r = posix_spawnattr_init(&attr);
	if (r == 0) {
		r = posix_spawnattr_setsigmask(&attr, &none);
		if (r == 0)
			r = posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
		if (r == 0)
			r = posix_spawn(ret, program, &actions, &attr, argv, env);
		(void)posix_spawnattr_destroy(&attr);
	}
	(void)posix_spawn_file_actions_destroy(&actions);
	return r != 0 ? err_set(e, ERR_HOST, r, "start %.400s", program) : 0;
}

static int spawn(struct server *s, struct err *e)
{
	struct door *d = &s->door;
	int r;

	if (s->launch.sock >= 0)
		return launch_door(&s->launch, &d->pid, &d->pidfd, e);
	r = door_spawn(s->listener.address, &d->pid, e);
	if (r < 0)
		return r;
	d->pidfd = (int)syscall(SYS_pidfd_open, d->pid, 0);
	if (d->pidfd >= 0)
		return 0;
	r = err_set(e, ERR_HOST, errno, "watch the door");
	(void)kill(d->pid, SIGKILL);
	(void)waitpid(d->pid, NULL, 0);
	d->pid = 0;
	return r;
}

/* It has ended, and is reaped: where it is our child, by us. */
static void forget(struct server *s)
{
	struct door *d = &s->door;

	(void)source_set(s, &d->source, -1, 0);
	if (s->launch.sock < 0)
		(void)waitpid(d->pid, NULL, 0);
	fd_close(&d->pidfd);
	d->pid = 0;
}

/* It takes nothing new, and ends when what it has under way has ended. */
void door_stop(struct server *s, int sig)
{
	struct door *d = &s->door;

	d->start_at_ns = 0;
	if (d->pid > 0 && s->launch.sock >= 0)
		s->launch.by.signal(&s->launch, d->pid, sig);
	else if (d->pid > 0)
		(void)kill(d->pid, sig);
}

static void try_again(struct server *s)
{
	struct door *d = &s->door;

	d->start_at_ns = clock_now_ns() +
			 (BACKOFF_NS << (d->n_failures < BACKOFF_STEP ? d->n_failures : (unsigned)BACKOFF_STEP));
	d->n_failures++;
}

static void start(struct server *s)
{
	struct door *d = &s->door;
	struct err e = { .kind = ERR_NONE };

	d->start_at_ns = 0;
	if (spawn(s, &e) == 0 && source_set(s, &d->source, d->pidfd, EPOLLIN) < 0) {
		(void)err_set(&e, ERR_HOST, errno, "watch the door");
		door_stop(s, SIGKILL);
		forget(s);
	}
	if (d->pid == 0) {
		log_line(LOG_ERROR, "event=no_door error=\"%s\"", e.msg);
		try_again(s);
		return;
	}
	d->started_ns = clock_now_ns();
	log_line(LOG_INFO, "event=door pid=%d", (int)d->pid);
}

void door_start(struct server *s)
{
	const struct conf_http *c = &s->shared->settings.conf.http;

	if (c->socket || c->listen)
		start(s);
}

void door_event(struct server *s)
{
	struct door *d = &s->door;

	forget(s);
	if (s->is_stopping)
		return;
	if (clock_now_ns() - d->started_ns > STABLE_NS)
		d->n_failures = 0;
	log_line(LOG_ERROR, "event=door_lost failures=%u", d->n_failures + 1);
	try_again(s);
}

void door_tick(struct server *s)
{
	if (s->door.start_at_ns && clock_now_ns() >= s->door.start_at_ns && !s->is_stopping)
		start(s);
}

void door_end(struct server *s)
{
	struct pollfd p = { .fd = s->door.pidfd, .events = POLLIN };

	if (s->door.pid <= 0)
		return;
	door_stop(s, SIGTERM);
	if (poll(&p, 1, END_MS) != 1) {
		log_line(LOG_WARNING, "event=door_stuck");
		door_stop(s, SIGKILL);
	}
	forget(s);
}
