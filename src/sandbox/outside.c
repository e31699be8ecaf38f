/* SPDX-License-Identifier: Apache-2.0 */
/* Sandboxes from outside: making, watching and ending them.  Runs in the supervisor, which is root of the home. */
#include "sandbox/outside.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "base/kernel.h"
#include "sandbox/child.h"
#include "sandbox/init.h"
#include "sandbox/stat.h"
#include "sandbox/sys.h"

int outside_prepare(struct outside *o, struct home *home, int go, struct err *e)
{
	*o = (struct outside) { .home = home, .pid = -1, .proc = -1, .go = go, .has_fresh_network = true };
	o->pid = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
	o->proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	for (size_t i = 0; i < OUTSIDE_LANES; i++)
		o->lanes[i] = -1;
	o->groups = calloc(SANDBOX_SLOTS, sizeof(*o->groups)); /* CGROUP_NONE, all of them */
	if (o->pid < 0 || o->proc < 0 || !o->groups)
		return err_set(e, ERR_HOST, errno, "open our own namespaces");
	return 0;
}

int outside_know_groups(struct outside *o, struct err *e)
{
	int r = o->go < 0 ? 0 : cgroup_host_receive(&o->home->cgroup, o->go);

	fd_close(&o->go);
	return r < 0 ? err_set(e, ERR_HOST, -r, "hear of our control groups") : 0;
}

int outside_open(int root, const char *path)
{
	struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT };
	int fd = sys_openat2(root, path, &how);

	return fd < 0 ? -errno : fd;
}

/* The slot's group is kept open from run to run: to open its files takes longer than to read them. */
static int group_take(struct outside *o, unsigned slot, struct cgroup *ret, struct err *e)
{
	struct cgroup *kept = &o->groups[slot];

	if (step_is_failed_on_purpose("cgroup-open"))
		return err_set(e, ERR_HOST, errno, "cgroup-open");
	if (kept->kind == CGROUP_NONE)
		return cgroup_open(&o->home->cgroup, slot, ret, e);
	*ret = *kept;
	kept->kind = CGROUP_NONE;
	return 0;
}

void sandbox_rest(struct sandbox *s)
{
	if (s->slot >= SANDBOX_AWAKE)
		cgroup_rest(&s->cgroup);
}

int sandbox_rouse(const struct outside *o, struct sandbox *s, struct err *e)
{
	return cgroup_rouse(&o->home->cgroup, s->slot, &s->cgroup, e);
}

/* Descriptors are needed for a moment where the limits are new, or for a group that is. */
static int group_set(const struct outside *o, struct sandbox *s, const struct sandbox_spec *spec, struct err *e)
{
	struct cgroup_limits limits = { .memory_bytes = spec->memory_bytes,
					.processes = spec->processes,
					.cpu_milli = spec->cpu_milli };
	int r;

	if (cgroup_is_set(&s->cgroup, &limits))
		return 0;
	s->is_counted = false;
	r = sandbox_rouse(o, s, e);
	if (r == 0)
		r = cgroup_set(&s->cgroup, &limits, e);
	sandbox_rest(s);
	return r;
}

int sandbox_count(struct sandbox *s, struct err *e)
{
	int r = cgroup_start(&s->cgroup, e);

	s->is_counted = r == 0;
	return r;
}

void sandbox_usage(const struct sandbox *s, struct cgroup_usage *ret)
{
	*ret = (struct cgroup_usage) { 0 };
	if (s->is_counted)
		cgroup_usage(&s->cgroup, ret);
}

static void group_give_back(struct outside *o, struct sandbox *s)
{
	if (s->cgroup.kind == CGROUP_NONE)
		return;
	if (s->cgroup.kind == CGROUP_V1)
		o->groups[s->slot] = s->cgroup;
	else /* v2: before 6.12 a peak is a new group's only */
		cgroup_close(&s->cgroup, &o->home->cgroup, s->slot, false);
	s->cgroup = (struct cgroup)CGROUP_EMPTY;
}

/* Step into a network namespace that nobody was in, with lo up or down; what is cloned now lives in it. */
static int network_make(struct outside *o, struct sandbox *s, struct err *e)
{
	bool has_loopback = s->spec.has_loopback;
	bool is_fresh = o->has_fresh_network && has_loopback; /* that one's lo is up */
	int r = 0;

	if (has_loopback && o->n_networks > 0) {
		s->network = o->networks[--o->n_networks];
		o->has_fresh_network = false;
		return setns(s->network, CLONE_NEWNET) < 0 ? err_set(e, ERR_HOST, errno, "enter a network namespace")
							   : 0;
	}
	if (step_is_failed_on_purpose("network") || (!is_fresh && unshare(CLONE_NEWNET) < 0))
		return err_set(e, ERR_HOST, errno, "make a network namespace");
	o->has_fresh_network = false;
	if (!has_loopback)
		return 0;
	if (!is_fresh)
		r = home_raise_lo();
	if (r < 0)
		return err_set(e, ERR_HOST, -r, "bring lo up");
	if (o->is_pooled)
		s->network = openat(o->proc, "self/ns/net", O_RDONLY | O_CLOEXEC);
	return 0;
}

/*
 * A network namespace is the dearest part of a sandbox.  It is used again only if nothing can have changed in it: every
 * process that was in it is reaped, and none of them ever made a socket, of any family, nor could have unseen.
 */
static void network_give_back(struct outside *o, struct sandbox *s)
{
	if (s->network >= 0 && s->is_watched && !s->has_socket && s->init == 0 && o->n_networks < OUTSIDE_NETWORKS) {
		o->networks[o->n_networks++] = s->network;
		s->network = -1;
	}
	fd_close(&s->network);
}

static int maps_write(const struct outside *o, pid_t pid, unsigned slot, struct err *e)
{
	static const char *const names[] = { "uid_map", "gid_map" };
	char path[32];
	char map[64];

	(void)snprintf(map, sizeof(map), "0 %u 1\n%d %u 1\n", HOME_INIT_ID(slot), HOME_SANDBOX_UID, HOME_SLOT_ID(slot));
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		int r;

		(void)snprintf(path, sizeof(path), "%d/%s", (int)pid, names[i]);
		r = fd_write_at(o->proc, path, map);
		if (r < 0)
			return err_set(e, ERR_HOST, -r, "write %s of a sandbox", names[i]);
	}
	return 0;
}

/* Return: @sock as a low descriptor; -1: all are taken, or this is no pool, and init gets a copy of our table */
static int lane_take(struct outside *o, struct sandbox *s, int sock)
{
	int i = 0;

	while (i < OUTSIDE_LANES && o->is_lane_taken[i])
		i++;
	if (!o->is_pooled || i == OUTSIDE_LANES)
		return -1;
	for (int k = 0; k < OUTSIDE_LANES; k++) {
		if (o->lanes[k] < 0)
			o->lanes[k] = fcntl(o->proc, F_DUPFD_CLOEXEC, 0);
	}
	if (o->lanes[i] < 0 || dup3(sock, o->lanes[i], O_CLOEXEC) < 0)
		return -1;
	o->is_lane_taken[i] = true;
	s->lane = i;
	return o->lanes[i];
}

/* Its init has a table of its own, or has ended: then its end of the socket must not stay open with us. */
static void lane_leave(struct outside *o, struct sandbox *s)
{
	if (s->lane < 0)
		return;
	if (dup3(o->proc, o->lanes[s->lane], O_CLOEXEC) < 0)
		fd_close(&o->lanes[s->lane]);
	o->is_lane_taken[s->lane] = false;
	s->lane = -1;
}

static int init_start(struct outside *o, unsigned env, struct sandbox *s, struct err *e)
{
	struct clone_args args = {
		.flags = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_PIDFD,
		.pidfd = (uintptr_t)&s->init_fd,
		.exit_signal = SIGCHLD,
	};
	struct init_message go = { .word = INIT_GO };
	auto_fd int theirs = -1;
	int pair[2];
	int sock;
	pid_t pid;
	int r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_set(e, ERR_HOST, errno, "make a socket pair");
	s->init_sock = pair[0];
	theirs = pair[1];
	sock = lane_take(o, s, theirs);
	if (sock >= 0)
		args.flags |= CLONE_FILES;
	if (o->home->mnt[env] >= 0 && setns(o->home->mnt[env], CLONE_NEWNS) < 0)
		return err_set(e, ERR_HOST, errno, "enter the environment's files");
	pid = step_is_failed_on_purpose("sandbox") ? -1 : sys_clone3(&args);
	if (pid < 0)
		return err_set(e, ERR_HOST, errno, "make a sandbox's namespaces");
	if (pid == 0)
		init_main(sock < 0 ? theirs : sock, o->home, &s->spec);
	s->init = pid;
	if (o->home->ids.count == 1)
		return 0; /* it maps itself */
	r = maps_write(o, pid, s->slot, e);
	if (r < 0) { /* it may have ended, and has said why */
		struct err said;
		char step[sizeof(go.fail.step)];

		lane_leave(o, s);
		if (sandbox_hear(o, s, step, &said) < 0)
			*e = said;
		return r;
	}
	r = fd_send(s->init_sock, &go, sizeof(go), NULL, 0);
	return r < 0 ? err_set(e, ERR_HOST, -r, "start a sandbox's init") : 0;
}

int sandbox_create(struct outside *o, unsigned slot, unsigned env, const struct sandbox_spec *spec, struct sandbox *ret,
		   struct err *e)
{
	struct sandbox s = SANDBOX_EMPTY;
	int r = 0;

	s.slot = slot;
	s.spec = *spec;
	r = network_make(o, &s, e);
	if (r == 0)
		r = init_start(o, env, &s, e);
	if (r == 0) /* while init mounts */
		r = outside_know_groups(o, e);
	if (r == 0 && o->home->cgroup.kind != CGROUP_NONE) {
		r = group_take(o, slot, &s.cgroup, e);
		if (r == 0)
			r = group_set(o, &s, spec, e);
	}
	if (r < 0) {
		sandbox_destroy(o, &s);
		return r;
	}
	*ret = s;
	return 0;
}

int sandbox_hear(struct outside *o, struct sandbox *s, char *ret_step, struct err *e)
{
	struct init_message m;
	int fds[FD_MAX_PASSED];
	size_t n_fds;
	ssize_t n = fd_recv(s->init_sock, &m, sizeof(m), fds, &n_fds);

	if (n == -EAGAIN)
		return SANDBOX_SAID_NOTHING;
	lane_leave(o, s);
	if (n <= 0)
		return SANDBOX_SAID_END;
	if ((size_t)n == sizeof(m) && m.word == INIT_READY && n_fds == 3 && !s->is_ready) {
		s->tmp_dir = fds[0];
		s->shm_dir = fds[1];
		s->proc_dir = fds[2];
		s->has_proc = m.has_proc;
		s->init_cpu_ns = m.cpu_ns;
		s->is_ready = true;
		if (!s->has_proc)
			fd_close(&s->proc_dir);
		if ((s->cgroup.has & CGROUP_MEMORY) &&
		    (s->cgroup.has &
		     CGROUP_CPUACCT)) { /* nothing to be sampled; for sandbox_has_file(), tmp_dir stays */
			fd_close(&s->shm_dir);
			fd_close(&s->proc_dir);
			s->has_proc = false;
		}
		return SANDBOX_SAID_READY;
	}
	for (size_t i = 0; i < n_fds; i++)
		fd_close(&fds[i]);
	if (m.word == INIT_SWEPT)
		return SANDBOX_SAID_SWEPT;
	m.fail.step[sizeof(m.fail.step) - 1] = '\0';
	memcpy(ret_step, m.fail.step, sizeof(m.fail.step));
	return err_set(e, ERR_HOST, m.fail.sys, "build the sandbox: step %s", m.fail.step);
}

bool sandbox_is_empty(const struct sandbox *s)
{
	return cgroup_is_empty(&s->cgroup);
}

bool sandbox_is_sampled(const struct sandbox *s)
{
	return !(s->cgroup.has & CGROUP_MEMORY);
}

static int limit(const struct sandbox_child *c, __rlimit_resource_t what, uint64_t value, struct err *e)
{
	struct rlimit now;
	struct rlimit l = { .rlim_cur = value, .rlim_max = value };

	if (prlimit(c->pid, what, NULL, &now) < 0)
		return err_set(e, ERR_HOST, errno, "read a parked process's limits");
	if (now.rlim_max == value)
		return 0;
	return prlimit(c->pid, what, &l, NULL) < 0 ? err_set(e, ERR_HOST, errno, "set a parked process's limits") : 0;
}

int sandbox_dress(struct outside *o, struct sandbox *s, const struct sandbox_child *c, const struct sandbox_spec *spec,
		  struct err *e)
{
	bool is_counted = s->is_counted;
	int r = 0;

	if (s->cgroup.kind != CGROUP_NONE)
		r = group_set(o, s, spec, e);
	if (r == 0 && is_counted && !s->is_counted) /* the kernel may have had to make room for a new limit */
		r = sandbox_count(s, e);
	if (!c) {
		s->spec = *spec;
		return r;
	}
	if (r == 0 && spec->open_files != s->spec.open_files)
		r = limit(c, RLIMIT_NOFILE, spec->open_files, e);
	if (r == 0 && spec->processes != s->spec.processes)
		r = limit(c, RLIMIT_NPROC, spec->processes + (o->home->ids.count == 1 ? 1 : 0), e);
	if (r == 0 && spec->cpu_ns)
		r = limit(c, RLIMIT_CPU, inside_cpu_seconds(spec), e);
	if (r == 0 && sandbox_is_sampled(s) && spec->memory_bytes != s->spec.memory_bytes)
		r = limit(c, RLIMIT_DATA, inside_data_bytes(spec, o->home->has_proc), e);
	if (r == 0)
		s->spec = *spec;
	return r;
}

int sandbox_pipe_owner(const struct outside *o, const struct sandbox *s, int fd)
{
	if (o->home->ids.count == 1)
		return 0;
	return fchown(fd, HOME_SLOT_ID(s->slot), HOME_SLOT_ID(s->slot)) < 0 ? -errno : 0;
}

int sandbox_sweep(struct sandbox *s)
{
	struct init_message m = { .word = INIT_SWEEP };

	return fd_send(s->init_sock, &m, sizeof(m), NULL, 0);
}

void sandbox_kill(struct sandbox *s)
{
	if (s->proc_dir < 0)
		fd_close(&s->tmp_dir); /* or its pages would be given back by us, not by init, and that takes time */
	if (s->init > 0)
		(void)sys_pidfd_send_signal(s->init_fd, SIGKILL);
}

int sandbox_reap_init(struct outside *o, struct sandbox *s, struct rusage *ret_usage)
{
	pid_t pid;

	if (s->init == 0)
		return 1;
	pid = wait4(s->init, NULL, WNOHANG | __WALL, ret_usage);
	if (pid == 0)
		return 0;
	s->init = 0;
	lane_leave(o, s);
	return 1;
}

bool sandbox_has_file(const struct sandbox *s, const char *name)
{
	struct stat st;

	return s->tmp_dir >= 0 && fstatat(s->tmp_dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

int sandbox_sample(const struct sandbox *s, bool is_fair, struct sample *ret)
{
	const int tmpfs[] = { s->tmp_dir, s->shm_dir };

	if (s->proc_dir < 0)
		return -EOPNOTSUPP;
	return is_fair ? sample_fair(s->proc_dir, tmpfs, ARRAY_LEN(tmpfs), ret)
		       : sample_take(s->proc_dir, tmpfs, ARRAY_LEN(tmpfs), ret);
}

void sandbox_destroy(struct outside *o, struct sandbox *s)
{
	sandbox_kill(s);
	if (s->init > 0)
		(void)waitpid(s->init, NULL, __WALL);
	s->init = 0;
	lane_leave(o, s);
	fd_close(&s->init_fd);
	fd_close(&s->init_sock);
	fd_close(&s->tmp_dir);
	fd_close(&s->shm_dir);
	fd_close(&s->proc_dir);
	group_give_back(o, s);
	network_give_back(o, s);
}
