/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/init.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/kernel.h"
#include "sandbox/sys.h"

/* Everything init holds on to. */
struct init {
	int sock;
	const struct home *home;
	const struct sandbox_spec *spec;
	bool has_proc;
};

static int step_maps(struct init *i)
{
	struct init_message m;
	int fds[FD_MAX_PASSED];
	size_t n_fds;

	if (i->home->ids.count == 1) { /* it maps itself: one round trip less */
		if (fd_write_at(AT_FDCWD, "/proc/self/setgroups", "deny") < 0 && errno != ENOENT && errno != EACCES)
			return -1;
		if (fd_write_at(AT_FDCWD, "/proc/self/uid_map", "1000 0 1\n") < 0 ||
		    fd_write_at(AT_FDCWD, "/proc/self/gid_map", "1000 0 1\n") < 0)
			return -1;
		return 0;
	}
	if (fd_recv(i->sock, &m, sizeof(m), fds, &n_fds) <= 0) {
		errno = EPIPE;
		return -1;
	}
	if (setresgid(0, 0, 0) < 0)
		return -1;
	return setresuid(0, 0, 0);
}

static int step_tie(struct init *i)
{
	(void)i;
	return prctl(PR_SET_PDEATHSIG, SIGKILL); /* after the last change of credentials */
}

/*
 * A second wall behind the filters: no user namespace below this one, without which no script could make any other, and few
 * watches.  (Each of these files is made anew with the user namespace, and takes as long as a mount.)
 * What a kernel does not have is left out; a sandbox without /proc/sys (inherited, masked) goes without.
 */
static int step_quota(struct init *i)
{
	static const struct {
		const char *path;
		const char *value;
	} quota[] = {
		{ "/proc/sys/user/max_user_namespaces", "0" },
		{ "/proc/sys/user/max_inotify_instances", "16" },
		{ "/proc/sys/user/max_inotify_watches", "1024" },
	};

	if (!i->home->has_proc)
		return 0;
	for (size_t k = 0; k < ARRAY_LEN(quota); k++) {
		int r = fd_write_at(AT_FDCWD, quota[k].path, quota[k].value);

		if (r < 0 && r != -ENOENT) {
			errno = -r;
			return -1;
		}
	}
	return 0;
}

static int mount_tmpfs(const struct init *i, const char *path, const char *mode, uint64_t bytes, uint32_t files)
{
	char options[128];
	int n;

	/* inodes: the folder itself is one */
	n = snprintf(options, sizeof(options), "mode=%s,size=%llu,nr_inodes=%lu", mode, (unsigned long long)bytes,
		     (unsigned long)files + 1);
	if (i->home->ids.count > 1)
		(void)snprintf(options + n, sizeof(options) - (size_t)n, ",uid=%d,gid=%d", HOME_SANDBOX_UID,
			       HOME_SANDBOX_UID);
	return mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, options);
}

static int step_tmp(struct init *i)
{
	return mount_tmpfs(i, "/tmp", "1777", i->spec->disk_bytes, i->spec->disk_files);
}

static int step_shm(struct init *i)
{
	return mount_tmpfs(i, "/dev/shm", "1777", i->spec->disk_bytes, i->spec->disk_files);
}

/* os.cpu_count() reads this file; the root's says one CPU. */
static int step_cpus(struct init *i)
{
	uint32_t n = (i->spec->cpu_milli + 999) / 1000;
	auto_fd int fd = -1;
	char text[32];

	if (n <= 1)
		return 0;
	(void)snprintf(text, sizeof(text), "0-%u\n", n - 1);
	if (mount("tmpfs", "/sys/devices/system/cpu", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC,
		  "mode=755,size=4k,nr_inodes=4") < 0)
		return -1;
	fd = open("/sys/devices/system/cpu/online", O_WRONLY | O_CREAT | O_CLOEXEC, 0444);
	if (fd < 0 || fd_write_all(fd, text, strlen(text)) < 0)
		return -1;
	fd_close(&fd); /* or the mount is busy */
	return mount(NULL, "/sys/devices/system/cpu", NULL,
		     MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
}

/* The sandbox's own processes only.  Where a fresh proc is refused, the inherited one is covered: no /proc at all. */
static int step_proc(struct init *i)
{
	static const char *const options[] = { "subset=pid,hidepid=invisible", "hidepid=2" };

	for (size_t k = 0; k < ARRAY_LEN(options) && i->home->has_proc; k++) {
		if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, options[k]) == 0) {
			i->has_proc = true;
			return 0;
		}
	}
	return mount("tmpfs", "/proc", "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=555,size=4k");
}

static int step_hostname(struct init *i)
{
	(void)i;
	return sethostname(SANDBOX_NAME, strlen(SANDBOX_NAME));
}

static int step_hide(struct init *i)
{
	(void)i;
	return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

/* In this order; each may rely on those before it. */
static const struct {
	const char *name;
	int (*run)(struct init *);
} steps[] = {
	{ "init-maps", step_maps },   { "init-tie", step_tie }, { "init-quota", step_quota },
	{ "init-tmp", step_tmp },     { "init-shm", step_shm }, { "init-cpus", step_cpus },
	{ "init-proc", step_proc },   { "init-hostname", step_hostname },
	{ "init-hide", step_hide },
};

static int say(const struct init *i, const struct init_message *m, const int *fds, size_t n_fds)
{
	return fd_send(i->sock, m, sizeof(*m), fds, n_fds);
}

static int say_ready(const struct init *i)
{
	struct init_message m = { .word = INIT_READY, .has_proc = i->has_proc };
	struct timespec used;
	static const char *const paths[] = { "/tmp", "/dev/shm", "/proc" };
	int fds[ARRAY_LEN(paths)];

	for (size_t k = 0; k < ARRAY_LEN(paths); k++) {
		fds[k] = open(paths[k], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fds[k] < 0)
			return -errno;
	}
	if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used) == 0)
		m.cpu_ns = (uint64_t)used.tv_sec * NS_PER_SEC + (uint64_t)used.tv_nsec;
	return say(i, &m, fds, ARRAY_LEN(fds));
}

/* Kill everything else and wait for it: one pass is enough, a process with a pending SIGKILL can't fork. */
static void sweep(const struct init *i)
{
	struct init_message m = { .word = INIT_SWEPT };

	(void)kill(-1, SIGKILL);
	while (waitpid(-1, NULL, __WALL) > 0 || errno == EINTR)
		;
	(void)say(i, &m, NULL, 0);
}

void init_let_socket(int listener)
{
	union { /* room for what later kernels put behind it; the kernel wants it cleared */
		struct seccomp_notif call;
		char room[512];
	} in = { .room = { 0 } };
	union {
		struct seccomp_notif_resp answer;
		char room[512];
	} out = { .room = { 0 } };

	if (sys_ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &in) < 0)
		return; /* its caller was killed meanwhile */
	out.answer.id = in.call.id;
	out.answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
	(void)sys_ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &out);
}

static _Noreturn void serve(struct init *i, int signals)
{
	int listener = -1;

	for (;;) {
		struct pollfd p[] = { { .fd = i->sock, .events = POLLIN },
				      { .fd = signals, .events = POLLIN },
				      { .fd = listener, .events = POLLIN } };
		struct signalfd_siginfo info;
		struct init_message m;
		int fds[FD_MAX_PASSED];
		size_t n_fds;

		if (poll(p, ARRAY_LEN(p), -1) < 0)
			continue;
		if (p[1].revents) {
			if (read(signals, &info, sizeof(info)) < 0)
				continue;
			while (waitpid(-1, NULL, WNOHANG | __WALL) > 0)
				;
		}
		if (p[2].revents & POLLIN)
			init_let_socket(listener);
		else if (p[2].revents) /* nobody is left that it was for */
			fd_close(&listener);
		if (!p[0].revents)
			continue;
		if (fd_recv(i->sock, &m, sizeof(m), fds, &n_fds) <= 0)
			_exit(0); /* the supervisor let go of the sandbox */
		if (m.word == INIT_SWEEP)
			sweep(i);
		else if (m.word == INIT_SOCKETS && n_fds == 1 && listener < 0)
			listener = fds[0];
	}
}

_Noreturn void init_main(int sock, const struct home *home, const struct sandbox_spec *spec)
{
	struct init i = { .home = home, .spec = spec };
	sigset_t all;
	int signals;

	(void)sigfillset(&all);
	(void)sigprocmask(SIG_BLOCK, &all, NULL);
	/* nothing of the supervisor's stays open but our end of the socket; until here its table may be ours, too */
	if (close_range((unsigned)sock + 1, ~0u, CLOSE_RANGE_UNSHARE) < 0 || dup2(sock, 0) < 0 || close_range(1, ~0u, 0) < 0)
		_exit(1);
	i.sock = 0;
	for (size_t k = 0; k < ARRAY_LEN(steps); k++) {
		struct init_message m = { .word = INIT_FAILED };

		if (!step_is_failed_on_purpose(steps[k].name) && steps[k].run(&i) == 0)
			continue;
		step_fail_set(&m.fail, steps[k].name, errno);
		(void)say(&i, &m, NULL, 0);
		_exit(1);
	}
	if (chdir("/") < 0 || say_ready(&i) < 0)
		_exit(1);
	(void)close_range(1, ~0u, 0);
	signals = signalfd(-1, &all, SFD_CLOEXEC);
	if (signals < 0)
		_exit(1);
	serve(&i, signals);
}
