/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/home.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "sandbox/step.h"
#include "sandbox/sys.h"

/* Host ids from here on belong to nobody: above systemd's container range, below the signed limit. */
#define RANGE_FIRST UINT64_C(1879048192)
#define RANGE_END   UINT64_C(2147352576)

#define FILES_WANTED (32u * SANDBOX_SLOTS)

/*
 * Every supervisor takes a block of its own at random, so that two of them share no uid: of 32,700 blocks, or of the
 * upper half of what a container was given.
 */
static bool range_take(const char *maps, uint32_t *ret_first)
{
	uint64_t inside, outside, count, first, blocks, pick;
	char *copy;
	char *save = NULL;
	bool is_found = false;

	if (getrandom(&pick, sizeof(pick), 0) != sizeof(pick))
		return false;
	copy = strdup(maps);
	if (!copy)
		return false;
	for (char *line = strtok_r(copy, "\n", &save); line && !is_found; line = strtok_r(NULL, "\n", &save)) {
		if (sscanf(line, "%" SCNu64 " %" SCNu64 " %" SCNu64, &inside, &outside, &count) != 3)
			continue;
		if (inside + count >= RANGE_END && inside <= RANGE_FIRST) {
			first = RANGE_FIRST;
			blocks = (RANGE_END - RANGE_FIRST) / HOME_IDS;
		} else {
			first = inside + count / 2;
			blocks = count / 2 / HOME_IDS;
		}
		if (blocks == 0)
			continue;
		*ret_first = (uint32_t)(first + pick % blocks * HOME_IDS);
		is_found = true;
	}
	free(copy);
	return is_found;
}

/* Root without these (a container that dropped them) is treated as an ordinary user. */
static bool may_map(void)
{
	const uint32_t needed = 1u << CAP_SETUID | 1u << CAP_SETGID | 1u << CAP_SYS_ADMIN | 1u << CAP_CHOWN;
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];

	return syscall(SYS_capget, &header, data) == 0 && (data[0].effective & needed) == needed;
}

void home_ids(struct home_ids *ret)
{
	char uid_map[1024];
	char gid_map[1024];
	uint32_t uid;
	uint32_t gid;

	*ret = (struct home_ids) { .uid = geteuid(), .gid = getegid(), .count = 1 };
	if (ret->uid != 0 || !may_map())
		return;
	if (fd_read_at(AT_FDCWD, "/proc/self/uid_map", uid_map, sizeof(uid_map)) < 0 ||
	    fd_read_at(AT_FDCWD, "/proc/self/gid_map", gid_map, sizeof(gid_map)) < 0)
		return;
	if (!range_take(uid_map, &uid) || !range_take(gid_map, &gid))
		return;
	*ret = (struct home_ids) { .uid = uid, .gid = gid, .count = HOME_IDS, .is_given = 1 };
}

/* A sandbox takes up to 27 descriptors of the supervisor's, and login sessions start with 1,024.  Scripts have their
 * own limit. */
static void raise_files(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) < 0)
		return;
	if (l.rlim_max < FILES_WANTED) {
		struct rlimit more = { FILES_WANTED, FILES_WANTED }; /* real root's to give */

		if (setrlimit(RLIMIT_NOFILE, &more) == 0)
			return;
	}
	l.rlim_cur = l.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &l);
}

int home_clone(struct home *home, struct home_child *ret, struct err *e)
{
	struct home_child c = { .pidfd = -1 };
	struct clone_args args = {
		.flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_PIDFD,
		.pidfd = (uintptr_t)&c.pidfd,
		.exit_signal = SIGCHLD,
	};
	int pair[2];

	if (home->cgroup.sup_dir >= 0) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (uint32_t)home->cgroup.sup_dir;
	}
	raise_files();
	if (step_is_failed_on_purpose("clone") || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_set(e, ERR_HOST, errno, "clone");
	c.pid = sys_clone3(&args);
	if (c.pid == 0) {
		(void)close(pair[1]);
		home->network = fcntl(pair[0], F_DUPFD, 50); /* it is to survive the exec */
		return home->network < 0 ? err_set(e, ERR_HOST, errno, "keep the way to the outer supervisor") : 0;
	}
	(void)close(pair[0]);
	c.network = pair[1];
	if (c.pid < 0) {
		int sys = errno;

		(void)close(pair[1]);
		return err_set(e, ERR_HOST, sys, "make the supervisor's namespaces");
	}
	*ret = c;
	return 1;
}

void home_reap_maker(struct home_child *c)
{
	if (c->maker > 0)
		(void)waitpid(c->maker, NULL, 0);
	c->maker = 0;
}

void home_child_done(struct home_child *c)
{
	home_reap_maker(c);
	fd_close(&c->pidfd);
	fd_close(&c->network);
}

int home_raise_lo(void)
{
	struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	auto_fd int sock =
		socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0); /* any family will do, and this one is cheap */

	return sock < 0 || ioctl(sock, SIOCSIFFLAGS, &lo) < 0 ? -errno : 0;
}

/* An errno, and the namespace if that is 0. */
void home_make_network(struct home_child *c)
{
	struct clone_args args = { .exit_signal = SIGCHLD };
	int32_t why = 0;
	int fd = -1;

	c->maker = sys_clone3(&args);
	if (c->maker > 0)
		return;
	if (c->maker == 0 && (setns(c->pidfd, CLONE_NEWUSER) < 0 || unshare(CLONE_NEWNET) < 0 || home_raise_lo() < 0))
		why = errno;
	else if (c->maker == 0)
		fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (fd < 0 && why == 0)
		why = errno;
	(void)fd_send(c->network, &why, sizeof(why), &fd, fd >= 0);
	if (c->maker == 0)
		_exit(0);
}

int home_enter_network(struct home *home, struct err *e)
{
	int fds[FD_MAX_PASSED] = { -1 };
	int32_t why;
	size_t n_fds;
	ssize_t n = fd_recv(home->network, &why, sizeof(why), fds, &n_fds);

	fd_close(&home->network);
	if (n != (ssize_t)sizeof(why))
		return err_set(e, ERR_HOST, 0, "the outer supervisor is gone");
	if (why == 0)
		why = n_fds != 1 ? EPROTO : setns(fds[0], CLONE_NEWNET) < 0 ? errno : 0;
	for (size_t i = 0; i < n_fds; i++)
		fd_close(&fds[i]);
	return why ? err_set(e, ERR_HOST, why, "make the supervisor's network namespace") : 0;
}

static int map_write(const char *path, const struct home_ids *ids, uint32_t first, struct err *e)
{
	char text[64];
	int r;

	(void)snprintf(text, sizeof(text), "0 %" PRIu32 " %" PRIu32 "\n", first, ids->count);
	r = fd_write_at(AT_FDCWD, path, text);
	return r < 0 ? err_set(e, ERR_HOST, -r, "write %s", path) : 0;
}

int home_map(const struct home_child *c, const struct home_ids *ids, struct err *e)
{
	char path[64];
	int r;

	if (!ids->is_given)
		return 0; /* it maps itself */
	(void)snprintf(path, sizeof(path), "/proc/%d/uid_map", (int)c->pid);
	r = map_write(path, ids, ids->uid, e);
	if (r < 0)
		return r;
	(void)snprintf(path, sizeof(path), "/proc/%d/gid_map", (int)c->pid);
	return map_write(path, ids, ids->gid, e);
}

int home_become_root(const struct home_ids *ids, struct err *e)
{
	int r;

	if (step_is_failed_on_purpose("ids-home"))
		return err_set(e, ERR_HOST, errno, "ids-home");
	if (!ids->is_given) {
		r = fd_write_at(AT_FDCWD, "/proc/self/setgroups", "deny");
		if (r < 0)
			return err_set(e, ERR_HOST, -r, "write /proc/self/setgroups");
		r = map_write("/proc/self/uid_map", ids, ids->uid, e);
		if (r < 0)
			return r;
		r = map_write("/proc/self/gid_map", ids, ids->gid, e);
		if (r < 0)
			return r;
	} else if (setgroups(0, NULL) < 0) {
		return err_set(e, ERR_HOST, errno, "drop supplementary groups");
	}
	if (setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
		return err_set(e, ERR_HOST, errno, "become root of the new user namespace");
	/* after the last change of credentials, which clears it */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		return err_set(e, ERR_HOST, errno, "tie the supervisor to its parent");
	return 0;
}

int home_exec(int self, const void *state, size_t len, struct err *e)
{
	char name[] = "cloche-supervisor";
	char stage[] = "inside";
	char *const argv[] = { name, stage, NULL };
	auto_fd int fd = fd_memfd("home", state, len);
	char *env[] = { NULL, NULL };

#ifdef CLOCHE_FAIL_STEPS
	char wanted[64];

	if (getenv("CLOCHE_FAIL_STEP")) {
		(void)snprintf(wanted, sizeof(wanted), "CLOCHE_FAIL_STEP=%s", getenv("CLOCHE_FAIL_STEP"));
		env[0] = wanted;
	}
#endif
	if (fd < 0)
		return err_set(e, ERR_HOST, -fd, "hand the state over");
	self = fcntl(self, F_DUPFD_CLOEXEC, 52);     /* few descriptors may be allowed; out of the state's way */
	if (self < 0 || dup2(fd, HOME_STATE_FD) < 0) /* the copy is not CLOEXEC */
		return err_set(e, ERR_HOST, errno, "hand the state over");
	(void)syscall(SYS_execveat, self, "", argv, env, AT_EMPTY_PATH);
	return err_set(e, ERR_HOST, errno, "execute the supervisor again");
}
