/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <sqlite3.h>

#include "history/history.h"

/* Inside history alone: the database as its writer sees it. */

#define STORE_APPLICATION 0x636c6f63 /* "cloc" */
#define STORE_SCHEMA      1
#define STORE_BATCH_ROWS  256

/* A run on its way into the database. */
struct history_entry {
	struct history_entry *next;
	struct result result;   /* owned */
	struct job_blob script; /* owned; data NULL: not kept */
	char tenant[72];
	char environment[40];
	int64_t time_us; /* of its arrival, since 1970 */
	size_t cost;     /* bytes, about */
	bool has_output;
};

void entry_free(struct history_entry *n);

/* entry_strip() - without script and output; what remains is a few hundred bytes */
void entry_strip(struct history_entry *n);

/* What came of it, and so what the writer does. */
enum store_outcome {
	STORE_DONE,
	STORE_AGAIN,  /* locked, no room, ...: nothing was written, try later */
	STORE_LOST,   /* these rows can't be written; others can */
	STORE_BROKEN, /* damaged, not ours, of a newer version: nothing more until the file is another one */
};

struct store {
	sqlite3 *db; /* owned; NULL: closed */
	sqlite3_stmt *run;
	sqlite3_stmt *body;
	const char *path; /* borrowed */
	uint64_t max_age_ns;
	uint64_t max_rows;
	uint64_t max_bytes;
	dev_t dev; /* of the open file, */
	ino_t ino; /* to see that it was moved away */
	int wal_pages;
	bool (*goes_on)(void *userdata); /* asked while a lock is waited for */
	void *userdata;
};

/* Each writes why into @e when it is not STORE_DONE. */
enum store_outcome store_open(struct store *s, struct err *e);
void store_close(struct store *s);

/* store_write() - all of @list, in one transaction */
enum store_outcome store_write(struct store *s, struct history_entry *list, struct err *e);

/* store_prune() - take away what is too old or too much, a few hundred rows at most; *@ret_more: call again */
enum store_outcome store_prune(struct store *s, int64_t now_us, bool *ret_more, struct err *e);

/* store_is_there() - the open file is still the one at its path */
bool store_is_there(const struct store *s);

/* store_row_max() - bytes of script and output that one row may take */
size_t store_row_max(const struct store *s);

/* store_check() - is it a history, and one that we know?  Fills @e with a remedy when not; *@ret_version: 0 for an
 * empty file */
enum store_outcome store_check(sqlite3 *db, const char *path, int *ret_version, struct err *e);

/* store_blame() - words and outcome of the last failure of @db */
enum store_outcome store_blame(sqlite3 *db, const char *path, struct err *e);

/* store_number() - the one number that @sql gives.  Return: 0 or -EIO */
int store_number(sqlite3 *db, const char *sql, int64_t *ret) MUST_CHECK;

/* path_make() - the file of a server that writes as itself, its folders, its mode.  Return: 0 or -errno with @e set */
int path_make(const char *path, struct err *e) MUST_CHECK;
