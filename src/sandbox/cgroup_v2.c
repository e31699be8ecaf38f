/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits by cgroup v2.
 *
 * Theory of operation.  Controllers can be switched on for the children of a group only while no process sits in the
 * group itself.  So our folder holds leaves only: "sup" for our own processes, "s<slot>" for each sandbox; and the
 * group that our folder lies in must be empty too.  If nobody but us and the process that started us sits there (a systemd
 * scope or service with Delegate=yes, a container), both move into "sup"; if others sit there, the nearest group above
 * that may be used is taken.  Once our folder passes its controllers on, nobody can take them away above it (the kernel
 * says EBUSY), so limits never go silently.
 *
 * Who started us may start another of us later, which is then born in our "sup".  It makes its folder beside ours, not
 * below it; at our end all that sits in "sup" goes back to where it came from, or into the other's "sup" while that one
 * passes controllers on; what a killed one of us has left behind is taken over.
 */
#include "sandbox/cgroup_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fd.h"

#define PIDS_HIGHEST 4194304U /* the kernel takes no higher limit */
#define LEVELS       32       /* how far up we look */
#define MOVES        8        /* how often a group is looked at until it is empty */

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

/* Is that the process that started the one that started us, of the same program as that: a server in two halves? */
static bool is_other_half(pid_t pid)
{
	char path[48];
	char text[256];
	struct stat a;
	struct stat b;
	char *end;
	int parent;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)getppid());
	if (fd_read_at(AT_FDCWD, path, text, sizeof(text)) < 0)
		return false;
	end = strrchr(text, ')'); /* a name may have one, too */
	if (!end || sscanf(end, ") %*c %d", &parent) != 1 || parent != pid)
		return false;
	(void)snprintf(path, sizeof(path), "/proc/%d/exe", (int)getppid());
	if (stat(path, &a) < 0)
		return false;
	(void)snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	return stat(path, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* Does nobody sit in this group but us and the process, or server, that started us? */
static bool is_ours(int dir)
{
	char text[256];
	char *save = NULL;

	if (fd_read_at(dir, "cgroup.procs", text, sizeof(text)) < 0) /* a cut text is not ours alone either */
		return false;
	for (char *word = strtok_r(text, "\n", &save); word; word = strtok_r(NULL, "\n", &save)) {
		long pid = strtol(word, NULL, 10);

		if (pid != getpid() && pid != getppid() && !is_other_half((pid_t)pid))
			return false;
	}
	return true;
}

/* Every process of @from into @to.  Return: 0 or -errno (some may have moved) */
static int move_all(int from, int to)
{
	char text[4096];
	int r = 0;

	/* Again while there are any: one may fork meanwhile. */
	for (unsigned i = 0; i < MOVES && r == 0; i++) {
		ssize_t n = fd_read_at(from, "cgroup.procs", text, sizeof(text));

		if (n <= 0)
			return (int)n;
		for (char *pid = text, *end; r == 0 && (end = strchr(pid, '\n')) != NULL; pid = end + 1) {
			*end = '\0';
			r = fd_write_at(to, "cgroup.procs", pid);
			if (r == -ESRCH) /* it has ended */
				r = 0;
		}
	}
	return r;
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
	if (r == -EBUSY && is_ours(parent)) {
		has_moved = true;
		r = move_all(parent, sup);
		if (r == 0)
			r = switch_on(parent, want);
	}
	if (r == 0)
		r = switch_on(top, want);
	if (r < 0) {
		if (has_moved)
			(void)move_all(sup, parent);
		return r;
	}
	h->sup_dir = take_fd(&sup);
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

/*
 * Were we born in the "sup" of another one of us?  Then @own becomes the group that its folder lies in, and @ret_other the
 * folder's name.
 */
static bool leave_other(char *own, char *ret_other)
{
	char *leaf = strrchr(own, '/');
	char *folder;
	pid_t pid;

	if (!leaf || strcmp(leaf, "/sup") != 0)
		return false;
	*leaf = '\0';
	folder = strrchr(own, '/');
	if (!folder || folder == own || !cgroup_read_name(folder + 1, &pid)) {
		*leaf = '/';
		return false;
	}
	*folder = '\0';
	(void)snprintf(ret_other, CGROUP_NAME, "%s", folder + 1);
	return true;
}

/* One of us that was killed has left processes in its leaf, us among them: they are ours now. */
static void take_over(const struct cgroup_host *h, const char *own, const char *other)
{
	auto_fd int parent = open(own, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_fd int folder = parent < 0 ? -1 : openat(parent, other, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	auto_fd int leaf = folder < 0 ? -1 : openat(folder, "sup", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (leaf < 0 || flock(folder, LOCK_EX | LOCK_NB) < 0)
		return; /* it lives */
	if (move_all(leaf, h->sup_dir) == 0)
		(void)cgroup_remove(parent, other);
}

static void try_all(struct cgroup_host *h, const char *own, const char *name, uid_t uid, gid_t gid)
{
	char names[64];
	int full = try_upwards(h, own, name, CGROUP_ALL, uid, gid);
	int r;

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

void cgroup_v2_host(struct cgroup_host *h, const struct cgroup_texts *t, const char *name, uid_t uid, gid_t gid)
{
	char own[CGROUP_PATH];
	char other[CGROUP_NAME];
	bool has_other;

	if (cgroup_find(t, NULL, own) < 0) {
		cgroup_say(h, "memory, pids, cpu: our control group is not mounted in sight (mount -t cgroup2 cgroup2 "
			      "/sys/fs/cgroup; in a container: with its cgroups writable)");
		return;
	}
	has_other = leave_other(own, other);
	try_all(h, own, name, uid, gid);
	if (has_other && h->kind == CGROUP_V2)
		take_over(h, own, other);
}

static void kill_slot(int dir, const char *name, void *arg)
{
	char path[CGROUP_NAME + 256];

	(void)arg;
	(void)snprintf(path, sizeof(path), "%s/cgroup.kill", name);
	if (strcmp(name, "sup") != 0) /* we may sit there ourselves */
		(void)!fd_write_at(dir, path, "1");
}

/* What of ours sits in our leaf goes into @name's, if that is another one of us. */
static void move_beside(int parent, const char *name, void *arg)
{
	const struct cgroup_host *h = arg;
	char path[CGROUP_NAME + 8];
	auto_fd int sup = -1;
	struct stat own;
	struct stat st;
	pid_t pid;

	if (!cgroup_read_name(name, &pid) || fstat(h->dir[0], &own) < 0 ||
	    fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_ino == own.st_ino)
		return;
	(void)snprintf(path, sizeof(path), "%s/sup", name);
	sup = openat(parent, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (sup >= 0)
		(void)move_all(h->sup_dir, sup);
}

/* Kill what is left in the slots; and undo the moves into our leaf, in the only order that the kernel allows. */
void cgroup_v2_host_leave(struct cgroup_host *h)
{
	char path[CGROUP_PATH];
	char text[64];
	char *slash;
	auto_fd int parent = -1;

	cgroup_each_folder(h->dir[0], kill_slot, NULL);
	(void)snprintf(path, sizeof(path), "%s", h->path[0]);
	slash = strrchr(path, '/');
	if (!slash || fd_read_at(h->sup_dir, "cgroup.procs", text, sizeof(text)) == 0)
		return; /* nobody was moved */
	*slash = '\0';
	parent = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (parent < 0)
		return;
	list_bits(h->has & (uint32_t)CGROUP_ALL, "-", " ", text, sizeof(text));
	(void)!fd_write_at(h->dir[0], "cgroup.subtree_control", text);
	(void)!fd_write_at(parent, "cgroup.subtree_control", text);
	if (move_all(h->sup_dir, parent) < 0) /* -EBUSY: another one of us passes controllers on */
		cgroup_each_folder(parent, move_beside, h);
}

int cgroup_v2_renew(int dir, const char *name)
{
	char path[CGROUP_NAME + 16];
	struct stat st;

	(void)snprintf(path, sizeof(path), "%s/memory.peak", name);
	if (fstatat(dir, path, &st, AT_SYMLINK_NOFOLLOW) < 0 || (st.st_mode & 0222))
		return -EEXIST;
	if (unlinkat(dir, name, AT_REMOVEDIR) < 0 || mkdirat(dir, name, 0755) < 0)
		return -errno;
	return 0;
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

void cgroup_v2_start(struct cgroup *g)
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
