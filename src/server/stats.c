/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was counted since the start, as JSON (NATIVE_STATS_REPLY).
 *
 * version, pid, start_time   (seconds since 1970), uptime (seconds)
 * running, waiting, max_running, queue_max, connections
 * is_ready         a run would start now, or wait for others alone
 * runs             [{status, mode, count}]; those that never were are left out
 * refused          {busy, invalid}
 * bucket_bounds    upper bounds in seconds, of all buckets but the last, which has none
 * execution_time, queue_time, total_time (from arrival to result)
 *                  {buckets: [how many in each, not cumulative], sum (seconds), count}
 * tenants          [{name: "uid-1000" or as NATIVE_TENANT said, running, waiting, connections}]; who may not speak for
 *                  others is told of itself alone
 * supervisors      [{pid, tenant (null: several, no new runs, or somebody else's), is_ready, is_ending, running,
 *                  age (seconds), memory_bytes (resident, without its sandboxes and zygotes),
 *                  environments: as NATIVE_ENV_REPLY has them, or null}]
 * walls            [{name, state: full, weak or missing, what, detail, remedy}], as found at a supervisor's start
 * history          {state: opening, writing or broken, queued, queue_bytes, written, dropped, stripped, error};
 *                  null: none is kept
 */
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "run/environments.h"
#include "server/server.h"

#define ASK_NS (250 * NS_PER_MS) /* after it no further supervisor is asked, for runs wait meanwhile; one takes 0.5 s at most */

static const uint64_t bounds_us[STATS_BUCKETS - 1] = { 1000,    2500,    5000,     10000,    25000,
						       50000,   100000,  250000,   500000,   1000000,
						       2500000, 5000000, 10000000, 30000000, 60000000 };

void stats_start(struct stats *st)
{
	st->started_ns = clock_now_ns();
	st->started_at = (int64_t)time(NULL);
}

static void count(struct histogram *h, uint64_t ns)
{
	size_t i = 0;

	while (i < STATS_BUCKETS - 1 && ns > bounds_us[i] * 1000)
		i++;
	h->counts[i]++;
	h->sum_ns += ns;
}

void stats_run(struct stats *st, const struct result *r, uint64_t total_ns)
{
	st->runs[r->status][r->mode == JOB_MODE_WARM]++;
	count(&st->total, total_ns);
	count(&st->queue, r->queue_ns);
	if (r->return_code != RETURN_CODE_NOT_RUN)
		count(&st->execution, r->execution_ns);
}

void stats_refused(struct stats *st, enum err_kind kind)
{
	if (kind == ERR_BUSY)
		st->n_busy++;
	else
		st->n_invalid++;
}

static json_t *seconds(uint64_t ns)
{
	return json_real((double)ns / (double)NS_PER_SEC);
}

static json_t *text(const char *s)
{
	json_t *t = json_string(s);

	return t ? t : json_string(""); /* not UTF-8 */
}

static json_t *number(uint64_t n)
{
	return json_integer((json_int_t)n);
}

static json_t *write_histogram(const struct histogram *h)
{
	json_t *buckets = json_array();
	uint64_t n = 0;

	for (size_t i = 0; i < STATS_BUCKETS; i++) {
		n += h->counts[i];
		(void)json_array_append_new(buckets, number(h->counts[i]));
	}
	return json_pack("{s:o, s:o, s:o}", "buckets", buckets, "sum", seconds(h->sum_ns), "count", number(n));
}

static json_t *write_bounds(void)
{
	json_t *list = json_array();

	for (size_t i = 0; i < STATS_BUCKETS - 1; i++)
		(void)json_array_append_new(list, json_real((double)bounds_us[i] / 1e6));
	return list;
}

static json_t *write_runs(const struct stats *st)
{
	json_t *list = json_array();

	for (int status = 0; status < STATUS_MAX; status++) {
		for (int is_warm = 0; is_warm < 2; is_warm++) {
			if (!st->runs[status][is_warm])
				continue;
			(void)json_array_append_new(
				list, json_pack("{s:s, s:s, s:o}", "status", status_name((enum status)status), "mode",
						is_warm ? "warm" : "cold", "count", number(st->runs[status][is_warm])));
		}
	}
	return list;
}

static json_t *name_of(const struct tenant *t)
{
	char name[32];

	return text(tenant_name(t, name, sizeof(name)));
}

static json_t *write_tenants(const struct server *s, const struct tenant *only)
{
	json_t *list = json_array();

	for (const struct tenant *t = s->tenants; t; t = t->next) {
		if (only && t != only)
			continue;
		(void)json_array_append_new(
			list, json_pack("{s:o, s:I, s:I, s:I}", "name", name_of(t), "running", (json_int_t)t->n_running,
					"waiting", (json_int_t)t->n_waiting, "connections", (json_int_t)t->n_clients));
	}
	return list;
}

/* Resident memory of a process, in pages; 0: not known. */
static unsigned long pages_of(pid_t pid)
{
	char path[48];
	char line[128];
	unsigned long size, pages;

	(void)snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
	if (fd_read_at(AT_FDCWD, path, line, sizeof(line)) <= 0 || sscanf(line, "%lu %lu", &size, &pages) != 2)
		return 0;
	return pages;
}

/* A supervisor is two processes, the second a child of the first. */
static uint64_t memory_of(pid_t pid)
{
	char path[64];
	char line[256];
	unsigned long pages = pages_of(pid);
	long child;

	(void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
	if (fd_read_at(AT_FDCWD, path, line, sizeof(line)) > 0 && sscanf(line, "%ld", &child) == 1)
		pages += pages_of((pid_t)child);
	return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static json_t *write_pools(const struct keeper *k, uint64_t until_ns)
{
	struct run_pool_state pools[32];
	auto_free char *list = NULL;
	json_t *ret;
	size_t n;

	if (!k->is_ready || clock_now_ns() > until_ns)
		return json_null();
	n = supervisor_pools(k->supervisor, pools, ARRAY_LEN(pools));
	list = environments_write(&k->shared->settings.conf, pools, n);
	ret = list ? json_loads(list, 0, NULL) : NULL;
	return ret ? ret : json_null();
}

static void write_supervisor(json_t *list, const struct keeper *k, json_t *whose, bool is_ending, uint64_t until_ns)
{
	pid_t pid = supervisor_pid(k->supervisor);

	(void)json_array_append_new(
		list, json_pack("{s:i, s:o, s:b, s:b, s:i, s:o, s:o, s:o}", "pid", (int)pid, "tenant", whose,
				"is_ready", (int)k->is_ready, "is_ending", (int)is_ending, "running", (int)k->n_runs,
				"age", seconds(clock_now_ns() - k->started_ns), "memory_bytes", number(memory_of(pid)),
				"environments", is_ending ? json_null() : write_pools(k, until_ns)));
}

static json_t *write_supervisors(const struct server *s, const struct tenant *only)
{
	bool is_shared = s->shared->settings.conf.server.share_zygotes;
	uint64_t until_ns = clock_now_ns() + ASK_NS;
	json_t *list = json_array();

	for (const struct tenant *t = s->tenants; t; t = t->next) {
		bool is_told = !is_shared && (!only || t == only);

		if (t->current)
			write_supervisor(list, t->current, is_told ? name_of(t) : json_null(), false, until_ns);
	}
	if (s->coming)
		write_supervisor(list, s->coming, json_null(), false, until_ns);
	for (const struct keeper *k = s->old; k; k = k->next)
		write_supervisor(list, k, json_null(), true, until_ns);
	return list;
}

static json_t *write_walls(const struct keeper *k)
{
	static const char *const states[] = { [WALL_FULL] = "full", [WALL_WEAK] = "weak", [WALL_MISSING] = "missing" };
	const struct wall_report *walls = NULL;
	size_t n = k ? supervisor_known_walls(k->supervisor, &walls) : 0;
	json_t *list = json_array();

	for (size_t i = 0; i < n; i++) {
		const struct wall_report *w = &walls[i];
		bool is_known = w->state >= 0 && w->state < (int)ARRAY_LEN(states);

		(void)json_array_append_new(list,
					    json_pack("{s:o, s:s, s:o, s:o, s:o}", "name", text(w->name), "state",
						      states[is_known ? w->state : WALL_MISSING], "what", text(w->what),
						      "detail", text(w->detail), "remedy", text(w->remedy)));
	}
	return list;
}

static json_t *write_history(const struct server *s)
{
	static const char *const states[] = {
		[HISTORY_OPENING] = "opening", [HISTORY_WRITING] = "writing", [HISTORY_BROKEN] = "broken"
	};
	struct history_stats h;

	if (!s->record.history)
		return json_null();
	history_stats(s->record.history, &h);
	return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "state", states[h.state], "queued", number(h.queued),
			 "queue_bytes", number(h.queue_bytes), "written", number(h.written), "dropped",
			 number(h.dropped), "stripped", number(h.stripped), "error", text(h.error));
}

char *stats_write(struct server *s, const struct tenant *only)
{
	const struct stats *st = &s->stats;
	const struct keeper *k = keeper_of(s, s->own);
	json_t *all = json_pack("{s:s, s:i, s:I, s:o, s:i, s:i, s:i, s:i, s:i, s:b}", "version", CLOCHE_VERSION, "pid",
				(int)getpid(), "start_time", (json_int_t)st->started_at, "uptime",
				seconds(clock_now_ns() - st->started_ns), "running", (int)s->n_running, "waiting",
				(int)s->n_waiting, "max_running", (int)admit_max(s), "queue_max",
				(int)s->shared->settings.conf.server.queue_max, "connections", (int)s->n_clients,
				"is_ready", k != NULL && !s->is_stopping);
	char *ret = NULL;

	if (all && json_object_set_new(all, "runs", write_runs(st)) == 0 &&
	    json_object_set_new(
		    all, "refused",
		    json_pack("{s:o, s:o}", "busy", number(st->n_busy), "invalid", number(st->n_invalid))) == 0 &&
	    json_object_set_new(all, "bucket_bounds", write_bounds()) == 0 &&
	    json_object_set_new(all, "execution_time", write_histogram(&st->execution)) == 0 &&
	    json_object_set_new(all, "queue_time", write_histogram(&st->queue)) == 0 &&
	    json_object_set_new(all, "total_time", write_histogram(&st->total)) == 0 &&
	    json_object_set_new(all, "tenants", write_tenants(s, only)) == 0 &&
	    json_object_set_new(all, "supervisors", write_supervisors(s, only)) == 0 &&
	    json_object_set_new(all, "walls", write_walls(k)) == 0 &&
	    json_object_set_new(all, "history", write_history(s)) == 0)
		ret = json_dumps(all, JSON_COMPACT);
	json_decref(all);
	return ret;
}
