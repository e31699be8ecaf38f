/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control groups: what a host has, our folders in it, and what dead owners left there.
 */
#include "sandbox/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "sandbox/cgroup_impl.h"

#define OWN_LIMIT    (64U << 10) /* of /proc/self/cgroup: some 14 lines */
#define MOUNTS_LIMIT (16U << 20) /* a host may have tens of thousands of mounts */
#define CLOSE_NS     NS_PER_SEC
#define TREE_DEPTH   3

int cgroup_find(const struct cgroup_texts *t, const char *controller, char *ret)
{
	char own[CGROUP_PATH];
	char path[CGROUP_PATH];
	int worst = -ENOENT;
	int r = cgroup_read_own(t->own, controller, own);

	if (r < 0)
		return r;
	for (const char *line = t->mounts; *line != '\0';) {
		size_t len = strcspn(line, "\n");
		struct cgroup_mount m;
		struct statfs fs;

		if (cgroup_read_mount(line, len, &m) && m.is_v2 == !controller &&
		    (!controller || cgroup_has_word(m.options, controller))) {
			r = cgroup_place(&m, own, path);
			/* Another mount may lie on top of it, or the group may be gone: look. */
			if (r == 0 && statfs(path, &fs) == 0 &&
			    fs.f_type == (controller ? CGROUP_SUPER_MAGIC : CGROUP2_SUPER_MAGIC)) {
				memcpy(ret, path, sizeof(path));
				return 0;
			}
			if (r == -ENAMETOOLONG)
				worst = r;
		}
		line += len + (line[len] == '\n');
	}
	return worst;
}

void cgroup_say(struct cgroup_host *h, const char *fmt, ...)
{
	size_t used = strlen(h->why_not);
	va_list ap;

	if (used > 0 && used + 2 < sizeof(h->why_not)) {
		memcpy(h->why_not + used, "; ", 3);
		used += 2;
	}
	va_start(ap, fmt);
	(void)vsnprintf(h->why_not + used, sizeof(h->why_not) - used, fmt, ap);
	va_end(ap);
}

void cgroup_note_swap(struct cgroup_host *h, int dir, const char *file)
{
	char swaps[1024];
	const char *second;

	if (faccessat(dir, file, F_OK, 0) == 0)
		return;
	if (fd_read_at(AT_FDCWD, "/proc/swaps", swaps, sizeof(swaps)) < 0)
		return;
	second = strchr(swaps, '\n'); /* the first line is a heading */
	if (second && second[1] != '\0')
		cgroup_say(h, "memory: swap is not counted (no %s; boot with swapaccount=1 or turn swap off)", file);
}

void cgroup_pause_ms(long ms)
{
	struct timespec t = { .tv_nsec = ms * 1000000 };

	(void)nanosleep(&t, NULL);
}

void cgroup_each_folder(int dir, void (*each)(int dir, const char *name, void *arg), void *arg)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (!d) {
		fd_close(&fd);
		return;
	}
	while ((entry = readdir(d)) != NULL)
		if (entry->d_type == DT_DIR && strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			each(dir, entry->d_name, arg);
	(void)closedir(d);
}

static int remove_tree(int parent, const char *name, unsigned depth);

static void remove_below(int dir, const char *name, void *arg)
{
	const unsigned *depth = arg;

	(void)remove_tree(dir, name, *depth);
}

static int remove_tree(int parent, const char *name, unsigned depth)
{
	auto_fd int dir = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (dir >= 0 && depth > 0) {
		depth--;
		cgroup_each_folder(dir, remove_below, &depth);
	}
	if (unlinkat(parent, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		return -errno;
	return 0;
}

int cgroup_remove(int parent, const char *name)
{
	return remove_tree(parent, name, TREE_DEPTH);
}

int cgroup_remove_by(int parent, const char *name, uint64_t deadline_ns)
{
	long wait_ms = 1;
	int r;

	for (;;) {
		r = cgroup_remove(parent, name);
		if (r != -EBUSY || clock_now_ns() >= deadline_ns)
			return r;
		cgroup_pause_ms(wait_ms);
		wait_ms = wait_ms < 16 ? wait_ms * 2 : wait_ms;
	}
}

/*
 * An owner holds a lock on its folder for as long as any of its processes lives; the pid covers the moment between
 * making the folder and locking it.  Our own pid in the name of a folder that nobody has locked: an earlier life of it
 * (containers start with the same pid again and again).
 */
static void sweep_one(int parent, const char *name, void *arg)
{
	auto_fd int dir = -1;
	pid_t pid;

	(void)arg;
	if (!cgroup_read_name(name, &pid))
		return;
	if (pid != getpid() && (kill(pid, 0) == 0 || errno != ESRCH))
		return;
	dir = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir >= 0 && flock(dir, LOCK_EX | LOCK_NB) == 0)
		(void)cgroup_remove(parent, name);
}

/* A new group in a hierarchy that also has the cpuset controller starts with no CPUs and takes nobody in. */
static void copy_cpuset(int parent, int dir)
{
	static const char *const files[] = { "cpuset.cpus", "cpuset.mems" };
	char text[1024];

	if (faccessat(parent, files[0], F_OK, 0) < 0 || faccessat(dir, "cgroup.clone_children", F_OK, 0) < 0)
		return; /* the second is v1's alone */
	for (unsigned i = 0; i < ARRAY_LEN(files); i++)
		if (fd_read_at(parent, files[i], text, sizeof(text)) > 0 && fd_write_at(dir, files[i], text) == 0)
			(void)!fd_write_at(dir, "cgroup.clone_children", "1");
}

int cgroup_make_top(const char *parent, const char *name, uid_t uid, gid_t gid, const char *const *files)
{
	auto_fd int parent_fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_fd int dir = -1;
	int r = 0;

	if (parent_fd < 0)
		return -errno;
	if (mkdirat(parent_fd, name, 0755) < 0)
		return -errno;
	dir = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir < 0 || flock(dir, LOCK_EX | LOCK_NB) < 0 || fchown(dir, uid, gid) < 0)
		r = -errno;
	for (; r == 0 && *files; files++)
		if (fchownat(dir, *files, uid, gid, AT_SYMLINK_NOFOLLOW) < 0)
			r = -errno;
	if (r < 0) {
		(void)unlinkat(parent_fd, name, AT_REMOVEDIR);
		return r;
	}
	copy_cpuset(parent_fd, dir);
	return take_fd(&dir);
}

static void host_init(struct cgroup_host *h)
{
	memset(h, 0, sizeof(*h));
	h->sup_dir = -1;
	for (unsigned i = 0; i < CGROUP_HIERARCHIES; i++)
		h->dir[i] = -1;
}

/* Return: 0; 1 when the kernel has no such file */
static int read_own(const char *path, size_t limit, char **ret, struct err *e)
{
	auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t len;
	int r;

	if (fd < 0)
		return errno == ENOENT ? 1 : err_set(e, ERR_HOST, errno, "open %s", path);
	r = fd_read_all(fd, limit, ret, &len);
	return r < 0 ? err_set(e, ERR_HOST, -r, "read %s", path) : 0;
}

/* Where any of our controllers is in v1, v2 can't have it, and joining both would cost twice. */
static bool is_v2(const char *own)
{
	static const char *const names[] = { "memory", "pids", "cpu" };
	char path[CGROUP_PATH];

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		if (cgroup_read_own(own, names[i], path) != -ENODEV)
			return false;
	}
	return true;
}

bool cgroup_host_is_v2(void)
{
	auto_free char *own = NULL;
	struct err e;

	return read_own("/proc/self/cgroup", OWN_LIMIT, &own, &e) == 0 && is_v2(own);
}

int cgroup_host_open(uid_t uid, gid_t gid, bool is_single, struct cgroup_host *ret, struct err *e)
{
	auto_free char *own = NULL;
	auto_free char *mounts = NULL;
	char name[CGROUP_NAME];
	struct cgroup_texts t;
	uint32_t salt;
	int r = read_own("/proc/self/mountinfo", MOUNTS_LIMIT, &mounts, e);

	if (r == 1)
		return err_set(e, ERR_HOST, ENOENT, "open /proc/self/mountinfo (is /proc mounted?)");
	if (r < 0)
		return r;
	host_init(ret);
	r = read_own("/proc/self/cgroup", OWN_LIMIT, &own, e);
	if (r < 0)
		return r;
	if (r == 1) {
		cgroup_say(ret, "this kernel has no control groups (CONFIG_CGROUPS)");
		return 0;
	}
	if (getrandom(&salt, sizeof(salt), 0) != (ssize_t)sizeof(salt))
		return err_set(e, ERR_HOST, errno, "getrandom");
	(void)snprintf(name, sizeof(name), CGROUP_NAME_HEAD "%d-%08x", (int)getpid(), salt);
	ret->is_single = is_single && !is_v2(own);
	t = (struct cgroup_texts) { .own = own, .mounts = mounts };
	if (is_v2(own))
		cgroup_v2_host(ret, &t, name, uid, gid);
	else
		cgroup_v1_host(ret, &t, name, uid, gid);
	return 0;
}

/* The folder that ours in hierarchy @i lies in.  Return: a descriptor; -1: there is none.  @ret_name: our folder's name
 */
static int parent_of(const struct cgroup_host *h, unsigned i, const char **ret_name)
{
	char path[CGROUP_PATH];
	char *name;

	memcpy(path, h->path[i], sizeof(path));
	name = strrchr(path, '/');
	if (h->dir[i] < 0 || !name)
		return -1;
	*name = '\0';
	*ret_name = h->path[i] + (name - path) + 1;
	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

void cgroup_host_sweep(const struct cgroup_host *h)
{
	for (unsigned i = 0; i < CGROUP_HIERARCHIES; i++) {
		const char *name;
		auto_fd int parent = parent_of(h, i, &name);

		if (parent >= 0)
			cgroup_each_folder(parent, sweep_one, NULL);
	}
}

void cgroup_host_close(struct cgroup_host *h)
{
	uint64_t deadline_ns = clock_now_ns() + CLOSE_NS;

	if (h->kind == CGROUP_V2)
		cgroup_v2_host_leave(h);
	for (unsigned i = 0; i < CGROUP_HIERARCHIES; i++) {
		const char *name;
		auto_fd int parent = parent_of(h, i, &name);

		if (parent >= 0)
			(void)cgroup_remove_by(parent, name, deadline_ns);
		fd_close(&h->dir[i]); /* after it: the lock keeps a sweep away */
	}
	fd_close(&h->sup_dir);
	host_init(h);
}

int cgroup_host_send(const struct cgroup_host *h, int sock)
{
	int fds[CGROUP_HIERARCHIES];
	size_t n = 0;

	for (unsigned i = 0; i < CGROUP_HIERARCHIES; i++) {
		if (h->dir[i] >= 0)
			fds[n++] = h->dir[i];
	}
	return fd_send(sock, h, sizeof(*h), fds, n);
}

int cgroup_host_receive(struct cgroup_host *ret, int sock)
{
	int fds[FD_MAX_PASSED];
	struct cgroup_host h;
	size_t at = 0;
	size_t n_fds;
	ssize_t n = fd_recv(sock, &h, sizeof(h), fds, &n_fds);

	if (n != (ssize_t)sizeof(h))
		return n < 0 ? (int)n : -EPIPE;
	for (unsigned i = 0; i < CGROUP_HIERARCHIES; i++) {
		if (h.dir[i] >= 0)
			h.dir[i] = at < n_fds ? fds[at++] : -1;
	}
	h.sup_dir = -1;
	*ret = h;
	return 0;
}
