/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control groups: a slot's group, and the choice between v1 and v2.
 */
#include "sandbox/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "sandbox/cgroup_impl.h"

#define SLOT_CLOSE_NS (100 * NS_PER_MS)
#define RENEW_NS      (20 * NS_PER_MS)

uint64_t cgroup_read_file_key(int dir, const char *file, const char *key)
{
	char text[1024];
	uint64_t v = 0;

	if (fd_read_at(dir, file, text, sizeof(text)) < 0 || cgroup_read_key(text, key, &v) < 0)
		return 0;
	return v;
}

uint64_t cgroup_read_file_count(int dir, const char *file)
{
	char text[64];
	uint64_t v = 0;

	if (fd_read_at(dir, file, text, sizeof(text)) < 0 || cgroup_read_count(text, &v) < 0)
		return 0;
	return v;
}

int cgroup_write(int dir, const char *file, const char *text, struct err *e)
{
	int r = fd_write_at(dir, file, text);

	return r < 0 ? err_set(e, ERR_HOST, -r, "write %s to the control group's %s", text, file) : 0;
}

int cgroup_dir_of(const int *dirs, const uint32_t *controllers, enum cgroup_controller controller)
{
	for (unsigned i = 0; i < CGROUP_HIERARCHIES; i++)
		if (dirs[i] >= 0 && (controllers[i] & (uint32_t)controller))
			return dirs[i];
	return -1;
}

void cgroup_slot_name(unsigned slot, char *ret)
{
	(void)snprintf(ret, CGROUP_NAME, "s%u", slot);
}

static void close_all(struct cgroup *g)
{
	for (unsigned i = 0; i < CGROUP_HIERARCHIES; i++) {
		fd_close(&g->dir[i]);
		fd_close(&g->tasks[i]);
	}
	fd_close(&g->oom_fd);
	fd_close(&g->peak_fd);
	for (unsigned i = 0; i < CGROUP_COUNTERS; i++)
		fd_close(&g->counters[i]);
}

/* cgroup_v2_renew(), while a process that was just reaped is still on its way out */
static int renew_patiently(int dir, const char *name)
{
	uint64_t deadline_ns = clock_now_ns() + RENEW_NS;
	int r;

	while ((r = cgroup_v2_renew(dir, name)) == -EBUSY && clock_now_ns() < deadline_ns)
		cgroup_pause_ms(1);
	return r;
}

static int open_dirs(const struct cgroup_host *h, unsigned slot, struct cgroup *g, struct err *e)
{
	char name[CGROUP_NAME];

	cgroup_slot_name(slot, name);
	for (unsigned i = 0; i < CGROUP_HIERARCHIES; i++) {
		const char *which = h->is_single ? "." : name;

		if (h->dir[i] < 0)
			continue;
		if (!h->is_single && mkdirat(h->dir[i], name, 0755) < 0) {
			if (errno != EEXIST)
				return err_set(e, ERR_HOST, errno, "make control group %s/%s", h->path[i], name);
			g->is_used = h->kind != CGROUP_V2 || renew_patiently(h->dir[i], name) < 0;
		}
		g->dir[i] = openat(h->dir[i], which, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (g->dir[i] < 0)
			return err_set(e, ERR_HOST, errno, "open control group %s/%s", h->path[i], which);
		g->controllers[i] = h->controllers[i];
	}
	return 0;
}

int cgroup_open(const struct cgroup_host *h, unsigned slot, struct cgroup *ret, struct err *e)
{
	struct cgroup g = CGROUP_EMPTY;
	int r;

	if (h->is_single && slot > 0)
		return err_set(e, ERR_BUG, 0, "slot %u of a single one", slot);
	g.kind = h->kind;
	g.has = h->has;
	r = open_dirs(h, slot, &g, e);
	if (r == 0 && g.kind == CGROUP_V1)
		r = cgroup_v1_open(&g, e);
	else if (r == 0 && g.kind == CGROUP_V2)
		r = cgroup_v2_open(&g, e);
	if (r < 0) {
		cgroup_close(&g, h, slot, true);
		return r;
	}
	*ret = g;
	return 0;
}

bool cgroup_is_set(const struct cgroup *g, const struct cgroup_limits *l)
{
	return g->now.memory_bytes == l->memory_bytes && g->now.processes == l->processes &&
	       g->now.cpu_milli == l->cpu_milli;
}

void cgroup_rest(struct cgroup *g)
{
	if (g->kind != CGROUP_V1)
		return;
	for (unsigned i = 0; i < CGROUP_HIERARCHIES; i++) {
		fd_close(&g->dir[i]);
		fd_close(&g->tasks[i]);
	}
	g->is_resting = true;
}

int cgroup_rouse(const struct cgroup_host *h, unsigned slot, struct cgroup *g, struct err *e)
{
	int r;

	if (!g->is_resting)
		return 0;
	r = open_dirs(h, slot, g, e);
	if (r == 0)
		r = cgroup_v1_open_tasks(g, e);
	if (r < 0)
		cgroup_rest(g);
	else
		g->is_resting = false;
	return r;
}

int cgroup_set(struct cgroup *g, const struct cgroup_limits *l, struct err *e)
{
	if (g->is_resting && !cgroup_is_set(g, l))
		return err_set(e, ERR_BUG, 0, "limits for a control group at rest");
	if (((g->has & CGROUP_MEMORY) && l->memory_bytes == 0) || ((g->has & CGROUP_PIDS) && l->processes == 0) ||
	    ((g->has & CGROUP_CPU) && l->cpu_milli == 0))
		return err_set(e, ERR_BUG, 0, "a limit of 0 (memory %llu, processes %u, cpu %u)",
			       (unsigned long long)l->memory_bytes, l->processes, l->cpu_milli);
	if (g->kind == CGROUP_V1)
		return cgroup_v1_set(g, l, e);
	return g->kind == CGROUP_V2 ? cgroup_v2_set(g, l, e) : 0;
}

int cgroup_start(struct cgroup *g, struct err *e)
{
	if (g->kind == CGROUP_V1)
		return cgroup_v1_start(g, e);
	if (g->kind == CGROUP_V2)
		cgroup_v2_start(g);
	return 0;
}

int cgroup_join(const struct cgroup *g)
{
	for (unsigned i = 0; i < CGROUP_HIERARCHIES; i++)
		if (g->tasks[i] >= 0 && write(g->tasks[i], "0", 1) != 1)
			return -1;
	return 0;
}

void cgroup_usage(const struct cgroup *g, struct cgroup_usage *ret)
{
	memset(ret, 0, sizeof(*ret));
	if (g->kind == CGROUP_V1)
		cgroup_v1_usage(g, ret);
	else if (g->kind == CGROUP_V2)
		cgroup_v2_usage(g, ret);
}

bool cgroup_is_oom(const struct cgroup *g)
{
	struct cgroup_usage usage;

	if (g->kind == CGROUP_V1)
		return cgroup_v1_is_oom(g);
	cgroup_usage(g, &usage);
	return usage.oom_kills > 0;
}

bool cgroup_is_empty(const struct cgroup *g)
{
	char text[64];

	if (g->kind == CGROUP_V1)
		return cgroup_v1_is_empty(g);
	return g->kind == CGROUP_V2 && (g->has & CGROUP_PIDS) &&
	       fd_read_at(g->dir[0], "pids.current", text, sizeof(text)) > 0 && strcmp(text, "0\n") == 0;
}

void cgroup_close(struct cgroup *g, const struct cgroup_host *h, unsigned slot, bool remove)
{
	uint64_t deadline_ns = clock_now_ns() + SLOT_CLOSE_NS;
	char name[CGROUP_NAME];

	close_all(g);
	if (!remove || h->is_single)
		return;
	cgroup_slot_name(slot, name);
	for (unsigned i = 0; i < CGROUP_HIERARCHIES; i++)
		if (h->dir[i] >= 0)
			(void)cgroup_remove_by(h->dir[i], name, deadline_ns);
}
