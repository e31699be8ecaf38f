/* SPDX-License-Identifier: Apache-2.0 */
/* Runs by their id: those under way, asynchronous ones that have ended, and what the history has. */
#include <errno.h>
#include <event2/event.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/parse.h"
#include "doors/door.h"
#include "history/history.h"
#include "job/json.h"

#define RUN_ID_LEN      32
#define HISTORY_NS      (250 * NS_PER_MS) /* for one question to it: everybody else waits meanwhile */
#define ENDED_MAX       1000
#define ENDED_BYTES_MAX ((size_t)256 << 20)
#define ENDED_COST      (ENDED_BYTES_MAX / ENDED_MAX) /* of one, beside its bytes */
#define TENANTS_MAX     64
#define ENDED_AGE_US    (3600 * US_PER_SEC)

void live_free(struct live *l)
{
	free(l->json);
	free(l);
}

void live_add(struct live *l)
{
	l->started_us = clock_wall_us();
	l->next = l->door->live;
	l->door->live = l;
}

void live_remove(struct live *l)
{
	struct live **at = &l->door->live;

	while (*at && *at != l)
		at = &(*at)->next;
	if (*at)
		*at = l->next;
	l->next = NULL;
}

/* What one tenant has among those that have ended. */
struct keeps {
	const char *tenant;
	size_t cost;
	struct live **oldest; /* but for the newest of all */
};

/* Return: the oldest of the tenant that takes the most room; NULL: there is but one */
static struct live **whose_turn(struct door *d)
{
	struct keeps all[TENANTS_MAX];
	struct keeps *most = NULL;
	size_t n = 0;

	for (struct live **at = &d->ended; *at; at = &(*at)->next) {
		size_t i = 0;

		while (i < n && strcmp(all[i].tenant, (*at)->caller.tenant) != 0)
			i++;
		if (i == TENANTS_MAX)
			continue;
		if (i == n)
			all[n++] = (struct keeps) { .tenant = (*at)->caller.tenant };
		all[i].cost += (*at)->len + ENDED_COST;
		if (at != &d->ended)
			all[i].oldest = at;
	}
	for (size_t i = 0; i < n; i++)
		if (all[i].oldest && (!most || all[i].cost > most->cost))
			most = &all[i];
	return most ? most->oldest : NULL;
}

static void forget(struct door *d, struct live **at)
{
	struct live *l = *at;

	*at = l->next;
	d->ended_bytes -= l->len;
	d->n_ended--;
	live_free(l);
}

/* Old ones go; where they are too many or too large, those of whoever has the most. */
static void forget_ended(struct door *d)
{
	int64_t oldest = clock_wall_us() - ENDED_AGE_US;
	struct live **at = &d->ended;

	while (*at) {
		if ((*at)->started_us < oldest)
			forget(d, at);
		else
			at = &(*at)->next;
	}
	while ((d->n_ended > ENDED_MAX || d->ended_bytes > ENDED_BYTES_MAX) && (at = whose_turn(d)))
		forget(d, at);
}

void live_keep(struct live *l)
{
	l->run = NULL;
	l->started_us = clock_wall_us(); /* from now on: since when it is kept */
	l->next = l->door->ended;
	l->door->ended = l;
	l->door->ended_bytes += l->len;
	l->door->n_ended++;
	forget_ended(l->door);
}

void live_done(struct door *d)
{
	while (d->ended) {
		struct live *l = d->ended;

		d->ended = l->next;
		live_free(l);
	}
	if (d->history)
		history_reader_close(d->history);
	d->history = NULL;
}

static struct live *find(struct live *list, const char *run_id, const struct http_caller *who)
{
	for (struct live *l = list; l; l = l->next)
		if (strcmp(l->run_id, run_id) == 0 && strcmp(l->caller.tenant, who->tenant) == 0)
			return l;
	return NULL;
}

/* The last part of the path; what is no id is nobody's. */
static const char *id_of(struct http_conn *c)
{
	const char *id = strrchr(http_conn_head(c)->path, '/') + 1;

	return strlen(id) == RUN_ID_LEN && strspn(id, "0123456789abcdef") == RUN_ID_LEN ? id : "-";
}

static void not_found(struct http_conn *c)
{
	problem_reply(c, &(struct problem) {
				 .status = 404,
				 .type = "no-run",
				 .detail = "none of your runs has this id, or it is not known any more",
			 });
}

static struct history_reader *reader(struct door *d)
{
	struct err e = { .kind = ERR_NONE };
	char *path = NULL;

	if (d->history || !d->settings.conf.history.is_enabled)
		return d->history;
	if (history_path(d->settings.conf.history.path, d->server_uid, environ, &path, &e) == 0 &&
	    history_reader_open(path, &d->history, &e) < 0)
		d->history = NULL;
	free(path);
	if (d->history)
		history_reader_limit(d->history, HISTORY_NS);
	return d->history;
}

/* What was wrong with it may be over next time.  Return: whether that was said; else nothing was */
static bool drop_reader(struct door *d, struct http_conn *c, const struct err *e)
{
	if (e->kind == ERR_BUSY) {
		problem_reply(c, &(struct problem) {
					 .status = 503, .type = "busy", .detail = e->msg, .headers = RETRY_SOON });
		return true;
	}
	if (e->kind == ERR_INVALID || e->kind == ERR_NOT_FOUND || e->kind == ERR_NONE)
		return false;
	door_log(true, "event=history error=\"%s\"", e->msg);
	history_reader_close(d->history);
	d->history = NULL;
	return false;
}

/* {"state": "running", "run_id": ..., ...} and a member more, which is JSON or NULL. */
static void reply_state(struct http_conn *c, int status, const struct live *l, const char *state)
{
	const char *name = l->is_refused ? NULL : "result";
	struct buf b;
	int r;

	buf_init(&b, l->len + 256);
	r = buf_printf(&b, "{\"run_id\": \"%s\", \"state\": \"%s\"", l->run_id, state);
	if (r == 0 && l->json && name)
		r = buf_printf(&b, ", \"%s\": ", name);
	if (r == 0 && l->json && name)
		r = buf_add(&b, l->json, l->len);
	else if (r == 0 && l->json)
		r = problem_add_error(&b, l->json, l->len);
	if (r == 0)
		r = buf_add(&b, "}", 1);
	if (r < 0)
		buf_done(&b);
	answer_json(c, status, b.data);
}

/* {"run_id": ..., ...} of the history, with the state of what has ended in front. */
static void reply_history(struct http_conn *c, char *text)
{
	char *whole = NULL;
	int n = asprintf(&whole, "{\"state\": \"done\", %s", text + 1);

	free(text);
	answer_json(c, 200, n < 0 ? NULL : whole);
}

void runs_get(struct door *d, struct http_conn *c)
{
	const struct http_caller *who = http_conn_caller(c);
	const struct live *l = find(d->live, id_of(c), who);
	struct err e = { .kind = ERR_NONE };
	char *text = NULL;

	forget_ended(d);
	if (l) {
		reply_state(c, 200, l, l->is_cancelled ? "cancelling" : "running");
		return;
	}
	l = find(d->ended, id_of(c), who);
	if (l) {
		reply_state(c, 200, l, l->is_refused ? "refused" : "done");
		return;
	}
	if (!reader(d)) {
		not_found(c);
	} else if (history_show(d->history, id_of(c), who->tenant, &text, &e) < 0) {
		if (!drop_reader(d, c, &e))
			not_found(c);
	} else {
		reply_history(c, text);
	}
}

void runs_delete(struct door *d, struct http_conn *c)
{
	const struct http_caller *who = http_conn_caller(c);
	struct live *l = find(d->live, id_of(c), who);
	struct err e = { .kind = ERR_NONE };
	auto_free char *text = NULL;

	if (l) {
		if (!l->is_cancelled)
			runner_cancel(l->run);
		l->is_cancelled = true;
		reply_state(c, 202, l, "cancelling");
		return;
	}
	if (!find(d->ended, id_of(c), who) &&
	    (!reader(d) || history_show(d->history, id_of(c), who->tenant, &text, &e) < 0)) {
		if (!drop_reader(d, c, &e))
			not_found(c);
		return;
	}
	problem_reply(c, &(struct problem) { .status = 409, .type = "ended", .detail = "this run has ended already" });
}

static void bad_query(struct http_conn *c, const char *detail)
{
	problem_reply(c, &(struct problem) { .status = 400, .type = "query", .detail = detail });
}

/* What GET /v1/runs may be asked for, as text. */
struct list_query {
	char status[24];
	char since[48];
	char limit[12];
	char cursor[128];
	char name[256];
};

/* Return: 0 with @ret pointing into @q, or -1: answered */
static int read_query(struct http_conn *c, struct list_query *q, struct history_filter *ret)
{
	static const char *const known[] = { "status", "since", "limit", "cursor", "name", NULL };
	const char *query = http_conn_head(c)->query;
	char text[120];
	uint64_t limit = 0;

	if (http_query_unknown(query, known, text, 40)) {
		char words[200];

		(void)snprintf(words, sizeof(words),
			       "%.40s: an unknown parameter: known are status, since, limit, cursor, name", text);
		bad_query(c, words);
		return -1;
	}
	*ret = (struct history_filter) { .status = NULL };
	if (http_query(query, "status", q->status, sizeof(q->status)) < 0 ||
	    http_query(query, "since", q->since, sizeof(q->since)) < 0 ||
	    http_query(query, "limit", q->limit, sizeof(q->limit)) < 0 ||
	    http_query(query, "cursor", q->cursor, sizeof(q->cursor)) < 0 ||
	    http_query(query, "name", q->name, sizeof(q->name)) < 0) {
		bad_query(c, "a parameter is malformed or too long");
		return -1;
	}
	if (*q->limit && parse_u64(q->limit, 1, HISTORY_LIMIT_MAX, &limit) < 0) {
		bad_query(c, "limit: a whole number, at least 1, at most 1000");
		return -1;
	}
	if (*q->since && history_time_parse(q->since, clock_wall_us(), &ret->since_us) < 0) {
		bad_query(c, "since: a time like 2026-01-31T12:34:56Z, or an age like 2h");
		return -1;
	}
	ret->limit = (unsigned)limit;
	ret->status = *q->status ? q->status : NULL;
	ret->cursor = *q->cursor ? q->cursor : NULL;
	ret->name = *q->name ? q->name : NULL;
	return 0;
}

/* Those under way, on the first page alone. */
static int add_live(const struct door *d, const struct http_caller *who, struct buf *b)
{
	const char *comma = "";
	int r = 0;

	for (const struct live *l = d->live; l && r == 0; l = l->next) {
		char time[HISTORY_TIME_TEXT];

		if (strcmp(l->caller.tenant, who->tenant) != 0)
			continue;
		r = buf_printf(b, "%s{\"run_id\": \"%s\", \"state\": \"%s\", \"time\": \"%s\"}", comma, l->run_id,
			       l->is_cancelled ? "cancelling" : "running", history_time_text(l->started_us, time));
		comma = ", ";
	}
	return r;
}

void runs_list(struct door *d, struct http_conn *c)
{
	struct list_query q = { .status = "" };
	struct err e = { .kind = ERR_NONE };
	struct history_filter filter;
	auto_free char *ended = NULL;
	bool is_first_page;
	struct buf b;
	int r;

	if (read_query(c, &q, &filter) < 0)
		return;
	filter.tenant = http_conn_caller(c)->tenant;
	if (reader(d) && history_list(d->history, &filter, &ended, &e) < 0) {
		if (e.kind == ERR_INVALID) {
			bad_query(c, e.msg);
			return;
		}
		if (drop_reader(d, c, &e))
			return;
	}
	is_first_page = !filter.cursor && !filter.status && !filter.since_us && !filter.name;
	buf_init(&b, (size_t)64 << 20);
	r = buf_printf(&b, "{\"live\": [");
	if (r == 0 && is_first_page)
		r = add_live(d, http_conn_caller(c), &b);
	if (r == 0)
		r = buf_printf(&b, "], \"is_kept\": %s, ", ended ? "true" : "false");
	if (r == 0)
		r = buf_printf(&b, "%s", ended ? ended + 1 : "\"runs\": [], \"next\": null}");
	if (r < 0)
		buf_done(&b);
	answer_json(c, 200, b.data);
}
