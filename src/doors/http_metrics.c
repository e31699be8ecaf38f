/* SPDX-License-Identifier: Apache-2.0 */
/* GET /metrics: what cloched and this door have counted, in Prometheus' text format. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doors/door.h"

#define TEXT_MAX   ((size_t)4 << 20)
#define ENVS_MAX   64
#define COUNTS_MAX 1000

/* Answers given, by what was asked and how it went. */
struct http_count {
	const char *path;
	const char *method;
	int status;
	uint64_t n;
};

/* What the supervisors have for one environment, together. */
struct ready {
	const char *name;
	double parked;
	double zygotes;
	double runs;
	double bytes;
	double age; /* of the oldest */
};

void metrics_count(void *door, const void *route, const char *method, int status)
{
	struct door *d = door;
	const char *path = route_path(route);
	struct http_count *more;

	for (size_t i = 0; i < d->n_counts; i++) {
		struct http_count *c = &d->counts[i];

		if (c->path == path && c->status == status && strcmp(c->method, method) == 0) {
			c->n++;
			return;
		}
	}
	more = d->n_counts < COUNTS_MAX ? reallocarray(d->counts, d->n_counts + 1, sizeof(*more)) : NULL;
	if (!more)
		return;
	d->counts = more;
	more[d->n_counts++] = (struct http_count) { .path = path, .method = method, .status = status, .n = 1 };
}

static int head(struct buf *b, const char *name, const char *type, const char *help)
{
	return buf_printf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static int one(struct buf *b, const char *name, const char *type, const char *help, double value)
{
	int r = head(b, name, type, help);

	return r ? r : buf_printf(b, "%s %.17g\n", name, value);
}

static double number(const json_t *o, const char *name)
{
	return json_number_value(json_object_get(o, name));
}

static const char *text(const json_t *o, const char *name)
{
	const char *s = json_string_value(json_object_get(o, name));

	return s ? s : "";
}

static int put_runs(struct buf *b, const json_t *o)
{
	const json_t *runs = json_object_get(o, "runs");
	const json_t *refused = json_object_get(o, "refused");
	int r = head(b, "cloche_runs_total", "counter", "Runs that have ended.");

	for (size_t i = 0; i < json_array_size(runs) && r == 0; i++) {
		const json_t *run = json_array_get(runs, i);

		r = buf_printf(b, "cloche_runs_total{status=\"%s\",mode=\"%s\"} %.17g\n", text(run, "status"),
			       text(run, "mode"), number(run, "count"));
	}
	if (r == 0)
		r = head(b, "cloche_refused_total", "counter", "Requests that became no run.");
	if (r == 0)
		r = buf_printf(b,
			       "cloche_refused_total{reason=\"busy\"} %.17g\n"
			       "cloche_refused_total{reason=\"invalid\"} %.17g\n",
			       number(refused, "busy"), number(refused, "invalid"));
	return r;
}

static int put_histogram(struct buf *b, const json_t *o, const char *name, const char *phase)
{
	static const char metric[] = "cloche_run_phase_seconds";
	const json_t *bounds = json_object_get(o, "bucket_bounds");
	const json_t *h = json_object_get(o, name);
	const json_t *buckets = json_object_get(h, "buckets");
	double sum = 0;
	int r = 0;

	for (size_t i = 0; i < json_array_size(buckets) && r == 0; i++) {
		const json_t *bound = json_array_get(bounds, i);

		sum += json_number_value(json_array_get(buckets, i));
		if (bound)
			r = buf_printf(b, "%s_bucket{phase=\"%s\",le=\"%g\"} %.17g\n", metric, phase,
				       json_number_value(bound), sum);
		else
			r = buf_printf(b, "%s_bucket{phase=\"%s\",le=\"+Inf\"} %.17g\n", metric, phase, sum);
	}
	if (r == 0)
		r = buf_printf(b, "%s_sum{phase=\"%s\"} %.17g\n%s_count{phase=\"%s\"} %.17g\n", metric, phase,
			       number(h, "sum"), metric, phase, number(h, "count"));
	return r;
}

static int put_histograms(struct buf *b, const json_t *o)
{
	int r = head(b, "cloche_run_phase_seconds", "histogram",
		     "How long runs waited, executed, and took in all from their arrival to their result.");

	if (r == 0)
		r = put_histogram(b, o, "queue_time", "queue");
	if (r == 0)
		r = put_histogram(b, o, "execution_time", "execution");
	if (r == 0)
		r = put_histogram(b, o, "total_time", "total");
	return r;
}

/* Return: how many environments there are in @all, filled in */
static size_t gather(const json_t *o, struct ready all[ENVS_MAX])
{
	const json_t *supervisors = json_object_get(o, "supervisors");
	size_t n = 0;

	for (size_t i = 0; i < json_array_size(supervisors); i++) {
		const json_t *envs = json_object_get(json_array_get(supervisors, i), "environments");

		for (size_t k = 0; k < json_array_size(envs); k++) {
			const json_t *env = json_array_get(envs, k);
			size_t at = 0;

			while (at < n && strcmp(all[at].name, text(env, "name")) != 0)
				at++;
			if (at == ENVS_MAX)
				continue;
			if (at == n)
				all[n++] = (struct ready) { .name = text(env, "name") };
			all[at].parked += number(env, "parked");
			all[at].zygotes += json_is_number(json_object_get(env, "zygote_age")) ? 1 : 0;
			all[at].runs += number(env, "zygote_runs");
			all[at].bytes += number(env, "zygote_memory_bytes");
			if (number(env, "zygote_age") > all[at].age)
				all[at].age = number(env, "zygote_age");
		}
	}
	return n;
}

/* @t: who may use only some of them is told of those; NULL: of all */
static int put_environments(struct buf *b, const json_t *o, const struct token *t)
{
	static const struct {
		const char *name;
		const char *help;
		size_t offset;
	} metrics[] = {
		{ "cloche_parked_sandboxes", "Sandboxes that wait for a run.", offsetof(struct ready, parked) },
		{ "cloche_zygotes", "Interpreters that are kept ready.", offsetof(struct ready, zygotes) },
		{ "cloche_zygote_runs", "Runs that the interpreters kept ready have been forked for.",
		  offsetof(struct ready, runs) },
		{ "cloche_zygote_memory_bytes", "Memory of the interpreters kept ready.",
		  offsetof(struct ready, bytes) },
		{ "cloche_zygote_age_seconds", "Age of the oldest of them.", offsetof(struct ready, age) },
	};
	struct ready all[ENVS_MAX];
	size_t n = gather(o, all);
	int r = 0;

	for (size_t i = 0; i < ARRAY_LEN(metrics) && r == 0; i++) {
		r = head(b, metrics[i].name, "gauge", metrics[i].help);
		for (size_t k = 0; k < n && r == 0; k++) {
			if (t && !token_allows(t, all[k].name))
				continue;
			r = buf_printf(b, "%s{environment=\"%s\"} %.17g\n", metrics[i].name, all[k].name,
				       *(const double *)(const void *)((const char *)&all[k] + metrics[i].offset));
		}
	}
	return r;
}

static int put_supervisors(struct buf *b, const json_t *o)
{
	const json_t *list = json_object_get(o, "supervisors");
	double bytes = 0;
	int r;

	for (size_t i = 0; i < json_array_size(list); i++)
		bytes += number(json_array_get(list, i), "memory_bytes");
	r = one(b, "cloche_supervisors", "gauge", "Supervisor processes.", (double)json_array_size(list));
	if (r == 0)
		r = one(b, "cloche_supervisor_memory_bytes", "gauge", "Resident memory of the supervisors.", bytes);
	if (r == 0)
		r = one(b, "cloche_tenants", "gauge", "Tenants that are connected.",
			(double)json_array_size(json_object_get(o, "tenants")));
	return r;
}

static int put_server(struct buf *b, const json_t *o)
{
	const json_t *history = json_object_get(o, "history");
	int r = head(b, "cloche_build_info", "gauge", "The version.");

	if (r == 0)
		r = buf_printf(b, "cloche_build_info{version=\"%s\"} 1\n", text(o, "version"));
	if (r == 0)
		r = one(b, "cloche_start_time_seconds", "gauge", "When the server was started, since 1970.",
			number(o, "start_time"));
	if (r == 0)
		r = one(b, "cloche_running", "gauge", "Runs under way.", number(o, "running"));
	if (r == 0)
		r = one(b, "cloche_waiting", "gauge", "Requests in the queue.", number(o, "waiting"));
	if (r == 0)
		r = one(b, "cloche_max_running", "gauge", "Runs at the same time, at most.", number(o, "max_running"));
	if (r == 0)
		r = one(b, "cloche_queue_max", "gauge", "Requests in the queue, at most.", number(o, "queue_max"));
	if (r == 0)
		r = one(b, "cloche_connections", "gauge", "Clients of the native socket.", number(o, "connections"));
	if (r == 0 && json_is_object(history))
		r = one(b, "cloche_history_queued", "gauge", "Rows that wait to be written.",
			number(history, "queued"));
	if (r == 0 && json_is_object(history))
		r = one(b, "cloche_history_dropped_total", "counter", "Rows that were lost.",
			number(history, "dropped"));
	return r;
}

static int put_door(struct buf *b, const struct door *d)
{
	unsigned n = 0;
	int r = head(b, "cloche_http_requests_total", "counter", "Answers given over HTTP.");

	for (const struct live *l = d->live; l; l = l->next)
		n++;
	for (size_t i = 0; i < d->n_counts && r == 0; i++)
		r = buf_printf(b, "cloche_http_requests_total{route=\"%s\",method=\"%s\",status=\"%d\"} %llu\n",
			       d->counts[i].path, d->counts[i].method, d->counts[i].status,
			       (unsigned long long)d->counts[i].n);
	if (r == 0)
		r = one(b, "cloche_http_connections", "gauge", "Connections over HTTP.", http_server_count(d->http));
	if (r == 0)
		r = one(b, "cloche_http_request_bytes", "gauge", "Bytes of requests that are held.",
			(double)http_server_bodies(d->http));
	if (r == 0)
		r = one(b, "cloche_http_live_runs", "gauge", "Single runs under way over HTTP.", n);
	return r;
}

static void on_stats(struct door *d, struct http_conn *c, const char *json, size_t len)
{
	struct http_answer a = { .status = 200,
				 .type = "text/plain; version=0.0.4; charset=utf-8",
				 .frees_body = true };
	const char *name = http_conn_caller(c)->token;
	const struct token *t = *name ? tokens_by_name(&d->tokens, name) : NULL;
	json_t *o = json ? json_loadb(json, len, 0, NULL) : NULL;
	struct buf b;
	int r;

	buf_init(&b, TEXT_MAX);
	r = one(&b, "cloche_up", "gauge", "Whether the server that makes runs answers.", o != NULL);
	if (r == 0 && o)
		r = put_server(&b, o);
	if (r == 0 && o)
		r = put_runs(&b, o);
	if (r == 0 && o)
		r = put_histograms(&b, o);
	if (r == 0 && o)
		r = put_supervisors(&b, o);
	if (r == 0 && o && (t || !*name))
		r = put_environments(&b, o, t);
	if (r == 0)
		r = put_door(&b, d);
	json_decref(o);
	if (r < 0) {
		buf_done(&b);
		problem_reply(c, &(struct problem) { .status = 503, .detail = "no memory", .headers = RETRY_SOON });
		return;
	}
	a.body = b.data;
	a.len = b.len;
	http_reply(c, &a);
}

void metrics_get(struct door *d, struct http_conn *c)
{
	about_stats(d, c, on_stats);
}
