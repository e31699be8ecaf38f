/* SPDX-License-Identifier: Apache-2.0 */
/* Lists and single runs, for who may read the file.  Values are bound, never written into a statement. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/parse.h"
#include "history/history.h"
#include "history/shape.h"
#include "history/store.h"

#define BUSY_MS        2000
#define LOOK_STEPS     200 /* of SQLite's machine, between two looks at the clock */
#define RUN_ID_LEN     32
#define PREFIX_MIN     4 /* of a run's id, that stands for the only run whose id begins so */
#define NAME_MAX_BYTES 1024

struct history_reader {
	sqlite3 *db;       /* owned */
	char *path;        /* owned */
	uint64_t limit_ns; /* of one question; 0: none */
	uint64_t until_ns;
	int64_t version; /* of the data, when history_has_changed() looked last */
};

#define COLUMNS                                                                                                        \
	"r.seq, r.time, r.run_id, r.tenant, r.script_name, r.environment, r.mode, r.status, r.message, r.signal,"      \
	" r.return_code, r.execution_ns, r.cpu_ns, r.queue_ns, r.peak_memory_bytes, r.stdout_bytes, r.stderr_bytes"
#define N_COLUMNS 17

static int fail(struct history_reader *r, struct err *e)
{
	if ((sqlite3_errcode(r->db) & 0xff) == SQLITE_INTERRUPT) {
		(void)err_set(e, ERR_BUSY, 0, "this takes too long: ask for less, by since, status or cursor");
		return -ETIMEDOUT;
	}
	(void)store_blame(r->db, r->path, e);
	return -EIO;
}

static void on_glob(sqlite3_context *c, int n, sqlite3_value **v)
{
	const char *pattern = (const char *)sqlite3_value_text(v[0]);
	const char *text = (const char *)sqlite3_value_text(v[1]);

	(void)n;
	sqlite3_result_int(c, pattern && text && glob_fits(pattern, text));
}

static int none(const struct history_reader *r, struct err *e)
{
	(void)err_set(e, ERR_NOT_FOUND, 0, "no history yet: %s", r->path);
	return -ENOENT;
}

/* Return: whether the question has had its time */
static int on_steps(void *userdata)
{
	const struct history_reader *r = userdata;

	return clock_now_ns() >= r->until_ns;
}

/* A question begins. */
static void start_clock(struct history_reader *r)
{
	r->until_ns = r->limit_ns ? clock_now_ns() + r->limit_ns : UINT64_MAX;
}

void history_reader_limit(struct history_reader *r, uint64_t ns)
{
	r->limit_ns = ns;
	(void)sqlite3_busy_timeout(r->db, (int)(ns / NS_PER_MS));
	sqlite3_progress_handler(r->db, LOOK_STEPS, on_steps, r);
}

/* Return: 0 or -errno with @e set */
static int open_database(struct history_reader *r, struct err *e)
{
	static const char settings[] =
		"PRAGMA trusted_schema = OFF; PRAGMA query_only = ON; PRAGMA cache_size = -2048;";
	int version = 0;

	if (access(r->path, R_OK) < 0 && errno == ENOENT)
		return none(r, e);
	if (access(r->path, R_OK) < 0)
		return err_set(e, ERR_ACCESS, errno, "%s", r->path);
	if (sqlite3_open_v2(r->path, &r->db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK)
		return fail(r, e);
	(void)sqlite3_busy_timeout(r->db, BUSY_MS);
	if (store_check(r->db, r->path, &version, e) != STORE_DONE)
		return -EIO;
	if (version == 0)
		return none(r, e);
	if (sqlite3_exec(r->db, settings, NULL, NULL, NULL) != SQLITE_OK ||
	    sqlite3_create_function(r->db, "name_fits", 2, SQLITE_UTF8 | SQLITE_DETERMINISTIC, NULL, on_glob, NULL,
				    NULL) != SQLITE_OK)
		return fail(r, e);
	return 0;
}

int history_reader_open(const char *path, struct history_reader **ret, struct err *e)
{
	struct history_reader *r = calloc(1, sizeof(*r));
	int k;

	if (!r)
		return err_set(e, ERR_HOST, ENOMEM, "history");
	r->path = strdup(path);
	k = r->path ? open_database(r, e) : err_set(e, ERR_HOST, ENOMEM, "history");
	if (k < 0) {
		history_reader_close(r);
		return k;
	}
	*ret = r;
	return 0;
}

void history_reader_close(struct history_reader *r)
{
	if (!r)
		return;
	(void)sqlite3_close(r->db);
	free(r->path);
	free(r);
}

static const char *text_of(sqlite3_stmt *q, int column)
{
	const char *text = (const char *)sqlite3_column_text(q, column);

	return text ? text : "";
}

static uint64_t count_of(sqlite3_stmt *q, int column)
{
	int64_t v = sqlite3_column_int64(q, column);

	return v < 0 ? 0 : (uint64_t)v;
}

static void read_row(sqlite3_stmt *q, struct history_row *ret)
{
	*ret = (struct history_row) {
		.seq = sqlite3_column_int64(q, 0),
		.time_us = sqlite3_column_int64(q, 1),
		.run_id = text_of(q, 2),
		.tenant = text_of(q, 3),
		.script_name = text_of(q, 4),
		.environment = text_of(q, 5),
		.mode = text_of(q, 6),
		.status = text_of(q, 7),
		.message = text_of(q, 8),
		.signal = (const char *)sqlite3_column_text(q, 9),
		.return_code = sqlite3_column_int64(q, 10),
		.execution_ns = count_of(q, 11),
		.cpu_ns = count_of(q, 12),
		.queue_ns = count_of(q, 13),
		.peak_memory_bytes = sqlite3_column_type(q, 14) == SQLITE_NULL ? -1 : sqlite3_column_int64(q, 14),
		.stdout_bytes = count_of(q, 15),
		.stderr_bytes = count_of(q, 16),
	};
}

/* A cursor: the time of the last run of a list in hexadecimal, "-", its id. */
struct place {
	int64_t time_us;
	const char *run_id;
};

static bool is_hex(const char *s, size_t len)
{
	return strspn(s, "0123456789abcdef") >= len && strlen(s) >= len;
}

static int read_cursor(const char *cursor, struct place *ret, struct err *e)
{
	const char *dash = strchr(cursor, '-');
	size_t len = dash ? (size_t)(dash - cursor) : 0;

	if (len < 1 || len > 15 || !is_hex(cursor, len) || strlen(dash + 1) != RUN_ID_LEN ||
	    !is_hex(dash + 1, RUN_ID_LEN)) {
		(void)err_set(e, ERR_INVALID, 0, "cursor: it is not one that a list has given");
		return -EINVAL;
	}
	ret->time_us = (int64_t)strtoull(cursor, NULL, 16);
	ret->run_id = dash + 1;
	return 0;
}

static int check_filter(const struct history_filter *f, struct err *e)
{
	struct buf names;

	if (f->name && (!*f->name || strlen(f->name) > NAME_MAX_BYTES || !utf8_valid(f->name, strlen(f->name)))) {
		(void)err_set(e, ERR_INVALID, 0, "name: a pattern of 1 to %d bytes of UTF-8", NAME_MAX_BYTES);
		return -EINVAL;
	}
	if (!f->status)
		return 0;
	buf_init(&names, 512);
	for (int i = 0; i < STATUS_MAX; i++) {
		if (strcmp(f->status, status_name((enum status)i)) == 0) {
			buf_done(&names);
			return 0;
		}
		if (buf_printf(&names, "%s%s", i ? ", " : "", status_name((enum status)i)) < 0)
			break;
	}
	(void)err_set(e, ERR_INVALID, 0, "status: it is one of %s", names.data ? names.data : "a result's");
	buf_done(&names);
	return -EINVAL;
}

/* prepare() - @after: its rows in the order of writing; NULL: newest first, behind the cursor */
static int prepare(struct history_reader *r, const struct history_filter *f, const int64_t *after, sqlite3_stmt **ret,
		   struct err *e)
{
	bool has_cursor = f->cursor && !after;
	struct place from = { .run_id = "" };
	auto_free char *sql = NULL;
	int k = has_cursor ? read_cursor(f->cursor, &from, e) : 0;

	if (k < 0)
		return k;
	if (asprintf(&sql, "SELECT " COLUMNS " FROM runs r WHERE 1%s%s%s%s%s%s ORDER BY %s LIMIT ?8",
		     f->status ? " AND r.status = ?1" : "", f->name ? " AND name_fits(?2, r.script_name)" : "",
		     f->tenant ? " AND r.tenant = ?3" : "", f->since_us ? " AND r.time >= ?4" : "",
		     has_cursor ? " AND (r.time, r.run_id) < (?5, ?6)" : "", after ? " AND r.seq > ?7" : "",
		     after ? "r.seq" : "r.time DESC, r.run_id DESC") < 0) {
		sql = NULL;
		return err_set(e, ERR_HOST, ENOMEM, "history");
	}
	if (sqlite3_prepare_v2(r->db, sql, -1, ret, NULL) != SQLITE_OK)
		return fail(r, e);
	/* a number that the statement does not have is refused, and that is no harm */
	(void)sqlite3_bind_text(*ret, 1, f->status, -1, SQLITE_STATIC);
	(void)sqlite3_bind_text(*ret, 2, f->name, -1, SQLITE_STATIC);
	(void)sqlite3_bind_text(*ret, 3, f->tenant, -1, SQLITE_STATIC);
	(void)sqlite3_bind_int64(*ret, 4, f->since_us);
	(void)sqlite3_bind_int64(*ret, 5, from.time_us);
	(void)sqlite3_bind_text(*ret, 6, from.run_id, -1, SQLITE_STATIC);
	(void)sqlite3_bind_int64(*ret, 7, after ? *after : 0);
	(void)sqlite3_bind_int64(*ret, 8, f->limit ? f->limit : HISTORY_LIMIT_DEFAULT);
	return 0;
}

int history_each(struct history_reader *r, const struct history_filter *f, int64_t *after, history_row_fn fn,
		 void *userdata, struct err *e)
{
	sqlite3_stmt *q = NULL;
	int k = check_filter(f, e);
	int step = SQLITE_DONE;

	start_clock(r);

	if (k == 0)
		k = prepare(r, f, after, &q, e);
	while (k == 0 && (step = sqlite3_step(q)) == SQLITE_ROW) {
		struct history_row row;

		read_row(q, &row);
		k = fn(userdata, &row);
		if (after)
			*after = row.seq;
	}
	if (k == 0 && step != SQLITE_DONE)
		k = fail(r, e);
	(void)sqlite3_finalize(q);
	return k;
}

const char *history_cursor(const struct history_row *row, char buf[HISTORY_CURSOR])
{
	(void)snprintf(buf, HISTORY_CURSOR, "%" PRIx64 "-%.*s", (uint64_t)row->time_us, RUN_ID_LEN, row->run_id);
	return buf;
}

/* A list while it grows. */
struct list {
	struct buf b;
	unsigned n;
	unsigned limit;
	char cursor[HISTORY_CURSOR]; /* behind the last one in it */
	bool has_more;
};

static int on_row(void *userdata, const struct history_row *row)
{
	struct list *l = userdata;
	int r;

	if (l->n == l->limit) { /* one more than was asked for: so there is a next list */
		l->has_more = true;
		return 0;
	}
	r = buf_add(&l->b, ", ", l->n ? 2 : 0);
	if (r == 0)
		r = shape_add_row(&l->b, row);
	if (r == 0)
		r = buf_add(&l->b, "}", 1);
	l->n++;
	(void)history_cursor(row, l->cursor);
	return r;
}

int history_list(struct history_reader *r, const struct history_filter *f, char **ret, struct err *e)
{
	struct list l = { .limit = f->limit ? f->limit : HISTORY_LIMIT_DEFAULT };
	struct history_filter all = *f;
	int k;

	if (l.limit > HISTORY_LIMIT_MAX) {
		(void)err_set(e, ERR_INVALID, 0, "limit: at least 1, at most %d", HISTORY_LIMIT_MAX);
		return -EINVAL;
	}
	all.limit = l.limit + 1;
	buf_init(&l.b, SIZE_MAX / 2);
	k = buf_add(&l.b, "{\"runs\": [", 10);
	if (k == 0)
		k = history_each(r, &all, NULL, on_row, &l, e);
	if (k == 0 && l.has_more)
		k = buf_printf(&l.b, "], \"next\": \"%s\"}", l.cursor);
	else if (k == 0)
		k = buf_printf(&l.b, "], \"next\": null}");
	if (k == -ENOMEM)
		(void)err_set(e, ERR_HOST, ENOMEM, "history");
	if (k < 0) {
		buf_done(&l.b);
		return k;
	}
	*ret = l.b.data;
	return 0;
}

/* The object of one run that @q stands at. */
static int write_one(sqlite3_stmt *q, char **ret)
{
	const char *script = (const char *)sqlite3_column_text(q, N_COLUMNS + 1);
	const char *result = (const char *)sqlite3_column_text(q, N_COLUMNS + 2);
	struct history_row row;
	struct buf b;
	int k;

	read_row(q, &row);
	buf_init(&b, SIZE_MAX / 2);
	k = shape_add_row(&b, &row);
	if (k == 0)
		k = shape_add_string(&b, "script", script);
	if (k == 0)
		k = buf_printf(
			&b, ", \"has_output\": %s, \"result\": ", sqlite3_column_int(q, N_COLUMNS) ? "true" : "false");
	if (k == 0)
		k = buf_add(&b, result ? result : "null", result ? strlen(result) : 4);
	if (k == 0)
		k = buf_add(&b, "}", 1);
	if (k < 0) {
		buf_done(&b);
		return k;
	}
	*ret = b.data;
	return 0;
}

int history_show(struct history_reader *r, const char *run_id, const char *tenant, char **ret, struct err *e)
{
	static const char sql[] =
		"SELECT " COLUMNS ", b.has_output, b.script, b.result FROM runs r LEFT JOIN bodies b ON"
		" b.seq = r.seq WHERE r.run_id >= ?1 AND r.run_id < ?1 || 'g' AND (?2 IS NULL OR r.tenant = ?2)"
		" LIMIT 2";
	sqlite3_stmt *q = NULL;
	size_t len = strlen(run_id);
	int step;
	int k;

	if (len < PREFIX_MIN || len > RUN_ID_LEN || !is_hex(run_id, len)) {
		(void)err_set(e, ERR_INVALID, 0, "run_id: %d hexadecimal digits, or at least its first %d", RUN_ID_LEN,
			      PREFIX_MIN);
		return -EINVAL;
	}
	start_clock(r);
	if (sqlite3_prepare_v2(r->db, sql, -1, &q, NULL) != SQLITE_OK)
		return fail(r, e);
	(void)sqlite3_bind_text(q, 1, run_id, -1, SQLITE_STATIC);
	if (tenant)
		(void)sqlite3_bind_text(q, 2, tenant, -1, SQLITE_STATIC);
	step = sqlite3_step(q);
	if (step == SQLITE_ROW)
		k = write_one(q, ret);
	else if (step == SQLITE_DONE)
		k = -ENOENT;
	else
		k = fail(r, e);
	if (k == -ENOENT)
		(void)err_set(e, ERR_NOT_FOUND, 0, "run_id: no such run in the history: %s", run_id);
	if (k == -ENOMEM)
		(void)err_set(e, ERR_HOST, ENOMEM, "history");
	if (k == 0 && sqlite3_step(q) == SQLITE_ROW) {
		free(*ret);
		*ret = NULL;
		(void)err_set(e, ERR_INVALID, 0, "run_id: several runs begin with %s", run_id);
		k = -EINVAL;
	}
	(void)sqlite3_finalize(q);
	return k;
}

int history_last(struct history_reader *r, int64_t *ret, struct err *e)
{
	return store_number(r->db, "SELECT max(seq) FROM runs", ret) < 0 ? fail(r, e) : 0;
}

bool history_has_changed(struct history_reader *r)
{
	int64_t version = 0;
	bool is_new;

	if (store_number(r->db, "PRAGMA data_version", &version) < 0)
		return true; /* whoever reads then learns why */
	is_new = version != r->version;
	r->version = version;
	return is_new;
}
