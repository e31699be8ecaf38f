/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the history share. */
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/macro.h"
#include "history/store.h"
#include "history_support.h"

char folder[64];
char path[128];
char said[8][512];
atomic_int n_said;

static void on_say(bool is_bad, const char *line)
{
	(void)is_bad;
	if (n_said < (int)ARRAY_LEN(said)) {
		(void)snprintf(said[n_said], sizeof(said[0]), "%s", line);
		n_said++;
	}
}

int set_up(void **state)
{
	(void)state;
	n_said = 0;
	(void)strcpy(folder, "/tmp/history-test-XXXXXX");
	if (!mkdtemp(folder))
		return -1;
	(void)snprintf(path, sizeof(path), "%s/state/history.db", folder);
	return 0;
}

int tear_down(void **state)
{
	static const char *const names[] = { "", "-wal", "-shm", "-journal" };
	char name[192];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		(void)snprintf(name, sizeof(name), "%s%s", path, names[i]);
		(void)unlink(name);
	}
	(void)snprintf(name, sizeof(name), "%s/state", folder);
	(void)rmdir(name);
	return rmdir(folder);
}

struct history *start(const struct history_options *given)
{
	struct history_options o = *given;
	struct history *h = NULL;
	struct err e = { .kind = ERR_NONE };

	o.path = path;
	o.say = on_say;
	o.max_age_ns = o.max_age_ns ? o.max_age_ns : 3600 * NS_PER_SEC;
	o.max_rows = o.max_rows ? o.max_rows : 100000;
	o.max_bytes = o.max_bytes ? o.max_bytes : 64 * MIB;
	assert_int_equal(history_open(&o, &h, &e), 0);
	return h;
}

struct history *start_default(void)
{
	struct history_options o = { .stores_scripts = true, .stores_output = true };

	return start(&o);
}

void add(struct history *h, unsigned i, size_t bytes, uint64_t ago_ns)
{
	struct result r = { .status = i % 2 ? STATUS_ERROR : STATUS_OK,
			    .return_code = (int)(i % 2),
			    .mode = JOB_MODE_WARM };
	struct job_blob script = { .data = strdup("print('hi')\n"), .len = 12 };
	struct history_run run = { .result = &r,
				   .script = &script,
				   .tenant = i % 3 ? "uid:1000" : "token-a",
				   .environment = "default",
				   .arrived_ns = clock_now_ns() - ago_ns };
	char *text = malloc(bytes + 1);

	assert_non_null(text);
	memset(text, 'x', bytes);
	keep_init(&r.out, MIB);
	keep_init(&r.err, MIB);
	assert_int_equal(keep_add(&r.out, text, bytes), 0);
	free(text);
	(void)snprintf(r.run_id, sizeof(r.run_id), "%08x%024x", i, 0xabcU);
	r.script_name = strdup(i % 5 ? "a.py" : "b\x1b[31m.py");
	r.message = i % 2 ? strdup("it went wrong") : NULL;
	r.artifacts = calloc(1, sizeof(*r.artifacts));
	r.n_artifacts = 1;
	r.artifacts[0] = (struct artifact) { .name = strdup("out.bin"),
					     .size = 5,
					     .body = { .data = strdup("MARK!"), .len = 5 } };
	history_add(h, &run);
	assert_null(r.script_name);
	assert_null(r.artifacts);
	result_done(&r);
	free(script.data);
}

struct history_stats settled(struct history *h)
{
	struct history_stats s = { .queued = 1 };

	for (int i = 0; i < 1000 && s.queued; i++) {
		struct timespec t = { .tv_nsec = 10 * 1000 * 1000 };

		(void)nanosleep(&t, NULL);
		history_stats(h, &s);
	}
	assert_int_equal(s.queued, 0);
	return s;
}

struct history_reader *reader(void)
{
	struct history_reader *r = NULL;
	struct err e = { .kind = ERR_NONE };

	if (history_reader_open(path, &r, &e) < 0)
		fail_msg("%s", e.msg);
	return r;
}

sqlite3 *other(const char *sql)
{
	sqlite3 *db = NULL;

	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_busy_timeout(db, 10000), SQLITE_OK); /* the writer may be writing just then */
	if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
		fail_msg("%s", sqlite3_errmsg(db));
	return db;
}

int64_t number(const char *sql)
{
	sqlite3 *db = other("SELECT 1");
	int64_t v = -1;

	assert_int_equal(store_number(db, sql, &v), 0);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
	return v;
}
