/* SPDX-License-Identifier: Apache-2.0 */
/* The front's half of launch.h. */
#include "server/launch.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"

#define ANSWER_MS 10000

/* Ask, and wait for the answer.  @ret_fd: owned by the caller, -1 when none came.  Return: 0 or -errno with @e set */
static int ask(struct launch *l, const struct launch_ask *q, int fd, struct launch_answer *ret, int *ret_fd,
	       struct err *e)
{
	int fds[FD_MAX_PASSED];
	size_t n_fds = 0;
	struct pollfd p = { .fd = l->sock, .events = POLLIN };
	int r = fd_send(l->sock, q, sizeof(*q), &fd, fd >= 0);
	ssize_t n;

	if (r < 0)
		return err_set(e, ERR_HOST, -r, "ask the launcher");
	while (poll(&p, 1, ANSWER_MS) < 0 && errno == EINTR)
		;
	n = p.revents ? fd_recv(l->sock, ret, sizeof(*ret), fds, &n_fds) : -ETIMEDOUT;
	for (size_t i = ret_fd ? 1 : 0; i < n_fds; i++)
		fd_close(&fds[i]);
	if (ret_fd)
		*ret_fd = n_fds ? fds[0] : -1;
	if (n != (ssize_t)sizeof(*ret)) {
		(void)shutdown(l->sock, SHUT_RDWR); /* an answer that comes late would be taken for the next one */
		if (ret_fd)
			fd_close(ret_fd);
		return err_set(e, ERR_HOST, n < 0 ? (int)-n : EPIPE, "the launcher does not answer");
	}
	if (ret->error < 0)
		*e = ret->err;
	return ret->error;
}

/* Have a process started, with @fd.  Return: 0 or -errno with @e set */
static int start(struct launch *l, enum launch_what what, int fd, pid_t *ret_pid, int *ret_pidfd, struct err *e)
{
	struct launch_ask q = { .what = what };
	struct launch_answer a;
	int pidfd = -1;
	int r = ask(l, &q, fd, &a, &pidfd, e);

	if (r == 0 && pidfd < 0)
		r = err_set(e, ERR_BUG, 0, "the launcher gave no descriptor");
	if (r < 0) {
		fd_close(&pidfd);
		return r;
	}
	*ret_pid = a.pid;
	*ret_pidfd = pidfd;
	return 0;
}

static int launch_supervisor(void *userdata, int control, pid_t *ret_pid, int *ret_pidfd, struct err *e)
{
	return start(userdata, LAUNCH_SUPERVISOR, control, ret_pid, ret_pidfd, e);
}

int launch_door(struct launch *l, pid_t *ret_pid, int *ret_pidfd, struct err *e)
{
	return start(l, LAUNCH_DOOR, -1, ret_pid, ret_pidfd, e);
}

static void launch_signal(void *userdata, pid_t pid, int sig)
{
	struct launch_ask q = { .what = LAUNCH_SIGNAL, .pid = pid, .number = sig };
	struct launch_answer a;
	struct err e;

	(void)ask(userdata, &q, -1, &a, NULL, &e); /* it may have ended */
}

int launch_settings(void *userdata, enum settings_file which)
{
	struct launch_ask q = { .what = LAUNCH_SETTINGS, .number = (int32_t)which };
	struct launch_answer a;
	struct err e;
	int fd = -1;
	int r = ask(userdata, &q, -1, &a, &fd, &e);

	if (r < 0)
		fd_close(&fd);
	return r < 0 ? r : fd;
}

void launch_unlisten(struct launch *l)
{
	struct launch_ask q = { .what = LAUNCH_UNLISTEN };
	struct launch_answer a;
	struct err e;

	if (l->sock >= 0)
		(void)ask(l, &q, -1, &a, NULL, &e);
}

void launch_end(struct launch *l)
{
	fd_close(&l->sock);
	while (l->pid > 0 && waitpid(l->pid, NULL, 0) < 0 && errno == EINTR)
		;
	l->pid = 0;
}

int launch_split(struct launch *ret, struct listener *l, const struct front_user *u, struct err *e)
{
	int pair[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_set(e, ERR_HOST, errno, "start the launcher");
	pid = fork();
	if (pid == 0) {
		(void)close(pair[0]);
		launcher_run(pair[1], l);
	}
	(void)close(pair[1]);
	if (pid < 0) {
		(void)close(pair[0]);
		return err_set(e, ERR_HOST, errno, "start the launcher");
	}
	*ret = (struct launch) { .sock = pair[0], .pid = pid };
	ret->by =
		(struct supervisor_launcher) { .userdata = ret, .launch = launch_supervisor, .signal = launch_signal };
	l->is_others = true;
	return confine(u, e);
}
