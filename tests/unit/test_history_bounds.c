/* SPDX-License-Identifier: Apache-2.0 */
/* The history: the queue and the file keep to their bounds. */
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/clock.h"
#include "history_support.h"

#define QUEUE_ROWS 4096

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		HISTORY_TEST(test_queue_rows),   HISTORY_TEST(test_queue_bytes),    HISTORY_TEST(test_bound_of_rows),
		HISTORY_TEST(test_bound_of_age), HISTORY_TEST(test_bound_of_bytes), HISTORY_TEST(test_large_row),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
