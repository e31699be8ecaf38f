/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "job/request.h"
#include "job/result.h"

/*
 * What ran: a row a run in an SQLite database, written by a server, read by whoever may read the file.
 *
 *	writer.c  the queue and the one thread that writes
 *	store.c   the database: its schema, one transaction, its bounds
 *	reader.c  lists and single runs
 *	shape.c   a row as JSON; times as text
 *	path.c    where the file is, and whose
 */

/* --- where --- */

/*
 * history_path() - where the history is
 * @configured: [history] path; NULL: root's is HISTORY_SYSTEM_PATH, a user's $XDG_STATE_HOME/cloche/history.db, by
 * default
 *              ~/.local/state/cloche/history.db
 * @variables:  "K=V", NULL-terminated
 *
 * Return: 0, *@ret is heap, the caller frees; -errno with @e set (ERR_NOT_FOUND: no home).
 */
int history_path(const char *configured, uid_t uid, char *const *variables, char **ret, struct err *e) MUST_CHECK;

/*
 * history_prepare() - make the folder (0700) and the file (0600) and give both to @uid and @gid, for a server that is
 * root now and will not be when it writes.  What is there and is no plain file or folder is refused.
 *
 * Return: 0 or -errno with @e set
 */
int history_prepare(const char *path, uid_t uid, gid_t gid, struct err *e) MUST_CHECK;

#define HISTORY_SYSTEM_PATH "/var/lib/cloche/history.db"

/* --- the writer --- */

struct history;

struct history_options {
	const char *path;    /* borrowed for history_open() */
	uint64_t max_age_ns; /* older rows go */
	uint64_t max_rows;   /* the oldest ones above it go */
	uint64_t max_bytes;  /* of the database's file; the oldest rows go until it fits */
	bool stores_scripts;
	bool stores_output;
	/*
	 * A line for the server's log, at most one a minute; called in the writer's thread, NULL: none.
	 * @is_bad: rows are being lost
	 */
	void (*say)(bool is_bad, const char *line);
};

/* A run that has ended; borrowed for history_add(), but for what that takes. */
struct history_run {
	struct result *result;   /* emptied */
	struct job_blob *script; /* emptied; NULL: there is none */
	const char *tenant;      /* "uid-1000", or a name */
	const char *environment;
	uint64_t arrived_ns; /* CLOCK_MONOTONIC */
	bool is_streamed;    /* its output was handed on as it came and is not in the result */
};

enum history_state {
	HISTORY_OPENING, /* ... or waiting for a lock, or for room: it is tried again */
	HISTORY_WRITING,
	HISTORY_BROKEN, /* the file can't be used; rows are dropped until it was moved away */
};

struct history_stats {
	enum history_state state;
	uint64_t queued;      /* rows that wait now */
	uint64_t queue_bytes; /* ... and what they take */
	uint64_t written;     /* rows, since the start */
	uint64_t dropped;     /* rows that were lost, since the start */
	uint64_t stripped;    /* rows whose script and output were left out for want of room in the queue */
	char error[256];      /* the last one; "": none, or it was overcome */
};

/*
 * history_open() - start the writer's thread, with every signal blocked; it opens the database by itself, so that
 * nothing about that file ever holds its caller up
 *
 * Return: 0; -errno with @e set: no thread, no memory.
 */
int history_open(const struct history_options *o, struct history **ret, struct err *e) MUST_CHECK;

/*
 * history_add() - put one run into the queue; never waits, takes no more memory than the queue's bounds
 *
 * Takes the contents of @r->result and @r->script: they are empty afterwards, and still to be given to result_done().
 * What the queue has no room for is dropped and counted.
 */
void history_add(struct history *h, struct history_run *r);

/* history_stats() - from any thread; @h may be NULL: no history (state HISTORY_BROKEN, all else 0) */
void history_stats(struct history *h, struct history_stats *ret);

/* history_close() - write what is queued, two seconds at most, and free @h (NULL: nothing) */
void history_close(struct history *h);

/* --- the reader --- */

struct history_reader;

/*
 * history_reader_open() - for reading only; any number of readers at any time
 *
 * Return: 0; -errno with @e set (ERR_NOT_FOUND: there is no history yet; ERR_ACCESS; ERR_HOST: the file is damaged,
 * ...).
 */
int history_reader_open(const char *path, struct history_reader **ret, struct err *e) MUST_CHECK;
void history_reader_close(struct history_reader *r);

/*
 * history_reader_limit() - for whoever serves others meanwhile: a list or a run that takes longer than @ns is given up
 * (-ETIMEDOUT with ERR_BUSY), a lock is not waited for for longer
 */
void history_reader_limit(struct history_reader *r, uint64_t ns);

#define HISTORY_LIMIT_DEFAULT 50
#define HISTORY_LIMIT_MAX     1000

struct history_filter {
	const char *status; /* NULL: any */
	const char *name;   /* glob for script_name: *, ?, []; NULL: any */
	const char *tenant; /* NULL: of all */
	int64_t since_us;   /* arrived then or later, microseconds since 1970; 0: ever */
	unsigned limit;     /* 0: HISTORY_LIMIT_DEFAULT; of history_list(): at most HISTORY_LIMIT_MAX */
	const char *cursor; /* "next" of the list before; NULL: the newest ones */
};

/*
 * history_list() - newest first
 *
 * {"runs": [...], "next": "..." or null}; each run: run_id, time (when the request arrived,
 * "2026-01-31T12:34:56.123456Z"), tenant, script_name, environment, and by the names of a result: mode, status,
 * return_code, signal, execution_time, cpu_time, queue_time, peak_memory_bytes, stdout_bytes, stderr_bytes, message.  A
 * walk by "next" meets no run twice and misses none that was there at its beginning.
 *
 * Return: 0, *@ret is one line of JSON, heap, the caller frees; -EINVAL with ERR_INVALID: a filter is wrong, e->msg
 * begins with its name ("cursor: ..."); -errno with @e set.
 */
int history_list(struct history_reader *r, const struct history_filter *f, char **ret, struct err *e) MUST_CHECK;

/*
 * history_show() - one run
 * @tenant: whose it must be; NULL: anybody's
 *
 * The object of history_list(), and: script (string, or null: not kept), has_output (false: its output was not kept),
 * result (as the caller got it, but for the bodies of artifacts, and its output where that was not kept; null when the
 * result itself could not be kept).
 *
 * Return: as history_list(); -ENOENT with ERR_NOT_FOUND.
 */
int history_show(struct history_reader *r, const char *run_id, const char *tenant, char **ret,
		 struct err *e) MUST_CHECK;

/* One row of a list; the texts last until the callback returns. */
struct history_row {
	int64_t seq; /* in the order of writing */
	int64_t time_us;
	const char *run_id;
	const char *tenant;
	const char *script_name;
	const char *environment;
	const char *mode;
	const char *status;
	const char *message;
	const char *signal; /* NULL: none */
	int64_t return_code;
	uint64_t execution_ns;
	uint64_t cpu_ns;
	uint64_t queue_ns;
	int64_t peak_memory_bytes; /* -1: unknown */
	uint64_t stdout_bytes;
	uint64_t stderr_bytes;
};

/* Return: 0 go on; else the walk ends and hands that up */
typedef int (*history_row_fn)(void *userdata, const struct history_row *row);

/*
 * history_each() - the rows of a list, one by one
 * @after: NULL: as history_list(); else rows written after *@after, in the order of writing (the cursor is ignored),
 * and
 *         *@after goes on to the last one looked at
 */
int history_each(struct history_reader *r, const struct history_filter *f, int64_t *after, history_row_fn fn,
		 void *userdata, struct err *e) MUST_CHECK;

/* history_cursor() - what goes on behind @row, for filter.cursor */
#define HISTORY_CURSOR 64
const char *history_cursor(const struct history_row *row, char buf[HISTORY_CURSOR]);

/* history_last() - the number of the newest row, 0: none.  Return: 0 or -errno with @e set */
int history_last(struct history_reader *r, int64_t *ret, struct err *e) MUST_CHECK;

/* history_has_changed() - whether anything was written since the last call; costs no more than a look at shared memory
 */
bool history_has_changed(struct history_reader *r);

/* history_row_json() - one object of a list, without newline; heap, the caller frees; NULL: no memory */
char *history_row_json(const struct history_row *row) MUST_CHECK;

/* history_time_text() - "2026-01-31T12:34:56.123456Z" */
#define HISTORY_TIME_TEXT 32
const char *history_time_text(int64_t us, char buf[HISTORY_TIME_TEXT]);

/*
 * history_time_parse() - "2h" (ago; also s, m, d), "2026-01-31", "2026-01-31T12:34[:56[.5]][Z|+01:00]" (UTC if it says
 * nothing), seconds since 1970
 * @now_us: what "ago" counts from
 *
 * Return: 0 or -EINVAL
 */
int history_time_parse(const char *text, int64_t now_us, int64_t *ret_us) MUST_CHECK;
