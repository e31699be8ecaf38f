/* SPDX-License-Identifier: Apache-2.0 */
/* A supervisor of our own: found, started by posix_spawn (the caller may have threads), told its environments, heard.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/pack.h"
#include "base/place.h"
#include "run/front.h"

#ifndef CLOCHE_LIBEXECDIR
#error "CLOCHE_LIBEXECDIR: where cloche-supervisor is installed"
#endif

/* Beside the running program (a build tree), else where it was installed. */
static int find_program(char *ret, size_t size, struct err *e)
{
	if (place_beside("cloche-supervisor", ret, size) == 0)
		return 0;
	(void)snprintf(ret, size, "%s/cloche-supervisor", CLOCHE_LIBEXECDIR);
	if (access(ret, X_OK) == 0)
		return 0;
	return err_set(e, ERR_HOST, errno, "%s: install cloche, or keep cloche-supervisor beside the program", ret);
}

static char **copy_strings(const char *const *list, const char *prefix, char **at)
{
	for (size_t i = 0; list && list[i]; i++) {
		if (asprintf(at, "%s%s", prefix, list[i]) < 0) {
			*at = NULL;
			return NULL;
		}
		at++;
	}
	return at;
}

static size_t count(const char *const *list)
{
	size_t n = 0;

	while (list && list[n])
		n++;
	return n;
}

static int keep_environments(struct supervisor *s, const struct run_options *o)
{
	s->environments = calloc(o->n_environments, sizeof(*s->environments));
	if (!s->environments)
		return -ENOMEM;
	for (size_t i = 0; i < o->n_environments; i++) {
		struct front_environment *to = &s->environments[i];

		s->n_environments++;
		to->name = strdup(o->environments[i].name);
		to->python = strdup(o->environments[i].python);
		to->limits = o->environments[i].limits;
		to->env = calloc(count(o->environments[i].env) + 1, sizeof(*to->env));
		if (!to->name || !to->python || !to->env || !copy_strings(o->environments[i].env, "", to->env))
			return -ENOMEM;
	}
	return 0;
}

static int keep_screen(struct supervisor *s, const struct run_options *o)
{
	char **at;

	s->n_reject = count(o->screen_reject);
	s->n_screen = s->n_reject + count(o->screen_report);
	s->screen = calloc(s->n_screen + 1, sizeof(*s->screen));
	if (!s->screen)
		return -ENOMEM;
	at = copy_strings(o->screen_reject, "reject:", s->screen);
	return at && copy_strings(o->screen_report, "report:", at) ? 0 : -ENOMEM;
}

static int put_list(struct pack *p, uint32_t kind, const char *const *list)
{
	int r = 0;

	for (size_t i = 0; list && list[i] && r == 0; i++)
		r = pack_add(p, kind, NULL, list[i], strlen(list[i]));
	return r;
}

/* What its zygote and parked sandboxes are made of. */
static int put_pool(struct pack *p, const struct run_environment *env, const struct front_environment *own,
		    const struct run_pool *pool)
{
	struct pool_plan plan = { .min = pool->min, .max = pool->max, .max_runs = pool->max_runs };
	int r;

	bundle_spec(&env->limits, JOB_NETWORK_LOOPBACK, &plan.spec);
	r = pack_add(p, WIRE_SETUP_POOL, NULL, &plan, sizeof(plan));
	if (r == 0)
		r = pack_add(p, WIRE_SETUP_PYTHON, NULL, env->python, strlen(env->python));
	if (r == 0)
		r = bundle_environment(p, own);
	return r == 0 ? put_list(p, WIRE_SETUP_MODULE, env->preload) : r;
}

static int put_environment(struct pack *p, const struct run_environment *env, struct front_environment *own,
			   const struct run_pool *pool, struct err *e)
{
	struct python_paths paths;
	int r;

	r = python_paths(env->python, &paths, e);
	if (r < 0)
		return r;
	r = pack_add(p, WIRE_SETUP_ENVIRONMENT, NULL, env->name, strlen(env->name));
	for (size_t i = 0; i < paths.n && r == 0; i++)
		r = pack_add(p, WIRE_SETUP_PATH, NULL, paths.path[i], strlen(paths.path[i]));
	if (r == 0)
		r = figures_put(p, env, &paths, &own->has_figures);
	python_paths_done(&paths);
	if (r == 0)
		r = put_list(p, WIRE_SETUP_PATH, env->paths);
	if (r == 0 && pool->max > 0 && !env->is_cold)
		r = put_pool(p, env, own, pool);
	return r < 0 ? err_set(e, ERR_HOST, -r, "pack the set-up") : 0;
}

static int send_setup(struct supervisor *s, const struct run_options *o, struct err *e)
{
	struct wire_head head = { .type = WIRE_SETUP };
	struct pack p = { 0 };
	auto_fd int fd = -1;
	int r = 0;

	for (size_t i = 0; i < o->n_environments && r == 0; i++)
		r = put_environment(&p, &o->environments[i], &s->environments[i], &o->pool, e);
	if (r < 0) {
		pack_done(&p);
		return r;
	}
	r = put_list(&p, WIRE_SETUP_REQUIRE, o->require);
	if (r == 0)
		r = put_list(&p, WIRE_SETUP_ALLOW, o->allow_missing);
	if (r == 0 && o->is_single)
		r = pack_add(&p, WIRE_SETUP_SINGLE, NULL, "", 0);
	if (r == 0)
		r = fd = fd_memfd("setup", p.data, p.len);
	pack_done(&p);
	if (r >= 0)
		r = fd_send(s->control, &head, sizeof(head), &fd, 1);
	if (r == -EPIPE || r == -ECONNRESET)
		return 0; /* one that was begun has failed: it has told why */
	return r < 0 ? err_set(e, ERR_HOST, -r, "send the set-up") : 0;
}

int supervisor_spawn(int control, pid_t *ret, struct err *e)
{
	auto_fd int theirs = fcntl(control, F_DUPFD_CLOEXEC, 10); /* dup2 onto itself would leave it CLOEXEC */
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	char program[PATH_MAX];
	char *argv[] = { (char[]) { "cloche-supervisor" }, NULL };
	char *env[] = { NULL, NULL };
	char wanted[80];
	sigset_t none;
	int r;

	if (theirs < 0)
		return err_set(e, ERR_HOST, errno, "start the supervisor");
	r = find_program(program, sizeof(program), e);
	if (r < 0)
		return r;
	if (getenv("CLOCHE_FAIL_STEP")) { /* heard by test builds only */
		(void)snprintf(wanted, sizeof(wanted), "CLOCHE_FAIL_STEP=%s", getenv("CLOCHE_FAIL_STEP"));
		env[0] = wanted;
	}
	(void)sigemptyset(&none);
	r = posix_spawn_file_actions_init(&actions);
	if (r != 0)
		return err_set(e, ERR_HOST, r, "start the supervisor");
	r = posix_spawnattr_init(&attr);
	if (r == 0) {
		/* nothing of the caller's: no terminal, no descriptors, no environment, its own session */
		for (int fd = 0; fd < 3 && r == 0; fd++)
			r = posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
		if (r == 0)
			r = posix_spawn_file_actions_adddup2(&actions, theirs, WIRE_CONTROL);
		if (r == 0)
			r = posix_spawn_file_actions_addclosefrom_np(&actions, WIRE_CONTROL + 1);
		if (r == 0)
			r = posix_spawnattr_setsigmask(&attr, &none);
		if (r == 0)
			r = posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
		if (r == 0)
			r = posix_spawn(ret, program, &actions, &attr, argv, env);
		(void)posix_spawnattr_destroy(&attr);
	}
	(void)posix_spawn_file_actions_destroy(&actions);
	return r != 0 ? err_set(e, ERR_HOST, r, "start %s", program) : 0;
}

static struct {
	int control; /* owned */
	pid_t pid;   /* 0: none was begun */
} begun;

void supervisor_begin(void)
{
	struct err e = { .kind = ERR_NONE };
	auto_fd int theirs = -1;
	int pair[2];

	if (begun.pid || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return;
	theirs = pair[1];
	begun.control = pair[0];
	if (supervisor_spawn(theirs, &begun.pid, &e) < 0) { /* supervisor_start() will say why */
		begun.pid = 0;
		fd_close(&begun.control);
	}
}

void supervisor_begun_end(void)
{
	if (!begun.pid)
		return;
	fd_close(&begun.control);
	(void)waitpid(begun.pid, NULL, 0);
	begun.pid = 0;
}

/* The program's process, with our end of its control socket: the one that was begun, or a new one.  The set-up is sent.
 */
static int get_process(struct supervisor *s, const struct run_options *o, struct err *e)
{
	auto_fd int theirs = -1;
	int pair[2];
	int r;

	if (begun.pid && !o->launcher) {
		s->control = take_fd(&begun.control);
		s->pid = begun.pid;
		begun.pid = 0;
		return send_setup(s, o, e);
	}
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_set(e, ERR_HOST, errno, "start the supervisor");
	s->control = pair[0];
	theirs = pair[1];
	r = send_setup(s, o, e);
	if (r == 0 && o->launcher)
		r = o->launcher->launch(o->launcher->userdata, theirs, &s->pid, &s->pidfd, e);
	else if (r == 0)
		r = supervisor_spawn(theirs, &s->pid, e);
	return r;
}

int supervisor_start(const struct run_options *o, struct supervisor **ret, struct err *e)
{
	struct supervisor *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return err_set(e, ERR_HOST, ENOMEM, "start the supervisor");
	s->control = s->pidfd = s->spare[0] = s->spare[1] = -1;
	s->launcher = o->launcher;
	r = keep_environments(s, o);
	if (r == 0)
		r = keep_screen(s, o);
	if (r < 0)
		(void)err_set(e, ERR_HOST, -r, "start the supervisor");
	else
		r = get_process(s, o, e);
	if (r < 0) {
		supervisor_stop(s);
		return r;
	}
	*ret = s;
	return 0;
}

void supervisor_stop(struct supervisor *s)
{
	pid_t pid = s ? s->pid : 0;
	auto_fd int pidfd = s ? take_fd(&s->pidfd) : -1;
	struct pollfd end = { .fd = pidfd, .events = POLLIN };

	supervisor_leave(s);
	while (pid > 0 && (pidfd >= 0 ? poll(&end, 1, -1) : waitpid(pid, NULL, 0)) < 0 && errno == EINTR)
		;
}

void supervisor_leave(struct supervisor *s)
{
	if (!s)
		return;
	fd_close(&s->control); /* its end: it kills everything, cleans up, ends */
	fd_close(&s->pidfd);
	fd_close(&s->spare[0]);
	fd_close(&s->spare[1]);
	for (size_t i = 0; i < s->n_environments; i++) {
		struct front_environment *env = &s->environments[i];

		for (size_t k = 0; env->env && env->env[k]; k++)
			free(env->env[k]);
		free(env->env);
		free(env->name);
		free(env->python);
	}
	free(s->environments);
	for (size_t i = 0; s->screen && s->screen[i]; i++)
		free(s->screen[i]);
	free(s->screen);
	free(s);
}

static void take_walls(struct supervisor *s, const struct wire_walls *m)
{
	while (s->n_walls < WALL_REPORTS_MAX && m->walls[s->n_walls].name[0]) {
		s->walls[s->n_walls] = m->walls[s->n_walls];
		s->n_walls++;
	}
}

void supervisor_hear(struct supervisor *s, bool wait)
{
	union {
		struct wire_head head;
		struct wire_walls walls;
		struct wire_failed failed;
	} m;

	while (!s->has_failed && !s->is_ready) {
		ssize_t n = fd_take(s->control, &m, sizeof(m), wait);

		if (n == -EAGAIN)
			return;
		if (n == sizeof(m.walls) && m.head.type == WIRE_WALLS) {
			take_walls(s, &m.walls);
		} else if (n == sizeof(m.head) && m.head.type == WIRE_READY) {
			s->is_ready = true;
		} else if (n == sizeof(m.failed) && m.head.type == WIRE_FAILED) {
			s->has_failed = true;
			s->err = m.failed.err;
		} else if (n <= 0) {
			s->has_failed = true;
			(void)err_set(&s->err, ERR_HOST, 0, "the supervisor ended before it was ready");
		}
	}
}

void supervisor_no_more(struct supervisor *s)
{
	(void)shutdown(s->control, SHUT_WR);
}
