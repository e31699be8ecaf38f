/* SPDX-License-Identifier: Apache-2.0 */
/* The history: what is added is read again; the queue and the file keep to their bounds, whatever the disk does. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/macro.h"
#include "history/history.h"
#include "history/store.h"

#define QUEUE_ROWS 4096
#define MIB        ((size_t)1 << 20)

static char folder[64];
static char path[128];
static char said[8][512];
static atomic_int n_said; /* the writer's thread counts */

static void on_say(bool is_bad, const char *line)
{
	(void)is_bad;
	if (n_said < (int)ARRAY_LEN(said)) {
		(void)snprintf(said[n_said], sizeof(said[0]), "%s", line);
		n_said++;
	}
}

static int set_up(void **state)
{
	(void)state;
	n_said = 0;
	(void)strcpy(folder, "/tmp/history-test-XXXXXX");
	if (!mkdtemp(folder))
		return -1;
	(void)snprintf(path, sizeof(path), "%s/state/history.db", folder);
	return 0;
}

static int tear_down(void **state)
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

static struct history *start(const struct history_options *given)
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

static struct history *start_default(void)
{
	struct history_options o = { .stores_scripts = true, .stores_output = true };

	return start(&o);
}

/* A run number @i with @bytes of output, that arrived @ago_ns before now. */
static void add(struct history *h, unsigned i, size_t bytes, uint64_t ago_ns)
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

/* Until everything is written or dropped. */
static struct history_stats settled(struct history *h)
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

static struct history_reader *reader(void)
{
	struct history_reader *r = NULL;
	struct err e = { .kind = ERR_NONE };

	if (history_reader_open(path, &r, &e) < 0)
		fail_msg("%s", e.msg);
	return r;
}

static int count_row(void *userdata, const struct history_row *row)
{
	(void)row;
	++*(unsigned *)userdata;
	return 0;
}

static unsigned count(const struct history_filter *f)
{
	struct history_reader *r = reader();
	struct history_filter all = *f;
	struct err e = { .kind = ERR_NONE };
	unsigned n = 0;
	int64_t after = 0;

	all.limit = HISTORY_LIMIT_MAX;
	for (unsigned before = 1; before != n;) {
		before = n;
		assert_int_equal(history_each(r, &all, &after, count_row, &n, &e), 0);
	}
	history_reader_close(r);
	return n;
}

static void test_written_and_read(void **state)
{
	struct history *h = start_default();
	struct history_reader *r;
	struct err e = { .kind = ERR_NONE };
	struct stat st;
	char *json = NULL;

	(void)state;
	for (unsigned i = 0; i < 10; i++)
		add(h, i, 100, (10 - i) * NS_PER_SEC);
	assert_int_equal(settled(h).written, 10);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	r = reader();
	assert_int_equal(history_show(r, "00000005000000000000000000000abc", NULL, &json, &e), 0);
	assert_non_null(strstr(json, "\"script\": \"print('hi')\\n\""));
	assert_non_null(strstr(json, "b\\u001B[31m.py"));
	assert_non_null(strstr(json, "\"left_out\": \"not kept in the history\""));
	assert_null(strstr(json, "TUFSSyE="));
	assert_non_null(strstr(json, "\"has_output\": true, \"result\": {\"stdout\": \"xxx"));
	free(json);
	json = NULL;
	assert_int_equal(history_show(r, "00000005", "uid:1000", &json, &e), 0);
	free(json);
	json = NULL;
	assert_int_equal(history_show(r, "00000005", "token-a", &json, &e), -ENOENT);
	assert_int_equal(history_show(r, "0000", NULL, &json, &e), -EINVAL);
	assert_non_null(strstr(e.msg, "several"));
	assert_int_equal(history_show(r, "zzzzzzzz", NULL, &json, &e), -EINVAL);
	assert_null(json);
	history_reader_close(r);
	history_close(h);
}

static void test_filters(void **state)
{
	struct history *h = start_default();
	int64_t now = (int64_t)time(NULL) * 1000000;

	(void)state;
	for (unsigned i = 0; i < 30; i++)
		add(h, i, 10, i * 60 * NS_PER_SEC);
	(void)settled(h);
	assert_int_equal(count(&(struct history_filter) { .status = "error" }), 15);
	assert_int_equal(count(&(struct history_filter) { .tenant = "token-a" }), 10);
	assert_int_equal(count(&(struct history_filter) { .name = "b*.py" }), 6);
	assert_int_equal(count(&(struct history_filter) { .name = "[!b].py" }), 24);
	assert_int_equal(count(&(struct history_filter) { .since_us = now - 10 * INT64_C(60000000) + 5000000 }), 10);
	assert_int_equal(count(&(struct history_filter) { .status = "ok", .tenant = "uid:1000", .name = "?.py" }), 8);
	history_close(h);
}

static void test_cursor(void **state)
{
	struct history *h = start_default();
	struct history_filter f = { .limit = 7 };
	struct history_reader *r;
	struct err e = { .kind = ERR_NONE };
	char cursor[64] = "";
	unsigned seen[60] = { 0 };
	unsigned lists = 0;

	(void)state;
	for (unsigned i = 0; i < 30; i++)
		add(h, i, 10, (i / 3) * NS_PER_SEC + 100 * NS_PER_SEC);
	(void)settled(h);
	r = reader();
	do {
		char *json = NULL;
		char *next;

		f.cursor = *cursor ? cursor : NULL;
		assert_int_equal(history_list(r, &f, &json, &e), 0);
		for (char *p = json; (p = strstr(p, "\"run_id\": \"")) != NULL; p += 11)
			seen[strtoul(strndupa(p + 11, 8), NULL, 16)]++;
		next = strstr(json, "\"next\": ");
		assert_non_null(next);
		cursor[0] = '\0';
		(void)sscanf(next, "\"next\": \"%60[^\"]", cursor);
		free(json);
		add(h, 30 + lists, 10, 0); /* newer ones do not move it */
		(void)settled(h);
		lists++;
	} while (*cursor);
	assert_int_equal(lists, 5);
	for (unsigned i = 0; i < ARRAY_LEN(seen); i++)
		assert_int_equal(seen[i], i < 30);
	f.cursor = "x";
	assert_int_equal(history_list(r, &f, &(char *) { NULL }, &e), -EINVAL);
	assert_memory_equal(e.msg, "cursor: ", 8);
	f = (struct history_filter) { .status = "fine" };
	assert_int_equal(history_list(r, &f, &(char *) { NULL }, &e), -EINVAL);
	assert_memory_equal(e.msg, "status: it is one of ok, error, ", 32);
	f = (struct history_filter) { .limit = HISTORY_LIMIT_MAX + 1 };
	assert_int_equal(history_list(r, &f, &(char *) { NULL }, &e), -EINVAL);
	history_reader_close(r);
	history_close(h);
}

static void test_not_stored(void **state)
{
	struct history_options o = { .stores_scripts = false, .stores_output = false };
	struct history *h = start(&o);
	struct history_reader *r;
	struct err e = { .kind = ERR_NONE };
	char *json = NULL;

	(void)state;
	add(h, 1, 12345, 0);
	(void)settled(h);
	r = reader();
	assert_int_equal(history_show(r, "00000001", NULL, &json, &e), 0);
	assert_non_null(strstr(json, "\"script\": null, \"has_output\": false, \"result\": {\"stdout\": \"\""));
	assert_non_null(strstr(json, "\"stdout_bytes\": 12345"));
	assert_non_null(strstr(json, "\"stdout_truncated\": false"));
	assert_null(strstr(json, "xxx"));
	free(json);
	history_reader_close(r);
	history_close(h);
}

/* @sql on a connection of its own, which stays open. */
static sqlite3 *other(const char *sql)
{
	sqlite3 *db = NULL;

	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
		fail_msg("%s", sqlite3_errmsg(db));
	return db;
}

static int64_t number(const char *sql)
{
	sqlite3 *db = other("SELECT 1");
	int64_t v = -1;

	assert_int_equal(store_number(db, sql, &v), 0);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
	return v;
}

static void test_queue_rows(void **state)
{
	struct history *h = start_default();
	struct history_stats s;
	uint64_t began;
	sqlite3 *db;

	(void)state;
	add(h, 0, 10, 0);
	(void)settled(h);
	db = other("BEGIN EXCLUSIVE");
	began = clock_now_ns();
	for (unsigned i = 1; i <= QUEUE_ROWS + 500; i++)
		add(h, i, 10, 0);
	assert_true(clock_now_ns() - began < NS_PER_SEC); /* nobody waited for the lock */
	history_stats(h, &s);
	assert_int_equal(s.queued, QUEUE_ROWS);
	assert_int_equal(s.dropped, 500);
	assert_int_equal(s.written, 1);
	assert_int_equal(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
	s = settled(h);
	assert_int_equal(s.written, 1 + QUEUE_ROWS);
	assert_int_equal(s.dropped, 500);
	history_close(h);
	assert_int_equal(number("SELECT count(*) FROM runs"), 1 + QUEUE_ROWS);
}

static void test_queue_bytes(void **state)
{
	struct history *h = start_default();
	struct history_stats s;
	sqlite3 *db;

	(void)state;
	add(h, 0, 10, 0);
	(void)settled(h);
	db = other("BEGIN EXCLUSIVE");
	for (unsigned i = 1; i <= 100; i++) {
		add(h, i, MIB, 0);
		history_stats(h, &s);
		assert_true(s.queue_bytes < 17 * MIB);
	}
	assert_int_equal(s.queued, 100); /* output gives way before rows do */
	assert_int_equal(s.dropped, 0);
	assert_true(s.stripped >= 80 && s.stripped < 100);
	assert_int_equal(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
	(void)settled(h);
	history_close(h);
	assert_int_equal(number("SELECT count(*) FROM runs"), 101);
	assert_int_equal(number("SELECT count(*) FROM bodies WHERE has_output"), (int64_t)(101 - s.stripped));
}

static void test_bound_of_rows(void **state)
{
	struct history_options o = { .max_rows = 100 };
	struct history *h = start(&o);

	(void)state;
	for (unsigned i = 0; i < 1000; i++)
		add(h, i, 10, 0);
	(void)settled(h);
	history_close(h);
	assert_int_equal(number("SELECT count(*) FROM runs"), 100);
	assert_int_equal(number("SELECT count(*) FROM bodies"), 100);
	assert_int_equal(number("SELECT count(*) FROM runs WHERE run_id < '00000384'"), 0); /* the newest are there */
}

static void test_bound_of_age(void **state)
{
	struct history_options o = { .max_age_ns = 60 * NS_PER_SEC };
	struct history *h = start(&o);

	(void)state;
	for (unsigned i = 0; i < 600; i++)
		add(h, i, 10, (i < 550 ? 61 : 30) * NS_PER_SEC);
	(void)settled(h);
	history_close(h);
	assert_int_equal(number("SELECT count(*) FROM runs"), 50);
}

static void test_bound_of_bytes(void **state)
{
	struct history_options o = { .max_bytes = 2 * MIB, .stores_output = true };
	struct history *h = start(&o);
	struct stat st;

	(void)state;
	for (unsigned i = 0; i < 300; i++) {
		add(h, i, 50000, 0);
		if (i % 20 == 19)
			(void)settled(h);
	}
	(void)settled(h);
	history_close(h);
	assert_int_equal(stat(path, &st), 0);
	assert_true(st.st_size <= (off_t)(2 * MIB));
	assert_true(number("SELECT count(*) FROM runs") >= 20);
	assert_int_equal(number("SELECT count(*) FROM runs WHERE run_id LIKE '0000012b%'"), 1);
}

static void test_large_row(void **state)
{
	struct history_options o = { .max_bytes = 2 * MIB, .stores_output = true };
	struct history *h = start(&o);

	(void)state;
	add(h, 1, MIB, 0); /* more than an eighth */
	assert_int_equal(settled(h).stripped, 1);
	history_close(h);
	assert_int_equal(number("SELECT count(*) FROM bodies WHERE NOT has_output AND result NOT NULL"), 1);
}

static void write_file(const char *text)
{
	char name[192];
	int fd;

	(void)snprintf(name, sizeof(name), "%s/state", folder);
	assert_int_equal(mkdir(name, 0700), 0);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	assert_int_equal(close(fd), 0);
}

static void test_damaged(void **state)
{
	static const char text[] =
		"this is not a database, it is a letter to somebody who may want it again, and it is longer "
		"than the hundred bytes that SQLite looks at before it says so";
	struct history *h;
	struct history_stats s;
	struct history_reader *r = NULL;
	struct err e = { .kind = ERR_NONE };
	struct stat st;

	(void)state;
	write_file(text);
	h = start_default();
	add(h, 1, 10, 0);
	for (int i = 0; i < 500 && n_said == 0; i++)
		(void)usleep(10000);
	history_stats(h, &s);
	assert_int_equal(s.state, HISTORY_BROKEN);
	assert_non_null(strstr(s.error, "move it away"));
	assert_non_null(strstr(said[0], "move it away"));
	history_close(h);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, sizeof(text) - 1);
	assert_true(history_reader_open(path, &r, &e) < 0);
	assert_non_null(strstr(e.msg, "move it away"));
}

static void test_newer(void **state)
{
	struct history *h = start_default();
	struct history_reader *r = NULL;
	struct history_stats s;
	struct err e = { .kind = ERR_NONE };

	(void)state;
	add(h, 1, 10, 0);
	(void)settled(h);
	history_close(h);
	assert_int_equal(sqlite3_close(other("PRAGMA user_version = 2")), SQLITE_OK);
	h = start_default();
	for (int i = 0; i < 500 && n_said == 0; i++)
		(void)usleep(10000);
	history_stats(h, &s);
	assert_int_equal(s.state, HISTORY_BROKEN);
	assert_non_null(strstr(s.error, "newer cloche"));
	history_close(h);
	assert_true(history_reader_open(path, &r, &e) < 0);
	assert_non_null(strstr(e.msg, "newer cloche"));
	assert_int_equal(sqlite3_close(other("CREATE TABLE x (y); PRAGMA application_id = 7; PRAGMA user_version = 1")),
			 SQLITE_OK);
	assert_true(history_reader_open(path, &r, &e) < 0);
	assert_non_null(strstr(e.msg, "another program's"));
}

static void test_moved_away(void **state)
{
	struct history *h = start_default();
	char aside[192];

	(void)state;
	add(h, 1, 10, 0);
	(void)settled(h);
	(void)snprintf(aside, sizeof(aside), "%s/aside", folder);
	assert_int_equal(rename(path, aside), 0);
	add(h, 2, 10, 0);
	assert_int_equal(settled(h).written, 2);
	history_close(h);
	assert_int_equal(number("SELECT count(*) FROM runs"), 1);
	assert_int_equal(unlink(aside), 0);
}

static void test_links_refused(void **state)
{
	struct history *h;
	struct history_stats s;
	char aside[192];

	(void)state;
	(void)snprintf(aside, sizeof(aside), "%s/state", folder);
	assert_int_equal(mkdir(aside, 0700), 0);
	(void)snprintf(aside, sizeof(aside), "%s/aside", folder);
	assert_int_equal(symlink(aside, path), 0);
	h = start_default();
	for (int i = 0; i < 500 && n_said == 0; i++)
		(void)usleep(10000);
	history_stats(h, &s);
	assert_int_not_equal(s.state, HISTORY_WRITING);
	history_close(h);
	assert_int_equal(access(aside, F_OK), -1);
}

static void test_reader_without_history(void **state)
{
	struct history_reader *r = NULL;
	struct err e = { .kind = ERR_NONE };

	(void)state;
	assert_int_equal(history_reader_open(path, &r, &e), -ENOENT);
	assert_int_equal(e.kind, ERR_NOT_FOUND);
	write_file("");
	assert_int_equal(history_reader_open(path, &r, &e), -ENOENT);
	assert_null(r);
}

static void test_changes_are_seen(void **state)
{
	struct history *h = start_default();
	struct history_reader *r;

	(void)state;
	add(h, 1, 10, 0);
	(void)settled(h);
	r = reader();
	(void)history_has_changed(r);
	assert_false(history_has_changed(r));
	add(h, 2, 10, 0);
	(void)settled(h);
	assert_true(history_has_changed(r));
	history_reader_close(r);
	history_close(h);
}

int main(void)
{
#define HISTORY_TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		HISTORY_TEST(test_written_and_read),
		HISTORY_TEST(test_filters),
		HISTORY_TEST(test_cursor),
		HISTORY_TEST(test_not_stored),
		HISTORY_TEST(test_queue_rows),
		HISTORY_TEST(test_queue_bytes),
		HISTORY_TEST(test_bound_of_rows),
		HISTORY_TEST(test_bound_of_age),
		HISTORY_TEST(test_bound_of_bytes),
		HISTORY_TEST(test_large_row),
		HISTORY_TEST(test_damaged),
		HISTORY_TEST(test_newer),
		HISTORY_TEST(test_moved_away),
		HISTORY_TEST(test_links_refused),
		HISTORY_TEST(test_reader_without_history),
		HISTORY_TEST(test_changes_are_seen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
