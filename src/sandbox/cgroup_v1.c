/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits by cgroup v1: a hierarchy for each controller, or one for several that are mounted together.
 */
#include "sandbox/cgroup_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/fd.h"

#define N_CONTROLLERS 4
#define PIDS_HIGHEST  4194304U /* the kernel knows no higher pid and no higher limit */

#define N_FILES 6

/*
 * @needs: a kernel can be built with a controller and without the half of it that we live on
 * @written: for each run; where our folder is the only slot's group as well, they become the sandboxes' owner's
 */
static const struct {
	enum cgroup_controller bit;
	const char *name;
	const char *needs[N_FILES];
	const char *written[N_FILES];
} controllers[N_CONTROLLERS] = {
	{ CGROUP_MEMORY,
	  "memory",
	  { "memory.limit_in_bytes", "memory.oom_control", "cgroup.event_control" },
	  { "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.max_usage_in_bytes", "memory.force_empty",
	    "cgroup.event_control" } },
	{ CGROUP_PIDS, "pids", { "pids.max" }, { "pids.max" } },
	{ CGROUP_CPU,
	  "cpu",
	  { "cpu.cfs_quota_us", "cpu.cfs_period_us" },
	  { "cpu.cfs_quota_us", "cpu.cfs_period_us" } },
	{ CGROUP_CPUACCT, "cpuacct", { "cpuacct.usage" }, { NULL } },
};

static const char *const delegated[] = { "tasks", NULL };

/* Our folder in each hierarchy: what it is called and whose it is. */
struct top {
	const char *name;
	uid_t uid;
	gid_t gid;
};

/* Where a controller could not be had. */
struct missing {
	int why; /* negative errno; 0: it is there */
	char path[CGROUP_PATH];
};

/* Make our folder below @parent in the first free place of @h, unless a controller mounted together with it did. */
static int make_folder(struct cgroup_host *h, const char *parent, const struct top *top)
{
	char path[CGROUP_PATH];
	unsigned i;
	int n;
	int dir;

	n = snprintf(path, sizeof(path), "%s/%s", parent, top->name);
	if (n < 0 || (size_t)n >= sizeof(path))
		return -ENAMETOOLONG;
	for (i = 0; i < CGROUP_HIERARCHIES && h->dir[i] >= 0; i++)
		if (strcmp(h->path[i], path) == 0)
			return (int)i;
	if (i == CGROUP_HIERARCHIES)
		return -ENOSPC;
	dir = cgroup_make_top(parent, top->name, top->uid, top->gid, delegated);
	if (dir < 0)
		return dir;
	h->dir[i] = dir;
	memcpy(h->path[i], path, (size_t)n + 1);
	return (int)i;
}

static int prepare(struct cgroup_host *h, const struct cgroup_texts *t, unsigned c, const struct top *top,
		   char *ret_path)
{
	int r = cgroup_find(t, controllers[c].name, ret_path);
	int i;

	if (r < 0)
		return r;
	i = make_folder(h, ret_path, top);
	if (i < 0)
		return i;
	for (unsigned k = 0; k < N_FILES && controllers[c].needs[k]; k++)
		if (faccessat(h->dir[i], controllers[c].needs[k], F_OK, 0) < 0)
			return -EOPNOTSUPP;
	for (unsigned k = 0; k < N_FILES && controllers[c].written[k] && h->is_single; k++)
		if (fchownat(h->dir[i], controllers[c].written[k], top->uid, top->gid, AT_SYMLINK_NOFOLLOW) < 0 &&
		    errno != ENOENT)
			return -errno;
	h->controllers[i] |= (uint32_t)controllers[c].bit;
	h->has |= (uint32_t)controllers[c].bit;
	return 0;
}

/* One clause for all controllers that are missing for the same reason. */
static void say_missing(struct cgroup_host *h, struct missing *m, unsigned first)
{
	char names[64] = "";
	int why = m[first].why;

	for (unsigned c = first; c < N_CONTROLLERS; c++) {
		size_t used = strlen(names);

		if (m[c].why != why)
			continue;
		(void)snprintf(names + used, sizeof(names) - used, "%s%s", used ? ", " : "", controllers[c].name);
		m[c].why = 0;
	}
	if (why == -ENODEV)
		cgroup_say(h, "%s: not in this kernel (boot with cgroup_enable=memory, or another kernel)", names);
	else if (why == -ENOENT)
		cgroup_say(h, "%s: our group is not mounted in sight (mount its cgroup v1 hierarchy)", names);
	else if (why == -EOPNOTSUPP)
		cgroup_say(h, "%s: this kernel has only a part of it (needs %s)", names, controllers[first].needs[0]);
	else if (why == -EACCES || why == -EPERM)
		cgroup_say(h, "%s: %s (start cloche as root, or have root give this user the group): %s", names,
			   strerror(-why), m[first].path);
	else if (why == -EROFS)
		cgroup_say(h, "%s: %s (give this container writable control groups): %s", names, strerror(-why),
			   m[first].path);
	else
		cgroup_say(h, "%s: %s: %s", names, strerror(-why), m[first].path);
}

void cgroup_v1_host(struct cgroup_host *h, const struct cgroup_texts *t, const char *name, uid_t uid, gid_t gid)
{
	struct top top = { .name = name, .uid = uid, .gid = gid };
	struct missing m[N_CONTROLLERS] = { 0 };
	int memory;

	for (unsigned c = 0; c < N_CONTROLLERS; c++)
		m[c].why = prepare(h, t, c, &top, m[c].path);
	for (unsigned c = 0; c < N_CONTROLLERS; c++)
		if (m[c].why < 0)
			say_missing(h, m, c);
	if (h->has)
		h->kind = CGROUP_V1;
	memory = cgroup_dir_of(h->dir, h->controllers, CGROUP_MEMORY);
	if (memory >= 0)
		cgroup_note_swap(h, memory, "memory.memsw.limit_in_bytes");
}

/* An eventfd that becomes readable when the group is out of memory. */
static int open_oom(int dir, struct cgroup *g, struct err *e)
{
	auto_fd int control = openat(dir, "memory.oom_control", O_RDONLY | O_CLOEXEC);
	auto_fd int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	char text[32];
	int r;

	if (control < 0 || event < 0)
		return err_set(e, ERR_HOST, errno, "watch for the end of memory");
	(void)snprintf(text, sizeof(text), "%d %d", event, control);
	r = cgroup_write(dir, "cgroup.event_control", text, e);
	if (r < 0)
		return r;
	g->oom_fd = take_fd(&event);
	g->oom_events = EPOLLIN;
	return 0;
}

static const struct {
	enum cgroup_controller of;
	const char *name;
	int flags;
} counters[CGROUP_COUNTERS] = {
	[CGROUP_PEAK] = { CGROUP_MEMORY, "memory.max_usage_in_bytes", O_RDWR },
	[CGROUP_CHARGED] = { CGROUP_MEMORY, "memory.usage_in_bytes", O_RDONLY },
	[CGROUP_OOM] = { CGROUP_MEMORY, "memory.oom_control", O_RDONLY },
	[CGROUP_REFUSED] = { CGROUP_PIDS, "pids.events", O_RDONLY },
	[CGROUP_USED] = { CGROUP_CPUACCT, "cpuacct.usage", O_RDONLY },
	[CGROUP_ALIVE] = { CGROUP_PIDS, "pids.current", O_RDONLY },
};

/* One that is not there reads as 0, as it does on kernels without it. */
static void open_counters(struct cgroup *g)
{
	for (unsigned i = 0; i < CGROUP_COUNTERS; i++) {
		int dir = cgroup_dir_of(g->dir, g->controllers, counters[i].of);

		if (dir >= 0)
			g->counters[i] = openat(dir, counters[i].name, counters[i].flags | O_CLOEXEC);
	}
}

static void read_counter(const struct cgroup *g, enum cgroup_counter c, char *ret, size_t size)
{
	ssize_t n = g->counters[c] < 0 ? -1 : pread(g->counters[c], ret, size - 1, 0);

	ret[n > 0 ? n : 0] = '\0';
}

static uint64_t counter(const struct cgroup *g, enum cgroup_counter c)
{
	char text[64];
	uint64_t v = 0;

	read_counter(g, c, text, sizeof(text));
	return cgroup_read_count(text, &v) < 0 ? 0 : v;
}

static uint64_t keyed_counter(const struct cgroup *g, enum cgroup_counter c, const char *key)
{
	char text[256];
	uint64_t v = 0;

	read_counter(g, c, text, sizeof(text));
	return cgroup_read_key(text, key, &v) < 0 ? 0 : v;
}

int cgroup_v1_open_tasks(struct cgroup *g, struct err *e)
{
	for (unsigned i = 0; i < CGROUP_HIERARCHIES; i++) {
		if (g->dir[i] < 0)
			continue;
		g->tasks[i] = openat(g->dir[i], "tasks", O_WRONLY | O_CLOEXEC);
		if (g->tasks[i] < 0)
			return err_set(e, ERR_HOST, errno, "open the control group's tasks");
	}
	return 0;
}

int cgroup_v1_open(struct cgroup *g, struct err *e)
{
	int memory = cgroup_dir_of(g->dir, g->controllers, CGROUP_MEMORY);
	int r = cgroup_v1_open_tasks(g, e);

	if (r < 0)
		return r;
	open_counters(g);
	return memory >= 0 ? open_oom(memory, g, e) : 0;
}

/*
 * Memory with and without swap get the same value, so no swap.  The kernel keeps memsw >= memory at every moment:
 * raising starts with memsw, lowering with memory.
 */
static int set_memory(int dir, uint64_t bytes, struct err *e)
{
	char text[32];
	bool has_swap = faccessat(dir, "memory.memsw.limit_in_bytes", F_OK, 0) == 0;
	int r;

	(void)snprintf(text, sizeof(text), "%llu", (unsigned long long)bytes);
	r = fd_write_at(dir, "memory.limit_in_bytes", text);
	if (r == -EBUSY) { /* more than that is still charged to an earlier run, and reclaim was in a hurry */
		(void)!fd_write_at(dir, "memory.force_empty", "0");
		r = fd_write_at(dir, "memory.limit_in_bytes", text);
	}
	if (r == -EINVAL && has_swap) {
		r = cgroup_write(dir, "memory.memsw.limit_in_bytes", text, e);
		return r < 0 ? r : cgroup_write(dir, "memory.limit_in_bytes", text, e);
	}
	if (r < 0)
		return err_set(e, ERR_HOST, -r, "write %s to the control group's memory.limit_in_bytes", text);
	return has_swap ? cgroup_write(dir, "memory.memsw.limit_in_bytes", text, e) : 0;
}

static int set_cpu(struct cgroup *g, int dir, uint32_t cpu_milli, struct err *e)
{
	char text[32];
	uint64_t quota_us;
	uint32_t period_us;
	int r;

	cgroup_cpu_quota(cpu_milli, &quota_us, &period_us);
	if (period_us != g->period_us) {
		/* Without a quota any period is right.  Not done each time: it switches a static branch of the kernel.
		 */
		r = cgroup_write(dir, "cpu.cfs_quota_us", "-1", e);
		if (r < 0)
			return r;
		(void)snprintf(text, sizeof(text), "%u", period_us);
		r = cgroup_write(dir, "cpu.cfs_period_us", text, e);
		if (r < 0)
			return r;
		g->period_us = period_us;
	}
	(void)snprintf(text, sizeof(text), "%llu", (unsigned long long)quota_us);
	r = fd_write_at(dir, "cpu.cfs_quota_us", text);
	if (r ==
	    -EINVAL) /* a group above us has less than that (v1 says so, v2 takes the minimum): that one holds then */
		return cgroup_write(dir, "cpu.cfs_quota_us", "-1", e);
	return r < 0 ? err_set(e, ERR_HOST, -r, "write %s to the control group's cpu.cfs_quota_us", text) : 0;
}

static int set_pids(int dir, uint32_t processes, struct err *e)
{
	char text[32];

	(void)snprintf(text, sizeof(text), "%u", processes < PIDS_HIGHEST ? processes : PIDS_HIGHEST);
	return cgroup_write(dir, "pids.max", text, e);
}

int cgroup_v1_start(struct cgroup *g, struct err *e)
{
	uint64_t events;

	if (g->counters[CGROUP_PEAK] >= 0) {
		/* down to what is charged now */
		if (pwrite(g->counters[CGROUP_PEAK], "0", 1, 0) != 1)
			return err_set(e, ERR_HOST, errno, "write 0 to the control group's %s",
				       counters[CGROUP_PEAK].name);
		g->left_over_bytes = counter(g, CGROUP_CHARGED);
		g->oom_kills_before = keyed_counter(g, CGROUP_OOM, "oom_kill");
	}
	g->pids_max_before = keyed_counter(g, CGROUP_REFUSED, "max");
	g->cpu_ns_before = counter(g, CGROUP_USED);
	if (g->oom_fd >= 0 && read(g->oom_fd, &events, sizeof(events)) < 0 && errno != EAGAIN)
		return err_set(e, ERR_HOST, errno, "empty the out-of-memory event");
	return 0;
}

int cgroup_v1_set(struct cgroup *g, const struct cgroup_limits *l, struct err *e)
{
	int memory = cgroup_dir_of(g->dir, g->controllers, CGROUP_MEMORY);
	int pids = cgroup_dir_of(g->dir, g->controllers, CGROUP_PIDS);
	int cpu = cgroup_dir_of(g->dir, g->controllers, CGROUP_CPU);
	struct cgroup_limits before = g->now;
	int r = 0;

	memset(&g->now, 0, sizeof(g->now)); /* unknown, should one of these fail */
	if (memory >= 0 && before.memory_bytes != l->memory_bytes)
		r = set_memory(memory, l->memory_bytes, e);
	if (r == 0 && pids >= 0 && before.processes != l->processes)
		r = set_pids(pids, l->processes, e);
	if (r == 0 && cpu >= 0 && before.cpu_milli != l->cpu_milli)
		r = set_cpu(g, cpu, l->cpu_milli, e);
	if (r == 0)
		g->now = *l;
	return r;
}

bool cgroup_v1_is_empty(const struct cgroup *g)
{
	char text[64];

	read_counter(g, CGROUP_ALIVE, text, sizeof(text));
	return strcmp(text, "0\n") == 0;
}

bool cgroup_v1_is_oom(const struct cgroup *g)
{
	uint64_t events;

	if (g->oom_fd < 0 || read(g->oom_fd, &events, sizeof(events)) != (ssize_t)sizeof(events))
		return false;
	return cgroup_touched_limit(g, counter(g, CGROUP_PEAK)) ||
	       keyed_counter(g, CGROUP_OOM, "oom_kill") > g->oom_kills_before;
}

void cgroup_v1_usage(const struct cgroup *g, struct cgroup_usage *ret)
{
	if (g->counters[CGROUP_PEAK] >= 0) {
		uint64_t peak = counter(g, CGROUP_PEAK);

		ret->has_peak = peak > 0;
		ret->peak_bytes = cgroup_peak(g, peak);
		ret->oom_kills = cgroup_risen(keyed_counter(g, CGROUP_OOM, "oom_kill"), g->oom_kills_before);
	}
	ret->pids_refused = cgroup_risen(keyed_counter(g, CGROUP_REFUSED, "max"), g->pids_max_before);
	if (g->counters[CGROUP_USED] >= 0) {
		ret->cpu_ns = cgroup_risen(counter(g, CGROUP_USED), g->cpu_ns_before);
		ret->has_cpu = true;
	}
}
