/* SPDX-License-Identifier: Apache-2.0 */
/* The history: what is added is read again. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/macro.h"
#include "history_support.h"

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
	const struct CMUnitTest tests[] = {
		HISTORY_TEST(test_written_and_read), HISTORY_TEST(test_filters),          HISTORY_TEST(test_cursor),
		HISTORY_TEST(test_not_stored),       HISTORY_TEST(test_changes_are_seen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
