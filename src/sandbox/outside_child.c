/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of a sandbox beside its init, from outside: made, heard, ended. */
#include "sandbox/outside.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "base/kernel.h"
#include "sandbox/child.h"
#include "sandbox/init.h"
#include "sandbox/stat.h"
#include "sandbox/sys.h"

/* What differs between the roles; the lock-down is the same. */
static void role_dress(struct inside *in, enum sandbox_role role)
{
	switch (role) {
	case SANDBOX_MAIN:
		if (in->spec->cpu_ns)
			in->cpu_seconds = inside_cpu_seconds(in->spec);
		break;
	case SANDBOX_SCREEN:
		in->address_space = UINT64_C(256) << 20;
		in->cpu_seconds = 3;
		break;
	case SANDBOX_COLLECT:
	case SANDBOX_PROBE:
		in->cgroup = NULL;
		in->address_space = UINT64_C(256) << 20;
		in->cpu_seconds = 20;
		break;
	}
}

/* Clone into the sandbox's processes; 0 in the child.  The supervisor itself stays where it is. */
static pid_t clone_into(struct outside *o, const struct sandbox *s, bool is_accounted, int *ret_pidfd, struct err *e)
{
	struct clone_args args = {
		.flags = CLONE_PIDFD,
		.pidfd = (uint64_t)(uintptr_t)ret_pidfd,
		.exit_signal = SIGCHLD,
	};
	pid_t pid;

	if (is_accounted && s->cgroup.kind == CGROUP_V2) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (uint32_t)s->cgroup.dir[0];
	}
	if (setns(s->init_fd, CLONE_NEWPID) < 0)
		return err_set(e, ERR_HOST, errno, "enter the sandbox's processes");
	pid = step_is_failed_on_purpose("spawn") ? -1 : sys_clone3(&args);
	if (pid == 0)
		return 0;
	if (pid < 0)
		(void)err_set(e, ERR_HOST, errno, "start a process in the sandbox");
	if (setns(o->pid, CLONE_NEWPID) < 0 && pid > 0) /* what is cloned next must not be born in there */
		return err_set(e, ERR_BUG, errno, "go back to our own processes");
	return pid < 0 ? -e->sys : pid;
}

int sandbox_spawn(struct outside *o, struct sandbox *s, const struct sandbox_task *task, struct sandbox_child *ret,
		  struct err *e)
{
	struct inside in = {
		.home = o->home,
		.spec = &s->spec,
		.cgroup = s->cgroup.kind == CGROUP_NONE ? NULL : &s->cgroup,
		.init = s->init_fd,
		.in = task->fds[0],
		.out = task->fds[1],
		.err = task->fds[2],
		.is_sampled = sandbox_is_sampled(s),
		.cpu = s->cgroup.has & CGROUP_CPU ? -1 : (int)s->slot,
	};
	struct sandbox_child c = SANDBOX_CHILD_EMPTY;
	auto_fd int theirs = -1;
	int listener = -1;
	int pair[2];
	int r;

	s->has_socket = true; /* or may: it is not watched */
	role_dress(&in, task->role);
	if (task->role == SANDBOX_MAIN)
		in.ret_listener = &listener;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
		return err_set(e, ERR_HOST, errno, "make a socket pair");
	c.status = pair[0];
	theirs = pair[1];
	in.status = theirs;
	r = sandbox_rouse(o, s, e);
	c.pid = r < 0 ? r : clone_into(o, s, in.cgroup, &c.pidfd, e);
	if (c.pid == 0)
		child_main(&in, task->role, task->bundle, task->bundle_len);
	sandbox_rest(s);
	if (c.pid < 0) {
		fd_close(&c.status);
		return (int)c.pid;
	}
	*ret = c;
	return 0;
}

int sandbox_told(struct sandbox_child *c, struct step_fail *ret)
{
	int fds[FD_MAX_PASSED];
	size_t n_fds;
	ssize_t n;

	do {
		n = fd_recv(c->status, ret, sizeof(*ret), fds, &n_fds);
		for (size_t i = 0; i < n_fds; i++) {
			if (n == 1 && c->listener < 0)
				c->listener = take_fd(&fds[i]);
			fd_close(&fds[i]);
		}
	} while (n == 1 || n == -EMSGSIZE); /* the listener, or one for which there was no room */
	if (n == -EAGAIN)
		return 0;
	if (n == 0)
		return 1;
	if (n != sizeof(*ret))
		step_fail_set(ret, "status", n < 0 ? (int)-n : EBADMSG);
	ret->step[sizeof(ret->step) - 1] = '\0';
	return -ECANCELED;
}

int sandbox_reap(struct sandbox_child *c, siginfo_t *ret_info, struct rusage *ret_usage)
{
	siginfo_t info = { 0 };
	struct rusage usage = { 0 };

	/* the raw call: it alone also tells the resource usage */
	if (syscall(SYS_waitid, P_PIDFD, c->pidfd, &info, WEXITED | WNOHANG | __WALL, &usage) < 0)
		return -errno;
	if (info.si_pid == 0)
		return 0;
	fd_close(&c->pidfd);
	fd_close(&c->listener);
	fd_close(&c->status);
	fd_close(&c->line);
	c->pid = 0;
	*ret_info = info;
	*ret_usage = usage;
	return 1;
}

void sandbox_let_socket(struct sandbox *s, struct sandbox_child *c)
{
	struct init_message m = { .word = INIT_SOCKETS };

	s->has_socket = true;
	if (fd_send(s->init_sock, &m, sizeof(m), &c->listener, 1) < 0)
		init_let_socket(c->listener);
	fd_close(&c->listener);
}

int sandbox_signal(const struct sandbox_child *c, int sig)
{
	return sys_pidfd_send_signal(c->pidfd, sig) < 0 ? -errno : 0;
}

void sandbox_watch_end(const struct outside *o, struct sandbox_child *c)
{
	fd_close(&c->line);
	c->line = stat_open(o->proc, c->pid);
}

int sandbox_foresee(const struct outside *o, const struct sandbox_child *c, int *ret_status)
{
	return c->line < 0 ? 0 : stat_foresee(o->proc, c->line, c->pid, ret_status);
}
