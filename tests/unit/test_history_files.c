/* SPDX-License-Identifier: Apache-2.0 */
/* The history: whatever is there in the place of its file, or becomes of it. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "history_support.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		HISTORY_TEST(test_damaged),
		HISTORY_TEST(test_newer),
		HISTORY_TEST(test_moved_away),
		HISTORY_TEST(test_links_refused),
		HISTORY_TEST(test_reader_without_history),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
