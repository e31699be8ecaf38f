/* SPDX-License-Identifier: Apache-2.0 */
/* What there is, what is enforced, whether it is well. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "doors/door.h"
#include "doors/openapi_text.h"
#include "run/native.h"

#define STATS_AGE_NS NS_PER_SEC /* supervisors are asked for them: not for everybody who asks */

typedef void (*stats_fn)(struct door *d, struct http_conn *c, const char *json, size_t len);

/* A request that waits for cloched's answer. */
struct waiter {
	struct waiter *next;
	struct door *door;
	struct http_conn *conn;
	struct runner_run *run; /* a question of its own; NULL: it waits for the counters that are on their way */
	stats_fn fn;
};

struct stats_cache {
	struct waiter *waiters;
	struct runner_run *run; /* NULL: nothing is on its way */
	char *json;             /* owned; NULL: never */
	size_t len;
	uint64_t taken_ns;
};

static void no_server(struct http_conn *c)
{
	problem_reply(c, &(struct problem) {
				 .status = 503,
				 .type = "no-server",
				 .detail = "no server that makes runs answers; try again",
				 .headers = RETRY_SOON,
			 });
}

static void on_gone(void *userdata)
{
	struct waiter *w = userdata;
	struct waiter **at = &w->door->stats->waiters;

	while (*at && *at != w)
		at = &(*at)->next;
	if (*at)
		*at = w->next;
	if (w->run)
		runner_drop(w->run);
	free(w);
}

static struct waiter *waiter_new(struct door *d, struct http_conn *c)
{
	struct waiter *w = calloc(1, sizeof(*w));
	struct http_watch watch = { .userdata = w, .on_gone = on_gone };

	if (!d->stats)
		d->stats = calloc(1, sizeof(*d->stats));
	if (!w || !d->stats) {
		free(w);
		return NULL;
	}
	w->door = d;
	w->conn = c;
	http_conn_watch(c, &watch);
	return w;
}

static void on_counters(void *userdata, struct runner_answer *a)
{
	struct door *d = userdata;
	struct stats_cache *s = d->stats;
	bool is_told = !a->is_lost && !a->is_refused;

	s->run = NULL;
	free(s->json);
	s->json = is_told ? a->json : NULL;
	s->len = a->len;
	s->taken_ns = clock_now_ns();
	if (!is_told)
		free(a->json);
	while (s->waiters) {
		struct waiter *w = s->waiters;

		s->waiters = w->next;
		w->fn(d, w->conn, s->json, s->len);
		free(w);
	}
}

void about_stats(struct door *d, struct http_conn *c, stats_fn on_stats)
{
	struct runner_hooks hooks = { .userdata = d, .on_done = on_counters };
	struct err e = { .kind = ERR_NONE };
	struct waiter *w;

	if (d->stats && d->stats->json && clock_now_ns() - d->stats->taken_ns < STATS_AGE_NS) {
		on_stats(d, c, d->stats->json, d->stats->len);
		return;
	}
	w = waiter_new(d, c);
	if (!w) {
		on_stats(d, c, NULL, 0);
		return;
	}
	w->fn = on_stats;
	w->next = d->stats->waiters;
	d->stats->waiters = w;
	if (!d->stats->run && runner_ask(d->runner, NATIVE_STATS, &hooks, &d->stats->run, &e) < 0) {
		d->stats->waiters = w->next;
		free(w);
		on_stats(d, c, NULL, 0);
	}
}

void about_done(struct door *d)
{
	if (!d->stats)
		return;
	if (d->stats->run)
		runner_drop(d->stats->run);
	free(d->stats->json);
	free(d->stats);
	d->stats = NULL;
}

/* Who may use only some of them is told of those. */
static char *filter(const struct token *t, const char *json, size_t len)
{
	json_t *o = json_loadb(json, len, 0, NULL);
	json_t *all = json_object_get(o, "environments");
	json_t *kept = json_array();
	char *text;

	for (size_t i = 0; i < json_array_size(all); i++) {
		json_t *one = json_array_get(all, i);
		const char *name = json_string_value(json_object_get(one, "name"));

		if (name && (!t || token_allows(t, name)))
			(void)json_array_append(kept, one);
	}
	json_decref(o);
	o = json_pack("{s:o}", "environments", kept);
	text = o ? json_dumps(o, 0) : NULL;
	json_decref(o);
	return text;
}

static void on_environments(void *userdata, struct runner_answer *a)
{
	struct waiter *w = userdata;
	const char *name = http_conn_caller(w->conn)->token;
	const struct token *t = *name ? tokens_by_name(&w->door->tokens, name) : NULL;

	if (a->is_lost || a->is_refused || (*name && !t))
		no_server(w->conn);
	else
		answer_json(w->conn, 200, filter(t, a->json, a->len));
	free(a->json);
	free(w);
}

void about_environments(struct door *d, struct http_conn *c)
{
	struct waiter *w = waiter_new(d, c);
	struct runner_hooks hooks = { .userdata = w, .on_done = on_environments };
	struct err e = { .kind = ERR_NONE };

	if (w && runner_ask(d->runner, NATIVE_ENV, &hooks, &w->run, &e) == 0)
		return;
	no_server(c);
	free(w);
}

void about_health(struct door *d, struct http_conn *c)
{
	(void)d;
	answer_json(c, 200, strdup("{\"status\": \"ok\"}"));
}

static void on_ready(struct door *d, struct http_conn *c, const char *json, size_t len)
{
	json_t *o = json ? json_loadb(json, len, 0, NULL) : NULL;

	if (json_is_true(json_object_get(o, "is_ready")) && !d->is_stopping)
		answer_json(c, 200, strdup("{\"status\": \"ready\"}"));
	else
		problem_reply(c, &(struct problem) {
					 .status = 503,
					 .type = "not-ready",
					 .detail = o ? "no supervisor is ready yet, or the server is being stopped"
						     : "no server that makes runs answers",
					 .headers = RETRY_SOON,
				 });
	json_decref(o);
}

void about_ready(struct door *d, struct http_conn *c)
{
	about_stats(d, c, on_ready);
}

static json_t *limits_of(const struct job_rules *rules)
{
	json_t *limits = json_object();

	for (size_t i = 0; i < LIMIT_DEFS; i++) {
		const struct limit_def *def = &limit_defs[i];
		double scale = (double)limit_scale(def->unit);
		uint64_t initial = limit_get(&rules->defaults, def);
		uint64_t most = limit_max(rules, def);
		json_t *one = json_pack("{s:n, s:n}", "default", "max");

		if (initial)
			(void)json_object_set_new(one, "default", json_real((double)initial / scale));
		if (most && limit_get(&rules->max, def))
			(void)json_object_set_new(one, "max", json_real((double)most / scale));
		(void)json_object_set_new(limits, def->name, one);
	}
	return limits;
}

static void on_capabilities(struct door *d, struct http_conn *c, const char *json, size_t len)
{
	const struct job_rules *rules = &d->settings.conf.rules;
	json_t *o = json ? json_loadb(json, len, 0, NULL) : NULL;
	json_t *all;

	if (!o) {
		no_server(c);
		return;
	}
	all = json_pack("{s:s, s:O, s:f, s:f, s:I, s:o, s:[s, s], s:[s, s, s]}", "version", CLOCHE_VERSION, "walls",
			json_object_get(o, "walls"), "timeout", (double)rules->timeout_ns / (double)NS_PER_SEC,
			"max_timeout", (double)rules->max_timeout_ns / (double)NS_PER_SEC, "max_script_bytes",
			(json_int_t)rules->max_script_bytes, "limits", limits_of(rules), "network", "loopback", "none",
			"modes", "auto", "warm", "cold");
	answer_json(c, 200, all ? json_dumps(all, 0) : NULL);
	json_decref(all);
	json_decref(o);
}

void about_capabilities(struct door *d, struct http_conn *c)
{
	about_stats(d, c, on_capabilities);
}

void about_openapi(struct door *d, struct http_conn *c)
{
	struct http_answer a = {
		.status = 200,
		.type = "application/json",
		.body = openapi_text,
		.len = sizeof(openapi_text) - 1,
	};

	(void)d;
	http_reply(c, &a);
}
