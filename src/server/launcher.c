/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process that keeps root's rights.
 *
 * Nothing that a client, a script or a supervisor has written comes here: it reads struct launch_ask, of fixed size,
 * and hands descriptors on.  What the front, once it is somebody else's, can have of it: supervisors, which make
 * sandboxes whose ids are never root's, the server's configuration, and the end of all that.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "server/door.h"
#include "server/launch.h"

#define CHILDREN_MAX 128
#define PATIENCE_NS  (4 * NS_PER_SEC) /* when the front has ended: till SIGTERM, and then till SIGKILL */

struct launcher {
	int sock;
	int ended;                /* signalfd of SIGCHLD */
	struct listener listener; /* what is to be removed in the end */
	pid_t children[CHILDREN_MAX];
	size_t n;
	pid_t door; /* one of them; 0: none so far */
};

static void reap(struct launcher *l)
{
	struct signalfd_siginfo info;
	pid_t pid;

	while (read(l->ended, &info, sizeof(info)) > 0)
		;
	while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) {
		for (size_t i = 0; i < l->n; i++) {
			if (l->children[i] == pid)
				l->children[i--] = l->children[--l->n];
		}
	}
}

/* @pid is one more of ours.  Return: 0 with its pidfd, or -errno with @a->err set */
static int take_child(struct launcher *l, pid_t pid, struct launch_answer *a, int *ret_fd)
{
	int r;

	l->children[l->n++] = pid;
	a->pid = pid;
	*ret_fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (*ret_fd >= 0)
		return 0;
	r = err_set(&a->err, ERR_HOST, errno, "launcher: pidfd_open");
	(void)kill(pid, SIGKILL);
	return r;
}

static int start_supervisor(struct launcher *l, const int *fds, size_t n_fds, struct launch_answer *a, int *ret_fd)
{
	struct stat st;
	pid_t pid;
	int r;

	if (n_fds != 1 || fstat(fds[0], &st) < 0 || !S_ISSOCK(st.st_mode))
		return err_set(&a->err, ERR_BUG, 0, "launcher: one socket is needed");
	if (l->n == CHILDREN_MAX)
		return err_set(&a->err, ERR_HOST, 0, "launcher: too many supervisors");
	r = supervisor_spawn(fds[0], &pid, &a->err);
	return r < 0 ? r : take_child(l, pid, a, ret_fd);
}

static int start_door(struct launcher *l, struct launch_answer *a, int *ret_fd)
{
	pid_t pid;
	int r;

	if (l->n == CHILDREN_MAX)
		return err_set(&a->err, ERR_HOST, 0, "launcher: too many doors");
	r = door_spawn(l->listener.address, &pid, &a->err);
	if (r < 0)
		return r;
	l->door = pid;
	return take_child(l, pid, a, ret_fd);
}

static int send_signal(const struct launcher *l, const struct launch_ask *q, struct launch_answer *a)
{
	if (q->number != SIGTERM && q->number != SIGKILL)
		return err_set(&a->err, ERR_BUG, 0, "launcher: no signal of ours");
	for (size_t i = 0; i < l->n; i++) { /* not reaped yet: the number is still its own */
		if (l->children[i] == q->pid)
			return kill(q->pid, q->number) < 0 ? err_set(&a->err, ERR_HOST, errno, "launcher: kill") : 0;
	}
	return err_set(&a->err, ERR_NOT_FOUND, ESRCH, "launcher: kill");
}

static int open_settings(const struct launch_ask *q, struct launch_answer *a, int *ret_fd)
{
	if (q->number != SETTINGS_SYSTEM && q->number != SETTINGS_USER)
		return err_set(&a->err, ERR_BUG, 0, "launcher: no file of ours");
	*ret_fd = settings_open((enum settings_file)q->number, environ);
	return *ret_fd < 0 ? err_set(&a->err, ERR_HOST, -*ret_fd, "launcher: configuration") : 0;
}

/* Return: 0; -errno: the front has ended, or breaks the rules */
static int serve_one(struct launcher *l)
{
	struct launch_answer a = { .pid = 0 };
	struct launch_ask q;
	int fds[FD_MAX_PASSED];
	size_t n_fds;
	ssize_t n = fd_recv(l->sock, &q, sizeof(q), fds, &n_fds);
	auto_fd int fd = -1;
	int r;

	if (n == -EAGAIN)
		return 0;
	a.error = -EPROTO;
	if (n == (ssize_t)sizeof(q)) {
		switch (q.what) {
		case LAUNCH_SUPERVISOR:
			a.error = start_supervisor(l, fds, n_fds, &a, &fd);
			break;
		case LAUNCH_SIGNAL:
			a.error = send_signal(l, &q, &a);
			break;
		case LAUNCH_SETTINGS:
			a.error = open_settings(&q, &a, &fd);
			break;
		case LAUNCH_UNLISTEN:
			listener_remove(&l->listener);
			a.error = 0;
			break;
		case LAUNCH_DOOR:
			a.error = start_door(l, &a, &fd);
			break;
		default:
			break;
		}
	}
	for (size_t i = 0; i < n_fds; i++)
		fd_close(&fds[i]);
	if (n != (ssize_t)sizeof(q))
		return -EPIPE;
	r = fd_send(l->sock, &a, sizeof(a), &fd, fd >= 0);
	return r;
}

/* The front's end: supervisors see it themselves, by their control sockets. */
_Noreturn static void end(struct launcher *l)
{
	static const int signals[] = { 0, SIGTERM, SIGKILL };

	for (size_t k = 0; k < l->n; k++) {
		if (l->children[k] == l->door) /* it has nobody to ask any more */
			(void)kill(l->door, SIGTERM);
	}
	fd_close(&l->sock);
	listener_remove_late(&l->listener);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
		uint64_t until = clock_now_ns() + PATIENCE_NS;

		for (size_t k = 0; k < l->n && signals[i]; k++)
			(void)kill(l->children[k], signals[i]);
		for (reap(l); l->n && clock_now_ns() < until; reap(l)) {
			struct pollfd p = { .fd = l->ended, .events = POLLIN };

			(void)poll(&p, 1, 100);
		}
	}
	_exit(0);
}

/* Keep what is ours alone: no signal that was meant for the server, no descriptor of the front's. */
static void prepare(struct launcher *l, int sock)
{
	sigset_t set;

	(void)sigfillset(&set);
	(void)sigprocmask(SIG_BLOCK, &set, NULL);
	(void)prctl(PR_SET_NAME, "cloche-launcher");
	if (dup2(sock, 3) < 0 || close_range(4, ~0U, 0) < 0)
		_exit(125);
	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGCHLD);
	l->sock = 3;
	l->ended = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (l->ended < 0 || fd_cloexec(3, true) < 0 || chdir("/") < 0)
		_exit(125);
}

_Noreturn void launcher_run(int sock, const struct listener *listener)
{
	struct launcher l = { .listener = *listener };

	prepare(&l, sock);
	l.listener.fd = l.listener.lock = -1; /* the front's, and only its */
	for (;;) {
		struct pollfd p[] = { { .fd = l.sock, .events = POLLIN }, { .fd = l.ended, .events = POLLIN } };

		if (poll(p, 2, -1) < 0)
			continue;
		if (p[1].revents)
			reap(&l);
		if (p[0].revents && serve_one(&l) < 0)
			end(&l);
	}
}
