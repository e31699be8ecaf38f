/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The database as its writer sees it.
 *
 * WAL with synchronous=NORMAL: a commit is in the page cache when it returns, so it outlives whatever kills the
 * process; a power cut may take the last moments, and leaves a database that is whole.  Nothing waits for the disk but
 * checkpoints. Lists need small rows: scripts and results are in a table of their own.
 */
#include "history/store.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"

#define WAL_CHECKPOINT 1000  /* pages; SQLite's own default */
#define WAL_MAX        16384 /* pages that a reader who does not end may make it grow to */
#define BUSY_TURNS     500
#define BUSY_NS        (10 * NS_PER_MS)
#define PRUNE_ROWS     256
#define VACUUM_PAGES   1024
#define ROW_MAX        (UINT64_C(4) << 20)

static const char schema[] =
	"CREATE TABLE runs (seq INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL UNIQUE, time INTEGER NOT NULL,"
	" tenant TEXT NOT NULL, script_name TEXT NOT NULL, environment TEXT NOT NULL, mode TEXT NOT NULL,"
	" status TEXT NOT NULL, message TEXT NOT NULL, signal TEXT, return_code INTEGER NOT NULL,"
	" execution_ns INTEGER NOT NULL, cpu_ns INTEGER NOT NULL, queue_ns INTEGER NOT NULL, peak_memory_bytes INTEGER,"
	" stdout_bytes INTEGER NOT NULL, stderr_bytes INTEGER NOT NULL) STRICT;"
	"CREATE TABLE bodies (seq INTEGER PRIMARY KEY, has_output INTEGER NOT NULL, script TEXT, result TEXT) STRICT;"
	"CREATE INDEX runs_by_time ON runs (time, run_id);"
	"CREATE INDEX runs_by_tenant ON runs (tenant, time, run_id);"
	"CREATE TRIGGER runs_gone AFTER DELETE ON runs BEGIN DELETE FROM bodies WHERE seq = OLD.seq; END;"
	"PRAGMA application_id = 0x636c6f63;"
	"PRAGMA user_version = 1;";

/* Who reads it later must not have to trust it: no functions of the schema's, no memory-mapped surprises. */
static const char settings[] = "PRAGMA trusted_schema = OFF; PRAGMA synchronous = NORMAL; PRAGMA secure_delete = FAST;"
			       "PRAGMA journal_size_limit = 4194304; PRAGMA cache_size = -2048;";

static const char insert_run[] =
	"INSERT INTO runs (run_id, time, tenant, script_name, environment, mode, status, message, signal, return_code,"
	" execution_ns, cpu_ns, queue_ns, peak_memory_bytes, stdout_bytes, stderr_bytes)"
	" VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16) ON CONFLICT DO NOTHING";

static const char insert_body[] = "INSERT INTO bodies (seq, has_output, script, result) VALUES (?1, ?2, ?3, ?4)";

void entry_strip(struct history_entry *n)
{
	struct result *r = &n->result;
	uint64_t out = r->out.total;
	uint64_t err = r->err.total;

	free(n->script.data);
	n->script = (struct job_blob) { .data = NULL };
	keep_done(&r->out);
	keep_done(&r->err);
	/* as if it had been handed on: nothing is there, nothing was cut */
	r->out.total = out;
	r->out.max = out;
	r->err.total = err;
	r->err.max = err;
	n->has_output = false;
}

void entry_free(struct history_entry *n)
{
	if (!n)
		return;
	result_done(&n->result);
	free(n->script.data);
	free(n);
}

enum store_outcome store_blame(sqlite3 *db, const char *path, struct err *e)
{
	int code = db ? sqlite3_errcode(db) & 0xff : SQLITE_NOMEM;
	const char *words = db ? sqlite3_errmsg(db) : "out of memory";

	if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB) {
		(void)err_set(e, ERR_HOST, 0, "%.300s is damaged or no history (%.80s): move it away", path, words);
		return STORE_BROKEN;
	}
	(void)err_set(e, code == SQLITE_PERM || code == SQLITE_AUTH ? ERR_ACCESS : ERR_HOST, 0, "%.300s: %.150s", path,
		      words);
	switch (code) {
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
	case SQLITE_FULL:
	case SQLITE_IOERR:
	case SQLITE_CANTOPEN:
	case SQLITE_NOMEM:
	case SQLITE_READONLY:
	case SQLITE_PERM:
	case SQLITE_PROTOCOL:
	case SQLITE_SCHEMA:
		return STORE_AGAIN;
	default:
		return STORE_LOST;
	}
}

int store_number(sqlite3 *db, const char *sql, int64_t *ret)
{
	sqlite3_stmt *q = NULL;
	int r = sqlite3_prepare_v2(db, sql, -1, &q, NULL);

	if (r == SQLITE_OK && sqlite3_step(q) == SQLITE_ROW)
		*ret = sqlite3_column_int64(q, 0);
	else
		r = SQLITE_ERROR;
	/* an aggregate over nothing is NULL, which reads as 0 */
	if (sqlite3_finalize(q) != SQLITE_OK || r != SQLITE_OK)
		return -EIO;
	return 0;
}

enum store_outcome store_check(sqlite3 *db, const char *path, int *ret_version, struct err *e)
{
	int64_t application = 0;
	int64_t version = 0;
	int64_t objects = 0;

	if (store_number(db, "PRAGMA application_id", &application) < 0 ||
	    store_number(db, "PRAGMA user_version", &version) < 0 ||
	    store_number(db, "SELECT count(*) FROM sqlite_master", &objects) < 0)
		return store_blame(db, path, e);
	*ret_version = (int)version;
	if (application == 0 && version == 0 && objects == 0)
		return STORE_DONE;
	if (application != STORE_APPLICATION) {
		(void)err_set(e, ERR_HOST, 0, "%.300s is another program's database: set history.path", path);
		return STORE_BROKEN;
	}
	if (version > STORE_SCHEMA || version < 1) {
		(void)err_set(e, ERR_HOST, 0,
			      "%.300s is of a newer cloche (schema %d, known: %d): move it away, or set history.path",
			      path, (int)version, STORE_SCHEMA);
		return STORE_BROKEN;
	}
	return STORE_DONE;
}

static int on_busy(void *userdata, int turn)
{
	const struct store *s = userdata;
	struct timespec t = { .tv_nsec = (long)BUSY_NS };

	if (turn >= BUSY_TURNS || (s->goes_on && !s->goes_on(s->userdata)))
		return 0;
	(void)nanosleep(&t, NULL);
	return 1;
}

static int on_commit(void *userdata, sqlite3 *db, const char *name, int pages)
{
	struct store *s = userdata;

	(void)db;
	(void)name;
	s->wal_pages = pages;
	return SQLITE_OK;
}

/* Tables of a new file; another server of the same user may be doing that, too. */
static int make_schema(sqlite3 *db)
{
	int64_t version = 0;
	int r = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);

	if (r != SQLITE_OK)
		return r;
	if (store_number(db, "PRAGMA user_version", &version) < 0 || version == 0)
		r = sqlite3_exec(db, schema, NULL, NULL, NULL);
	if (r == SQLITE_OK)
		r = sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
	return r;
}

static enum store_outcome set_up(struct store *s, struct err *e)
{
	enum store_outcome o;
	int version = 0;
	int r;

	(void)sqlite3_extended_result_codes(s->db, 1);
	(void)sqlite3_busy_handler(s->db, on_busy, s);
	o = store_check(s->db, s->path, &version, e);
	if (o != STORE_DONE)
		return o;
	if (version == 0) /* only before there is anything in it */
		(void)sqlite3_exec(s->db, "PRAGMA auto_vacuum = INCREMENTAL", NULL, NULL, NULL);
	r = sqlite3_exec(s->db, "PRAGMA journal_mode = WAL", NULL, NULL, NULL);
	if (r == SQLITE_OK)
		r = sqlite3_exec(s->db, settings, NULL, NULL, NULL);
	if (r == SQLITE_OK && version == 0)
		r = make_schema(s->db);
	if (r == SQLITE_OK)
		r = sqlite3_prepare_v3(s->db, insert_run, -1, SQLITE_PREPARE_PERSISTENT, &s->run, NULL);
	if (r == SQLITE_OK)
		r = sqlite3_prepare_v3(s->db, insert_body, -1, SQLITE_PREPARE_PERSISTENT, &s->body, NULL);
	if (r != SQLITE_OK)
		return store_blame(s->db, s->path, e);
	(void)sqlite3_wal_hook(s->db, on_commit, s);
	return STORE_DONE;
}

enum store_outcome store_open(struct store *s, struct err *e)
{
	enum store_outcome o;
	struct stat st;
	int r = path_make(s->path, e);

	if (r < 0)
		return e->kind == ERR_INVALID ? STORE_BROKEN : STORE_AGAIN;
	r = sqlite3_open_v2(s->path, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
	o = r == SQLITE_OK ? set_up(s, e) : store_blame(s->db, s->path, e);
	if (o == STORE_LOST) /* no rows are meant here */
		o = STORE_AGAIN;
	if (o == STORE_DONE && stat(s->path, &st) < 0) {
		(void)err_set(e, ERR_HOST, errno, "%s", s->path);
		o = STORE_AGAIN;
	}
	if (o != STORE_DONE) {
		store_close(s);
		return o;
	}
	s->dev = st.st_dev;
	s->ino = st.st_ino;
	return STORE_DONE;
}

void store_close(struct store *s)
{
	(void)sqlite3_finalize(s->run);
	(void)sqlite3_finalize(s->body);
	(void)sqlite3_close(s->db);
	s->run = NULL;
	s->body = NULL;
	s->db = NULL;
	s->wal_pages = 0;
}

bool store_is_there(const struct store *s)
{
	struct stat st;

	return stat(s->path, &st) == 0 && st.st_dev == s->dev && st.st_ino == s->ino;
}

size_t store_row_max(const struct store *s)
{
	return (size_t)(s->max_bytes / 8 < ROW_MAX ? s->max_bytes / 8 : ROW_MAX);
}

static int bind_text(sqlite3_stmt *q, int at, const char *text)
{
	return sqlite3_bind_text(q, at, text ? text : "", -1, SQLITE_STATIC);
}

static int bind_u64(sqlite3_stmt *q, int at, uint64_t v)
{
	return sqlite3_bind_int64(q, at, v > INT64_MAX ? INT64_MAX : (int64_t)v);
}

/* Failures to bind are failures of memory: the columns would be NULL, which the table refuses. */
static int write_run(struct store *s, const struct history_entry *n)
{
	const struct result *r = &n->result;
	sqlite3_stmt *q = s->run;
	char signal[24];

	(void)bind_text(q, 1, r->run_id);
	(void)sqlite3_bind_int64(q, 2, n->time_us);
	(void)bind_text(q, 3, n->tenant);
	(void)bind_text(q, 4, r->script_name);
	(void)bind_text(q, 5, n->environment);
	(void)bind_text(q, 6, job_mode_name(r->mode));
	(void)bind_text(q, 7, status_name(r->status));
	(void)bind_text(q, 8, r->message);
	if (r->signal)
		(void)sqlite3_bind_text(q, 9, signal_name(r->signal, signal, sizeof(signal)), -1, SQLITE_TRANSIENT);
	(void)sqlite3_bind_int(q, 10, r->return_code);
	(void)bind_u64(q, 11, r->execution_ns);
	(void)bind_u64(q, 12, r->cpu_ns);
	(void)bind_u64(q, 13, r->queue_ns);
	if (r->has_peak_memory)
		(void)bind_u64(q, 14, r->peak_memory_bytes);
	(void)bind_u64(q, 15, r->out.total);
	(void)bind_u64(q, 16, r->err.total);
	return sqlite3_step(q);
}

static int write_body(struct store *s, struct history_entry *n)
{
	sqlite3_stmt *q = s->body;
	char *json = result_write(&n->result);
	int r;

	/* escapes may have made much of little */
	if (json && strlen(json) > 2 * store_row_max(s)) {
		free(json);
		entry_strip(n);
		json = result_write(&n->result);
	}
	(void)sqlite3_bind_int64(q, 1, sqlite3_last_insert_rowid(s->db));
	(void)sqlite3_bind_int(q, 2, n->has_output);
	if (n->script.data)
		(void)sqlite3_bind_text64(q, 3, n->script.data, n->script.len, SQLITE_STATIC, SQLITE_UTF8);
	if (json)
		(void)sqlite3_bind_text64(q, 4, json, strlen(json), SQLITE_STATIC, SQLITE_UTF8);
	r = sqlite3_step(q);
	(void)sqlite3_reset(q);
	(void)sqlite3_clear_bindings(q);
	free(json);
	return r;
}

static int write_entry(struct store *s, struct history_entry *n)
{
	int r = write_run(s, n);
	bool is_new = sqlite3_changes(s->db) == 1;

	(void)sqlite3_reset(s->run);
	(void)sqlite3_clear_bindings(s->run);
	if (r != SQLITE_DONE)
		return r;
	return is_new ? write_body(s, n) : SQLITE_DONE;
}

/* A log that only grows, because some reader does not end, must not fill the disk. */
static bool has_log_room(struct store *s)
{
	int in_log = 0;
	int moved = 0;

	if (s->wal_pages < WAL_CHECKPOINT)
		return true;
	if (sqlite3_wal_checkpoint_v2(s->db, NULL, SQLITE_CHECKPOINT_PASSIVE, &in_log, &moved) != SQLITE_OK)
		return s->wal_pages < WAL_MAX;
	return in_log < WAL_MAX || moved >= in_log;
}

enum store_outcome store_write(struct store *s, struct history_entry *list, struct err *e)
{
	enum store_outcome o;
	int r;

	if (!has_log_room(s)) {
		(void)err_set(e, ERR_HOST, 0, "%.300s-wal has grown too long: some reader of it does not end", s->path);
		return STORE_AGAIN;
	}
	r = sqlite3_exec(s->db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
	if (r == SQLITE_OK)
		r = SQLITE_DONE;
	for (; list && r == SQLITE_DONE; list = list->next)
		r = write_entry(s, list);
	if (r == SQLITE_DONE)
		r = sqlite3_exec(s->db, "COMMIT", NULL, NULL, NULL);
	if (r == SQLITE_OK)
		return STORE_DONE;
	o = store_blame(s->db, s->path, e);
	if (!sqlite3_get_autocommit(s->db))
		(void)sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
	return o;
}

/* prune_some() - the oldest @rows rows up to and including number @seq.  Return: SQLITE_OK or an error */
static int prune_some(struct store *s, int64_t seq, int rows)
{
	char sql[160];

	(void)snprintf(sql, sizeof(sql),
		       "DELETE FROM runs WHERE seq IN (SELECT seq FROM runs WHERE seq <= %" PRId64
		       " ORDER BY seq LIMIT %d)",
		       seq, rows);
	return sqlite3_exec(s->db, sql, NULL, NULL, NULL);
}

static int prune_old(struct store *s, int64_t now_us)
{
	int64_t since = now_us - (int64_t)(s->max_age_ns / NS_PER_US);
	char sql[160];

	(void)snprintf(sql, sizeof(sql),
		       "DELETE FROM runs WHERE seq IN (SELECT seq FROM runs WHERE time < %" PRId64
		       " ORDER BY time LIMIT %d)",
		       since, PRUNE_ROWS);
	return sqlite3_exec(s->db, sql, NULL, NULL, NULL);
}

/* Pages that nobody needs go back to the disk when they are many, or when the file is too large. */
static int shrink(struct store *s, uint64_t pages, uint64_t unused, uint64_t page_bytes)
{
	char sql[64];

	if (unused < VACUUM_PAGES && pages * page_bytes <= s->max_bytes - s->max_bytes / 16)
		return SQLITE_OK;
	(void)snprintf(sql, sizeof(sql), "PRAGMA incremental_vacuum(%d)", VACUUM_PAGES);
	return sqlite3_exec(s->db, sql, NULL, NULL, NULL);
}

/* How many of @n rows that take @used bytes go so that @limit holds them; rows differ, so it is asked again. */
static int rows_over(uint64_t used, uint64_t limit, uint64_t n)
{
	uint64_t rows = used > limit ? (used - limit) * n / used + 1 : 0;

	return rows < PRUNE_ROWS ? (int)rows : PRUNE_ROWS;
}

enum store_outcome store_prune(struct store *s, int64_t now_us, bool *ret_more, struct err *e)
{
	int64_t first = 0;
	int64_t last = 0;
	int64_t pages = 0;
	int64_t unused = 0;
	int64_t page_bytes = 0;
	int before = sqlite3_total_changes(s->db);
	uint64_t n;
	int over;

	if (prune_old(s, now_us) != SQLITE_OK || store_number(s->db, "SELECT min(seq) FROM runs", &first) < 0 ||
	    store_number(s->db, "SELECT max(seq) FROM runs", &last) < 0)
		return store_blame(s->db, s->path, e);
	/* numbers are given without gaps but for what pruning by age leaves: never too few rows go */
	n = last > 0 ? (uint64_t)(last - first) + 1 : 0;
	if (n > s->max_rows && prune_some(s, last - (int64_t)s->max_rows, PRUNE_ROWS) != SQLITE_OK)
		return store_blame(s->db, s->path, e);
	if (store_number(s->db, "PRAGMA page_count", &pages) < 0 ||
	    store_number(s->db, "PRAGMA freelist_count", &unused) < 0 ||
	    store_number(s->db, "PRAGMA page_size", &page_bytes) < 0)
		return store_blame(s->db, s->path, e);
	over = rows_over((uint64_t)((pages - unused) * page_bytes), s->max_bytes - s->max_bytes / 16, n);
	if (over && prune_some(s, last, over) != SQLITE_OK)
		return store_blame(s->db, s->path, e);
	if (shrink(s, (uint64_t)pages, (uint64_t)unused, (uint64_t)page_bytes) != SQLITE_OK)
		return store_blame(s->db, s->path, e);
	*ret_more = sqlite3_total_changes(s->db) != before;
	return STORE_DONE;
}
