/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cloche history: lists of what ran, and single runs.
 *
 * A statement that is not finished keeps the database's log from being emptied, and who reads us may stop for lunch:
 * rows are collected by the hundred and written when the statement is done.
 */
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/parse.h"
#include "doors/doors.h"
#include "doors/history_show.h"
#include "history/history.h"
#include "job/text.h"
#include "run/settings.h"

#define PAGE         500
#define FOLLOW_FIRST 10
#define FOLLOW_MS    200
#define LIMIT_MAX    1000000000
#define SECONDS      1000000

enum { OPTION_STATUS = 1, OPTION_SINCE, OPTION_NAME, OPTION_TENANT, OPTION_LIMIT, OPTION_FOLLOW, OPTION_DB };

/* One command, as it was given. */
struct request {
	const char *path; /* --db; NULL: the configured one */
	struct history_filter filter;
	const char *since;
	bool is_followed;
	struct history_show show;
	char *const *operands;
	int n_operands;
};

/* A part of a list. */
struct page {
	struct buf b;
	struct buf ends; /* size_t each: where a row's line ends in @b */
	bool is_json;
	int64_t newest; /* rows behind it are left to the next look */
	unsigned n;
	char cursor[HISTORY_CURSOR];
};

static int add_line(struct buf *b, const struct history_row *row)
{
	char script[200];
	char message[300];
	char when[32];
	time_t seconds = (time_t)(row->time_us / SECONDS);
	struct tm tm = { 0 };

	(void)localtime_r(&seconds, &tm);
	(void)strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &tm);
	(void)text_visible_in(script, sizeof(script), row->script_name, strlen(row->script_name));
	(void)text_visible_in(message, sizeof(message), row->message, strlen(row->message));
	return buf_printf(b, "%s  %.12s  %-14s %10.3f  %s%s%s\n", when, row->run_id, row->status,
			  (double)row->execution_ns / 1e9, script, *message ? ": " : "", message);
}

static int on_row(void *userdata, const struct history_row *row)
{
	struct page *p = userdata;
	auto_free char *json = NULL;
	int r;

	(void)history_cursor(row, p->cursor);
	p->n++;
	if (row->seq > p->newest)
		return 0;
	if (p->is_json) {
		json = history_row_json(row);
		r = json ? buf_printf(&p->b, "%s\n", json) : -ENOMEM;
	} else {
		r = add_line(&p->b, row);
	}
	return r < 0 ? r : buf_add(&p->ends, &p->b.len, sizeof(p->b.len));
}

static void page_init(struct page *p, bool is_json, int64_t newest)
{
	*p = (struct page) { .is_json = is_json, .newest = newest };
	buf_init(&p->b, SIZE_MAX / 2);
	buf_init(&p->ends, SIZE_MAX / 2);
}

static void page_done(struct page *p)
{
	buf_done(&p->b);
	buf_done(&p->ends);
}

static int put(const struct page *p, const char *data, size_t len)
{
	return p->is_json ? history_put_json(data, len) : fd_write_all(STDOUT_FILENO, data, len);
}

/* Return: 0 or -errno */
static int write_page(const struct page *p, bool is_reversed)
{
	size_t n = p->ends.len / sizeof(size_t);

	if (!is_reversed)
		return put(p, p->b.data, p->b.len);
	for (size_t i = n; i > 0; i--) {
		size_t from = 0;
		size_t to;
		int r;

		memcpy(&to, p->ends.data + (i - 1) * sizeof(to), sizeof(to));
		if (i > 1)
			memcpy(&from, p->ends.data + (i - 2) * sizeof(from), sizeof(from));
		r = put(p, p->b.data + from, to - from);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Return: 0 or -errno */
static int head(const struct request *q)
{
	static const char line[] = "TIME                 RUN           STATUS            SECONDS  SCRIPT\n";

	return q->show.is_json ? 0 : fd_write_all(STDOUT_FILENO, line, sizeof(line) - 1);
}

/* A reader who has gone is no failure of ours. */
static int told(int r, struct err *e)
{
	if (r == -EPIPE)
		return DOOR_OK;
	if (e->kind == ERR_NONE)
		(void)err_set(e, ERR_HOST, -r, "standard output");
	return door_fail(e);
}

static int list(struct history_reader *r, const struct request *q)
{
	struct history_filter f = q->filter;
	unsigned left = f.limit ? f.limit : HISTORY_LIMIT_DEFAULT;
	struct err e = { .kind = ERR_NONE };
	char cursor[HISTORY_CURSOR];
	bool has_more = true;
	int k = 0;

	while (k == 0 && has_more && left) {
		struct page p;

		page_init(&p, q->show.is_json, INT64_MAX);
		f.limit = left < PAGE ? left : PAGE;
		k = history_each(r, &f, NULL, on_row, &p, &e);
		if (k == 0 && f.cursor != cursor)
			k = head(q);
		if (k == 0)
			k = write_page(&p, false);
		has_more = p.n == f.limit;
		left -= p.n;
		memcpy(cursor, p.cursor, sizeof(cursor));
		f.cursor = cursor;
		page_done(&p);
	}
	return k < 0 ? told(k, &e) : DOOR_OK;
}

/* The newest ones, oldest first: what a follower sees at once.  @newest: what is behind it comes later */
static int recent(struct history_reader *r, const struct request *q, int64_t newest, struct err *e)
{
	struct history_filter f = q->filter;
	struct page p;
	int k;

	page_init(&p, q->show.is_json, newest);
	f.limit = f.limit ? f.limit : FOLLOW_FIRST;
	k = history_each(r, &f, NULL, on_row, &p, e);
	if (k == 0)
		k = head(q);
	if (k == 0)
		k = write_page(&p, true);
	page_done(&p);
	return k;
}

/* news() - what was written after *@after */
static int news(struct history_reader *r, const struct request *q, int64_t *after, struct err *e)
{
	struct history_filter f = q->filter;
	bool has_more = true;
	int k = 0;

	f.limit = PAGE;
	while (k == 0 && has_more) {
		struct page p;

		page_init(&p, q->show.is_json, INT64_MAX);
		k = history_each(r, &f, after, on_row, &p, e);
		if (k == 0)
			k = write_page(&p, false);
		has_more = p.n == PAGE;
		page_done(&p);
	}
	return k;
}

/* Return: false: nobody reads us any more */
static bool nap(void)
{
	struct pollfd p = { .fd = STDOUT_FILENO };

	return poll(&p, 1, FOLLOW_MS) == 0;
}

/* is_moved() - there is another file at @path than before; *@st: the one before, and after */
static bool is_moved(const char *path, struct stat *st)
{
	struct stat now;
	bool is_other;

	if (stat(path, &now) < 0)
		return false;
	is_other = now.st_dev != st->st_dev || now.st_ino != st->st_ino;
	*st = now;
	return is_other;
}

static int follow(const char *path, const struct request *q)
{
	struct history_reader *r = NULL;
	struct err e = { .kind = ERR_NONE };
	struct stat st = { .st_ino = 0 };
	int64_t after = -1; /* nothing was shown yet */
	int k = 0;

	do {
		if (is_moved(path, &st) && r) {
			history_reader_close(r);
			r = NULL;
			after = 0;
		}
		e.kind = ERR_NONE;
		if (!r && history_reader_open(path, &r, &e) < 0) {
			if (e.kind == ERR_NOT_FOUND)
				continue;
			return door_fail(&e);
		}
		if (after < 0) {
			k = history_last(r, &after, &e);
			if (k == 0)
				k = recent(r, q, after, &e);
		}
		if (k == 0 && history_has_changed(r))
			k = news(r, q, &after, &e);
	} while (k == 0 && nap());
	history_reader_close(r);
	return k < 0 ? told(k, &e) : DOOR_OK;
}

/* What is not there is not listed, and that is no failure. */
static int list_at(const char *path, const struct request *q)
{
	struct history_reader *r = NULL;
	struct err e = { .kind = ERR_NONE };
	int status;

	if (q->is_followed)
		return follow(path, q);
	if (history_reader_open(path, &r, &e) < 0) {
		status = door_fail(&e);
		if (e.kind == ERR_NOT_FOUND)
			(void)fputs("cloche: runs at a server (cloche serve) are written there\n", stderr);
		return e.kind == ERR_NOT_FOUND ? DOOR_OK : status;
	}
	status = list(r, q);
	history_reader_close(r);
	return status;
}

static int show_at(const char *path, const struct request *q)
{
	struct history_reader *r = NULL;
	struct err e = { .kind = ERR_NONE };
	auto_free char *json = NULL;
	int k = history_reader_open(path, &r, &e);

	if (k == 0)
		k = history_show(r, q->operands[1], NULL, &json, &e);
	history_reader_close(r); /* before anybody reads what we write */
	if (k == 0)
		k = history_show_print(&q->show, json, &e);
	return k < 0 ? door_fail(&e) : DOOR_OK;
}

static int refuse(const char *what, const char *given, const char *allowed)
{
	struct err e = { .kind = ERR_INVALID };
	char shown[100];

	(void)text_visible_in(shown, sizeof(shown), given, strlen(given));
	(void)err_set(&e, ERR_INVALID, 0, "%s: \"%s\" is not allowed: %s", what, shown, allowed);
	return door_fail(&e);
}

static int take_option(struct request *q, int c, const char *value)
{
	uint64_t limit;

	switch (c) {
	case OPTION_STATUS:
		q->filter.status = value;
		return 0;
	case OPTION_SINCE:
		q->since = value;
		return 0;
	case OPTION_NAME:
		q->filter.name = value;
		return 0;
	case OPTION_TENANT:
		q->filter.tenant = value;
		return 0;
	case OPTION_LIMIT:
		if (parse_u64(value, 1, LIMIT_MAX, &limit) < 0)
			return refuse("--limit", value, "a whole number, at least 1");
		q->filter.limit = (unsigned)limit;
		return 0;
	case OPTION_FOLLOW:
		q->is_followed = true;
		return 0;
	case OPTION_DB:
		q->path = value;
		return 0;
	default:
		return DOOR_USAGE;
	}
}

static int parse(int argc, char **argv, struct request *q)
{
	int as_json = 0, as_script = 0, as_out = 0, as_err = 0;
	const struct option options[] = { { "status", required_argument, NULL, OPTION_STATUS },
					  { "since", required_argument, NULL, OPTION_SINCE },
					  { "name", required_argument, NULL, OPTION_NAME },
					  { "tenant", required_argument, NULL, OPTION_TENANT },
					  { "limit", required_argument, NULL, OPTION_LIMIT },
					  { "follow", no_argument, NULL, OPTION_FOLLOW },
					  { "db", required_argument, NULL, OPTION_DB },
					  { "json", no_argument, &as_json, 1 },
					  { "script", no_argument, &as_script, 1 },
					  { "stdout", no_argument, &as_out, 1 },
					  { "stderr", no_argument, &as_err, 1 },
					  { NULL, 0, NULL, 0 } };
	int64_t now_us = (int64_t)time(NULL) * SECONDS;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		int r = c == 0 ? 0 : take_option(q, c, optarg);

		if (r != 0)
			return r;
	}
	q->show = (struct history_show) { .is_json = as_json, .script = as_script, .out = as_out, .err = as_err };
	q->operands = argv + optind;
	q->n_operands = argc - optind;
	if (q->since && history_time_parse(q->since, now_us, &q->filter.since_us) < 0)
		return refuse("--since", q->since,
			      "a time ago like 2h or 7d, or a date and time like 2026-01-31T12:34:56Z");
	return 0;
}

int door_history(int argc, char **argv)
{
	struct request q = { .path = NULL };
	struct settings s = { .lists = NULL };
	struct err e = { .kind = ERR_NONE };
	auto_free char *path = NULL;
	int status = parse(argc, argv, &q);
	int k;

	if (status != 0)
		return status;
	k = q.path ? 0 : settings_load(&s, environ, &e);
	if (k == 0)
		k = history_path(q.path ? q.path : s.conf.history.path, geteuid(), environ, &path, &e);
	settings_done(&s);
	if (k < 0 || !path)
		return door_fail(&e);
	if (q.n_operands == 2 && strcmp(q.operands[0], "show") == 0)
		return show_at(path, &q);
	if (q.n_operands == 0)
		return list_at(path, &q);
	return refuse("history", q.operands[0], "nothing, or show ID");
}
