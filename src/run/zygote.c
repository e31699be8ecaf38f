/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor's hold on its zygotes: see zygote.h. */
#include "run/zygote.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/kernel.h"
#include "run/zygote_text.h"

#define PID_HIGH "1000" /* one more is the first that a new zygote can have */

/* OpenSSL notices a fork by the process id: the first processes of a sandbox must never have the zygote's. */
static int raise_pids(const struct outside *o)
{
	char text[32];
	ssize_t n = fd_read_at(o->proc, "sys/kernel/ns_last_pid", text, sizeof(text));

	if (n > 0 && strtol(text, NULL, 10) >= ZYGOTE_PID_MIN)
		return 0;
	if (n > 0 && fd_write_at(o->proc, "sys/kernel/ns_last_pid", PID_HIGH) == 0)
		return 0;
	for (int i = 0; i < ZYGOTE_PID_MIN; i++) { /* /proc can't be written here: use them up */
		struct clone_args args = { .exit_signal = SIGCHLD };
		pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));

		if (pid < 0)
			return -errno;
		if (pid == 0)
			_exit(0);
		(void)waitpid(pid, NULL, 0);
		if (pid >= ZYGOTE_PID_MIN)
			break;
	}
	return 0;
}

/* The interpreter starts with a script, as for a job; the script is the zygote's own program. */
static int put_program(void)
{
	auto_fd int fd = -1;

	/* the supervisor may share its network with a sandbox; and what a module learns of the host's name stays in all forks */
	if (unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWUTS) < 0 || sethostname(SANDBOX_NAME, strlen(SANDBOX_NAME)) < 0 ||
	    mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=8m,nr_inodes=256") < 0)
		return -1;
	fd = open(ZYGOTE_SCRIPT, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		return -1;
	return fd_write_all(fd, zygote_text, sizeof(zygote_text) - 1) < 0 ? -1 : 0;
}

static int put_descriptors(int in, int out, int control, int extension)
{
	int fds[] = { in, out, out, control, extension };

	for (int i = 0; i < (int)ARRAY_LEN(fds); i++) { /* out of the way */
		fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 16);
		if (fds[i] < 0)
			return -1;
	}
	for (int i = 0; i < (int)ARRAY_LEN(fds); i++) {
		if (dup2(fds[i], i) < 0)
			return -1;
	}
	return close_range(ARRAY_LEN(fds), ~0u, 0);
}

static void reset_signals(void)
{
	sigset_t none;

	for (int i = 1; i < NSIG; i++)
		(void)signal(i, SIG_DFL);
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/* In the new process: its words go to its output, which the supervisor reads when it has ended. */
static _Noreturn void start_interpreter(const struct outside *o, unsigned env, const struct zygote_plan *plan,
					const int fds[3])
{
	char script[] = ZYGOTE_SCRIPT;
	char *argv[] = { (char *)(uintptr_t)plan->python, script, NULL }; /* execve does not write them */
	const char *what = NULL;

	reset_signals();
	(void)umask(022);
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || setsid() < 0)
		what = "leave the supervisor's session";
	else if (o->home->mnt[env] >= 0 && setns(o->home->mnt[env], CLONE_NEWNS) < 0)
		what = "enter the environment's files";
	else if (put_program() < 0)
		what = "put the program into /tmp";
	else if (chdir("/tmp") < 0)
		what = "enter /tmp";
	else if (put_descriptors(fds[0], fds[1], fds[2], plan->extension) < 0)
		what = "put the descriptors in order";
	if (!what) {
		(void)execve(plan->python, argv, (char **)(uintptr_t)plan->env);
		what = "execute the interpreter";
	}
	(void)dprintf(fcntl(fds[1], F_GETFD) < 0 ? 1 : fds[1], "%s: %s\n", what, strerror(errno));
	_exit(127);
}

static char **copy_list(const char *const *list)
{
	size_t n = 0;
	char **copy;

	while (list[n])
		n++;
	copy = calloc(n + 1, sizeof(*copy));
	for (size_t i = 0; copy && i < n; i++) {
		copy[i] = strdup(list[i]);
		if (!copy[i])
			return NULL; /* on the way to -ENOMEM: the rest is not worth a path of its own */
	}
	return copy;
}

static int send_setup(const struct zygote *z, const struct zygote_plan *plan, struct err *e)
{
	auto_free struct zygote_modules *m = calloc(1, sizeof(*m));
	int r;

	if (!m)
		return err_set(e, ERR_HOST, ENOMEM, "start a zygote");
	m->word = ZYGOTE_SETUP;
	for (size_t i = 0; plan->modules[i]; i++) {
		size_t len = strlen(plan->modules[i]) + 1;

		if (len > ZYGOTE_NAMES - m->len)
			return err_set(e, ERR_INVALID, 0, "too many modules to import beforehand");
		memcpy(m->names + m->len, plan->modules[i], len);
		m->len += (uint32_t)len;
	}
	r = fd_send(z->sock, m, offsetof(struct zygote_modules, names) + m->len, NULL, 0);
	return r < 0 ? err_set(e, ERR_HOST, -r, "talk to a zygote") : 0;
}

static int start(struct outside *o, unsigned env, const struct zygote_plan *plan, struct zygote *z, struct err *e)
{
	struct clone_args args = { .flags = CLONE_PIDFD, .pidfd = (uintptr_t)&z->pidfd, .exit_signal = SIGCHLD };
	auto_fd int theirs = -1;
	auto_fd int nothing = -1;
	auto_fd int out = -1;
	struct timespec now;
	int pair[2];
	pid_t pid;

	z->python = strdup(plan->python);
	z->env = copy_list(plan->env);
	if (!z->python || !z->env)
		return err_set(e, ERR_HOST, ENOMEM, "start a zygote");
	if (pipe2(pair, O_CLOEXEC) < 0)
		return err_set(e, ERR_HOST, errno, "make a pipe");
	nothing = pair[0]; /* pipes, as every script has them: the interpreter looks at what its streams are */
	(void)close(pair[1]);
	if (pipe2(pair, O_CLOEXEC) < 0)
		return err_set(e, ERR_HOST, errno, "make a pipe");
	z->says = pair[0];
	out = pair[1];
	(void)fcntl(z->says, F_SETFL, O_NONBLOCK);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_set(e, ERR_HOST, errno, "make a socket pair");
	z->sock = pair[0];
	theirs = pair[1];
	(void)fcntl(z->sock, F_SETFL, O_NONBLOCK);
	(void)clock_gettime(CLOCK_REALTIME_COARSE, &now);
	z->began_ns = (uint64_t)now.tv_sec * NS_PER_SEC + (uint64_t)now.tv_nsec;
	if (raise_pids(o) < 0)
		return err_set(e, ERR_HOST, errno, "use up low process ids");
	pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
	if (pid < 0)
		return err_set(e, ERR_HOST, errno, "start a zygote");
	if (pid == 0)
		start_interpreter(o, env, plan, (int[]) { nothing, out, theirs });
	z->pid = pid;
	z->started_ns = clock_now_ns();
	return send_setup(z, plan, e);
}

int zygote_start(struct outside *o, unsigned env, const struct zygote_plan *plan, struct zygote *ret, struct err *e)
{
	struct zygote z = ZYGOTE_EMPTY;
	int r;

	z.environment = env;
	r = start(o, env, plan, &z, e);
	if (r < 0) {
		zygote_stop(&z);
		return r;
	}
	*ret = z;
	return 0;
}

/* What it tells of itself: from our own program, but a process that runs an environment's modules. */
static int take_ready(struct zygote *z, const struct zygote_modules *m, size_t len)
{
	size_t names = len - offsetof(struct zygote_modules, names);

	if (z->is_ready || m->len > names || m->paths_len != names - m->len || (names > 0 && m->names[names - 1] != '\0') ||
	    (m->len > 0 && m->names[m->len - 1] != '\0'))
		return ZYGOTE_SAID_END;
	z->modules = malloc(names + 1);
	if (!z->modules)
		return ZYGOTE_SAID_END;
	memcpy(z->modules, m->names, names);
	z->modules_len = m->len;
	z->paths = z->modules + m->len;
	z->paths_len = m->paths_len;
	z->version = m->version;
	z->n_failed = m->n_failed;
	z->is_plain = m->is_plain;
	z->is_ready = true;
	return ZYGOTE_SAID_READY;
}

int zygote_hear(struct zygote *z, struct zygote_news *ret)
{
	static union {
		uint32_t word;
		struct zygote_modules ready;
		struct zygote_forked forked;
	} m; /* too large for a stack that others share */
	int fds[FD_MAX_PASSED];
	size_t n_fds = 0;
	ssize_t n = fd_recv(z->sock, &m, sizeof(m), fds, &n_fds);

	if (n == -EAGAIN || n == -EINTR)
		return ZYGOTE_SAID_NOTHING;
	for (size_t i = 0; n > 0 && i < n_fds; i++)
		fd_close(&fds[i]);
	if (n >= (ssize_t)offsetof(struct zygote_modules, names) && m.word == ZYGOTE_READY)
		return take_ready(z, &m.ready, (size_t)n);
	if (n != sizeof(m.forked) || m.word != ZYGOTE_FORKED)
		return ZYGOTE_SAID_END;
	*ret = (struct zygote_news) { .tag = m.forked.tag, .pid = m.forked.pid, .sys = m.forked.sys };
	return ZYGOTE_SAID_FORKED;
}

void zygote_last_words(const struct zygote *z, char *ret, size_t size)
{
	char text[4096];
	ssize_t n;
	char *line;

	ret[0] = '\0';
	for (;;) { /* the last part of it */
		n = read(z->says, text, sizeof(text) - 1);
		if (n <= 0)
			break;
		while (n > 0 && text[n - 1] == '\n')
			n--;
		text[n] = '\0';
		line = strrchr(text, '\n');
		(void)snprintf(ret, size, "%s", line ? line + 1 : text);
	}
	for (size_t i = 0; ret[i]; i++) {
		if ((unsigned char)ret[i] < ' ')
			ret[i] = ' ';
	}
}

static void fill_request(struct zygote_fork *f, const struct outside *o, const struct sandbox *s)
{
	f->spec = s->spec;
	f->n_ids = o->home->ids.count;
	f->has_cgroup_ns = o->home->has_cgroup_ns;
	f->has_landlock = o->home->has_landlock;
	f->has_proc = o->home->has_proc;
	f->is_sampled = sandbox_is_sampled(s);
	f->is_cgroup_v2 = s->cgroup.kind == CGROUP_V2;
	f->cpu = s->cgroup.has & CGROUP_CPU ? -1 : (int)s->slot;
	if (s->spec.cpu_ns) /* as sandbox_spawn() does for the main process */
		f->cpu_seconds = (uint32_t)(s->spec.cpu_ns / NS_PER_SEC) + 2;
}

/* What the child joins: v1 by writing to each, v2 by being born there.  Return: how many */
static size_t cgroup_fds(const struct cgroup *g, int fds[CGROUP_HIERARCHIES])
{
	size_t n = 0;

	if (g->kind == CGROUP_V2)
		fds[n++] = g->dir[0];
	for (int i = 0; i < CGROUP_HIERARCHIES && g->kind == CGROUP_V1; i++) {
		if (g->tasks[i] >= 0)
			fds[n++] = g->tasks[i];
	}
	return n;
}

/* NOLINTNEXTLINE(readability-function-size): its callers have each of these apart, and there is one of them */
int zygote_ask(const struct outside *o, struct zygote *z, struct sandbox *s, uint32_t tag, bool is_touched,
	       const int fds[3], struct sandbox_child *ret, struct err *e)
{
	struct zygote_fork f = { .word = ZYGOTE_FORK, .tag = tag, .is_touched = is_touched };
	int all[5 + CGROUP_HIERARCHIES] = { s->init_fd, fds[0], fds[1], fds[2], -1 };
	auto_fd int ours = -1;
	auto_fd int theirs = -1;
	int pair[2];
	int r;

	if (!z->is_ready)
		return err_set(e, ERR_BUSY, EAGAIN, "the zygote is not ready");
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_set(e, ERR_HOST, errno, "make a socket pair");
	ours = pair[0];
	theirs = pair[1];
	(void)fcntl(ours, F_SETFL, O_NONBLOCK);
	all[4] = theirs;
	fill_request(&f, o, s);
	r = sandbox_rouse(o, s, e);
	if (r < 0)
		return r;
	r = fd_send(z->sock, &f, sizeof(f), all, 5 + cgroup_fds(&s->cgroup, all + 5));
	sandbox_rest(s);
	if (r < 0)
		return err_set(e, r == -EAGAIN ? ERR_BUSY : ERR_HOST, -r, "ask a zygote for a process");
	z->forks++;
	*ret = (struct sandbox_child)SANDBOX_CHILD_EMPTY;
	ret->status = take_fd(&ours);
	return 0;
}

int zygote_adopt(struct sandbox_child *c, pid_t pid, struct err *e)
{
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0); /* it is our child: not reaped, so still this one */

	if (pidfd < 0)
		return err_set(e, ERR_HOST, errno, "open a zygote's child");
	c->pid = pid;
	c->pidfd = pidfd;
	return 0;
}

int zygote_parked(struct sandbox_child *c, struct err *e)
{
	union {
		struct zygote_parked parked;
		struct step_fail fail;
	} m;
	int fds[FD_MAX_PASSED];
	size_t n_fds = 0;
	ssize_t n = fd_recv(c->status, &m, sizeof(m), fds, &n_fds);

	if (n == -EAGAIN)
		return 0;
	for (size_t i = 0; i < n_fds; i++) {
		if (c->listener < 0 && n == sizeof(m.parked))
			c->listener = take_fd(&fds[i]);
		fd_close(&fds[i]);
	}
	if (n == sizeof(m.parked) && m.parked.word == ZYGOTE_READY)
		return 1;
	if (n != sizeof(m.fail))
		return err_set(e, ERR_HOST, 0, "the process ended before it was locked down");
	m.fail.step[sizeof(m.fail.step) - 1] = '\0';
	return err_set(e, ERR_HOST, m.fail.sys, "lock the sandbox down: step %s", m.fail.step);
}

int zygote_go(struct sandbox_child *c, int bundle, const char *body, size_t len, bool is_buffered)
{
	struct zygote_go go = { .is_buffered = is_buffered };

	if (bundle >= 0)
		return fd_send(c->status, &go, offsetof(struct zygote_go, body), &bundle, 1);
	if (len > sizeof(go.body))
		return -EMSGSIZE;
	memcpy(go.body, body, len);
	return fd_send(c->status, &go, offsetof(struct zygote_go, body) + len, NULL, 0);
}

void zygote_reap_strays(bool (*is_known)(pid_t pid, void *arg), void *arg)
{
	for (;;) {
		siginfo_t info = { 0 };

		if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) < 0 || info.si_pid == 0 ||
		    is_known(info.si_pid, arg))
			return;
		(void)waitpid(info.si_pid, NULL, __WALL);
	}
}

static void free_list(char **list)
{
	for (size_t i = 0; list && list[i]; i++)
		free(list[i]);
	free(list);
}

void zygote_stop(struct zygote *z)
{
	fd_close(&z->sock);
	if (z->pid > 0) {
		(void)kill(z->pid, SIGKILL);
		(void)waitpid(z->pid, NULL, __WALL);
	}
	fd_close(&z->pidfd);
	fd_close(&z->says);
	free(z->modules);
	free(z->python);
	free_list(z->env);
	*z = (struct zygote)ZYGOTE_EMPTY;
}
