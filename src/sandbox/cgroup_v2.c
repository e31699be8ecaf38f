/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits by cgroup v2.
 *
 * Theory of operation.  Controllers can be switched on for the children of a group only while no process sits in the
 * group itself.  So our folder holds leaves only: "sup" for our own processes, "s<slot>" for each sandbox; and the
 * group that our folder lies in must be empty too.  If we are its only process (a systemd scope or service with
 * Delegate=yes), we move into "sup"; if others sit there, the nearest group above that may be used is taken.  Once our
 * folder passes its controllers on, nobody can take them away above it (the kernel says EBUSY), so limits never go
 * silently.
 */
#include "sandbox/cgroup_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fd.h"

#define PIDS_HIGHEST 4194304U /* the kernel takes no higher limit */
#define LEVELS       32       /* how far up we look */

static const struct {
	enum cgroup_controller bit;
	const char *name;
} controllers[] = { { CGROUP_MEMORY, "memory" }, { CGROUP_PIDS, "pids" }, { CGROUP_CPU, "cpu" } };

static const char *const delegated[] = { "cgroup.procs", "cgroup.threads", NULL };

static uint32_t bits_of(const char *list)
{
	uint32_t bits = 0;

	for (unsigned i = 0; i < ARRAY_LEN(controllers); i++)
		if (cgroup_has_word(list, controllers[i].name))
			bits |= (uint32_t)controllers[i].bit;
	return bits;
}

/* "+memory +pids", or with '-' in front of each; at most 21 bytes with the NUL. */
static void list_bits(uint32_t bits, const char *before, const char *between, char *ret, size_t size)
{
	size_t used = 0;

	ret[0] = '\0';
	for (unsigned i = 0; i < ARRAY_LEN(controllers); i++)
		if (bits & (uint32_t)controllers[i].bit) {
			(void)snprintf(ret + used, size - used, "%s%s%s", used ? between : "", before,
				       controllers[i].name);
			used = strlen(ret);
		}
}

static int switch_on(int dir, uint32_t want)
{
	char text[256];

	if (fd_read_at(dir, "cgroup.subtree_control", text, sizeof(text)) >= 0 && (bits_of(text) & want) == want)
		return 0;
	list_bits(want, "+", " ", text, sizeof(text));
	return fd_write_at(dir, "cgroup.subtree_control", text);
}

/* Are we the only process in this group? */
static bool is_alone(int dir)
{
	char text[64];
	char own[32];

	(void)snprintf(own, sizeof(own), "%d\n", (int)getpid());
	return fd_read_at(dir, "cgroup.procs", text, sizeof(text)) >= 0 && strcmp(text, own) == 0;
}

/* Our leaf in @top, and the controllers switched on down to the slots. */
static int furnish(struct cgroup_host *h, int parent, int top, uint32_t want, uid_t uid, gid_t gid)
{
	auto_fd int sup = -1;
	bool has_moved = false;
	int r;

	if (mkdirat(top, "sup", 0755) < 0)
		return -errno;
	sup = openat(top, "sup", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (sup < 0 || fchown(sup, uid, gid) < 0 || fchownat(sup, "cgroup.procs", uid, gid, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	r = switch_on(parent, want);
	if (r == -EBUSY && is_alone(parent)) {
		r = fd_write_at(sup, "cgroup.procs", "0");
		has_moved = r == 0;
		if (has_moved)
			r = switch_on(parent, want);
	}
	if (r == 0)
		r = switch_on(top, want);
	if (r < 0) {
		if (has_moved)
			(void)!fd_write_at(parent, "cgroup.procs", "0");
		return r;
	}
	h->sup_dir = take_fd(&sup);
	h->has_moved = has_moved;
	return 0;
}

/* Try to live below @path with all of @least.  Return: 0 or -errno with nothing left behind (-ENODEV: it lacks some) */
static int try_parent(struct cgroup_host *h, const char *path, const char *name, uint32_t least, uid_t uid, gid_t gid)
{
	auto_fd int parent = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_fd int top = -1;
	char text[256];
	uint32_t want;
	int n;
	int r;

	if (parent < 0)
		return -errno;
	n = snprintf(h->path[0], sizeof(h->path[0]), "%s/%s", path, name); /* counts only once dir[0] is open */
	if (n < 0 || (size_t)n >= sizeof(h->path[0]))
		return -ENAMETOOLONG;
	if (fd_read_at(parent, "cgroup.controllers", text, sizeof(text)) < 0)
		return -ENODEV;
	want = bits_of(text);
	if ((want & least) != least)
		return -ENODEV;
	top = cgroup_make_top(path, name, uid, gid, delegated);
	if (top < 0)
		return top;
	r = furnish(h, parent, top, want, uid, gid);
	if (r < 0) {
		(void)cgroup_remove(parent, name);
		return r;
	}
	h->kind = CGROUP_V2;
	h->has = want | CGROUP_CPUACCT; /* cpu.stat counts in every group */
	h->controllers[0] = h->has;
	cgroup_note_swap(h, top, "memory.swap.max");
	h->dir[0] = take_fd(&top);
	return 0;
}

/* From our own group upwards.  Return: 0, or the error of the lowest group that had what is needed. */
static int try_upwards(struct cgroup_host *h, const char *own, const char *name, uint32_t least, uid_t uid, gid_t gid)
{
	char path[CGROUP_PATH];
	struct statfs fs;
	int first = -ENODEV;

	(void)snprintf(path, sizeof(path), "%s", own);
	for (unsigned i = 0; i < LEVELS; i++) {
		char *slash;
		int r = try_parent(h, path, name, least, uid, gid);

		if (r == 0)
			return 0;
		if (first == -ENODEV)
			first = r;
		slash = strrchr(path, '/');
		if (!slash || slash == path)
			break;
		*slash = '\0';
		if (statfs(path, &fs) < 0 || fs.f_type != CGROUP2_SUPER_MAGIC)
			break;
	}
	return first;
}

static void say_why(struct cgroup_host *h, const char *own, int r)
{
	static const char *const remedy =
		"systemd-run --user --scope -p Delegate=yes cloche ..., or start cloche as root";

	if (r == -EBUSY)
		cgroup_say(h, "memory, pids, cpu: other processes sit in our control group (%s): %s", remedy, own);
	else if (r == -ENODEV)
		cgroup_say(h, "memory, pids, cpu: our control group has none of them (delegate them to it: %s): %s",
			   remedy, own);
	else if (r == -EROFS)
		cgroup_say(h, "memory, pids, cpu: %s (give this container a writable cgroup namespace): %s",
			   strerror(-r), own);
	else
		cgroup_say(h, "memory, pids, cpu: %s (%s): %s", strerror(-r), remedy, own);
}

void cgroup_v2_host(struct cgroup_host *h, const struct cgroup_texts *t, const char *name, uid_t uid, gid_t gid)
{
	char own[CGROUP_PATH];
	char names[64];
	int full, r = cgroup_find(t, NULL, own);

	if (r < 0) {
		cgroup_say(h, "memory, pids, cpu: our control group is not mounted in sight (mount -t cgroup2 cgroup2 "
			      "/sys/fs/cgroup; in a container: with its cgroups writable)");
		return;
	}
	full = try_upwards(h, own, name, CGROUP_ALL, uid, gid);
	if (full == 0)
		return;
	/* Not everywhere are all three handed on: memory is worth having alone. */
	r = try_upwards(h, own, name, CGROUP_MEMORY, uid, gid);
	if (r < 0)
		r = try_upwards(h, own, name, CGROUP_PIDS, uid, gid);
	if (r < 0) {
		say_why(h, own, full == -ENODEV ? r : full);
		return;
	}
	list_bits((uint32_t)CGROUP_ALL & ~h->has, "", ", ", names, sizeof(names));
	cgroup_say(h,
		   "%s: not handed on to our control group (systemd: Delegate=cpu memory pids in user@.service or the "
		   "service; or start cloche as root): %s",
		   names, own);
}

static void kill_slot(int dir, const char *name, void *arg)
{
	char path[CGROUP_NAME + 256];

	(void)arg;
	(void)snprintf(path, sizeof(path), "%s/cgroup.kill", name);
	if (strcmp(name, "sup") != 0) /* we may sit there ourselves */
		(void)!fd_write_at(dir, path, "1");
}

/* Kill what is left in the slots; and undo our own move, in the only order that the kernel allows. */
void cgroup_v2_host_leave(struct cgroup_host *h)
{
	char path[CGROUP_PATH + CGROUP_NAME];
	char text[64];
	char *slash = strrchr(h->path[0], '/');
	int parent_len = slash ? (int)(slash - h->path[0]) : 0;

	cgroup_each_folder(h->dir[0], kill_slot, NULL);
	if (!h->has_moved || parent_len == 0)
		return;
	list_bits(h->has & (uint32_t)CGROUP_ALL, "-", " ", text, sizeof(text));
	(void)!fd_write_at(h->dir[0], "cgroup.subtree_control", text);
	(void)snprintf(path, sizeof(path), "%.*s/cgroup.subtree_control", parent_len, h->path[0]);
	(void)!fd_write_at(AT_FDCWD, path, text);
	(void)snprintf(path, sizeof(path), "%.*s/cgroup.procs", parent_len, h->path[0]);
	if (fd_write_at(AT_FDCWD, path, "0") == 0)
		h->has_moved = 0;
}

int cgroup_v2_open(struct cgroup *g, struct err *e)
{
	int r;

	if (!(g->has & CGROUP_MEMORY))
		return 0;
	r = fd_write_at(g->dir[0], "memory.swap.max", "0");
	if (r < 0 && r != -ENOENT) /* -ENOENT was told in why_not */
		return err_set(e, ERR_HOST, -r, "write 0 to the control group's memory.swap.max");
	r = cgroup_write(g->dir[0], "memory.oom.group", "1",
			 e); /* one dies, all die: no verdict by the kernel's choice */
	if (r < 0)
		return r;
	g->oom_fd = openat(g->dir[0], "memory.events", O_RDONLY | O_CLOEXEC);
	if (g->oom_fd < 0)
		return err_set(e, ERR_HOST, errno, "open the control group's memory.events");
	g->oom_events = EPOLLPRI;
	g->peak_fd = openat(g->dir[0], "memory.peak", O_RDWR | O_CLOEXEC);
	if (g->peak_fd < 0) /* 5.19 to 6.11: for reading alone; before: not there */
		g->peak_fd = openat(g->dir[0], "memory.peak", O_RDONLY | O_CLOEXEC);
	return 0;
}

/* Read a kernel file that is kept open, from its start; this also re-arms poll on it. */
static void read_again(int fd, char *ret, size_t size)
{
	ssize_t n = fd < 0 ? -1 : pread(fd, ret, size - 1, 0);

	ret[n > 0 ? n : 0] = '\0';
}

static uint64_t oom_kills(const struct cgroup *g)
{
	char text[512];
	uint64_t v = 0;

	read_again(g->oom_fd, text, sizeof(text));
	return cgroup_read_key(text, "oom_kill", &v) == 0 ? v : 0;
}

static void start_counters(struct cgroup *g)
{
	int dir = g->dir[0];
	bool is_reset = g->peak_fd >= 0 && write(g->peak_fd, "0", 1) == 1;

	g->has_peak = g->peak_fd >= 0 && (is_reset || !g->is_used);
	g->left_over_bytes = is_reset ? cgroup_read_file_count(dir, "memory.current") : 0;
	g->oom_kills_before = oom_kills(g);
	g->pids_max_before = cgroup_read_file_key(dir, "pids.events", "max");
	g->cpu_ns_before = cgroup_read_file_key(dir, "cpu.stat", "usage_usec") * 1000;
}

int cgroup_v2_set(struct cgroup *g, const struct cgroup_limits *l, struct err *e)
{
	int dir = g->dir[0];
	struct cgroup_limits before = g->now;
	char text[64];
	int r = 0;

	memset(&g->now, 0, sizeof(g->now)); /* unknown, should one of these fail */
	if ((g->has & CGROUP_MEMORY) && before.memory_bytes != l->memory_bytes) {
		(void)snprintf(text, sizeof(text), "%llu", (unsigned long long)l->memory_bytes);
		r = cgroup_write(dir, "memory.max", text, e);
	}
	if (r == 0 && (g->has & CGROUP_PIDS) && before.processes != l->processes) {
		(void)snprintf(text, sizeof(text), "%u", l->processes < PIDS_HIGHEST ? l->processes : PIDS_HIGHEST);
		r = cgroup_write(dir, "pids.max", text, e);
	}
	if (r == 0 && (g->has & CGROUP_CPU) && before.cpu_milli != l->cpu_milli) {
		uint64_t quota_us;
		uint32_t period_us;

		cgroup_cpu_quota(l->cpu_milli, &quota_us, &period_us);
		(void)snprintf(text, sizeof(text), "%llu %u", (unsigned long long)quota_us, period_us);
		r = cgroup_write(dir, "cpu.max", text, e);
	}
	if (r < 0)
		return r;
	start_counters(g);
	g->now = *l;
	return 0;
}

void cgroup_v2_usage(const struct cgroup *g, struct cgroup_usage *ret)
{
	char text[64];
	uint64_t peak;

	ret->oom_kills = cgroup_risen(oom_kills(g), g->oom_kills_before);
	ret->pids_refused = cgroup_risen(cgroup_read_file_key(g->dir[0], "pids.events", "max"), g->pids_max_before);
	ret->cpu_ns = cgroup_risen(cgroup_read_file_key(g->dir[0], "cpu.stat", "usage_usec") * 1000, g->cpu_ns_before);
	ret->has_cpu = true;
	if (!g->has_peak)
		return;
	read_again(g->peak_fd, text, sizeof(text));
	if (cgroup_read_count(text, &peak) < 0)
		return;
	ret->peak_bytes = cgroup_peak(g, peak);
	ret->has_peak = true;
}
