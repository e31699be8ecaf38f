/* SPDX-License-Identifier: Apache-2.0 */
/* The history without a database: times, globs, where the file is and whose. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/macro.h"
#include "history/history.h"
#include "history/shape.h"

static char folder[64];
static char path[128];

static int set_up(void **state)
{
	(void)state;
	(void)strcpy(folder, "/tmp/history-test-XXXXXX");
	if (!mkdtemp(folder))
		return -1;
	(void)snprintf(path, sizeof(path), "%s/state/history.db", folder);
	return 0;
}

static int tear_down(void **state)
{
	char name[192];

	(void)state;
	(void)unlink(path);
	(void)snprintf(name, sizeof(name), "%s/state", folder);
	(void)rmdir(name);
	return rmdir(folder);
}

static void test_times(void **state)
{
	static const struct {
		const char *text;
		int64_t us;
	} good[] = {
		{ "1970-01-01", 0 },
		{ "2026-01-31T12:34:56.123456Z", INT64_C(1769862896123456) },
		{ "2026-01-31 12:34:56.1234569", INT64_C(1769862896123456) },
		{ "2026-01-31T13:34:56+01:00", INT64_C(1769862896000000) },
		{ "2026-01-31T11:04-0130", INT64_C(1769862840000000) },
		{ "1769862896", INT64_C(1769862896000000) },
		{ "2h", INT64_C(2000000000000000) - INT64_C(7200000000) },
		{ "1d", INT64_C(2000000000000000) - INT64_C(86400000000) },
		{ "1.5s", INT64_C(2000000000000000) - 1500000 },
		{ "2024-02-29", INT64_C(1709164800000000) },
	};
	static const char *const bad[] = { "",
					   "yesterday",
					   "2026-02-30",
					   "2026-13-01",
					   "2026-01-31T",
					   "2026-01-31T25:00",
					   "2026-01-31T12:34:56x",
					   "-2h",
					   "2026-1-1",
					   "2026-01-31T12:34:56+1",
					   "9999999999999" };
	char text[HISTORY_TIME_TEXT];
	int64_t us = 0;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		if (history_time_parse(good[i].text, INT64_C(2000000000000000), &us) < 0 || us != good[i].us)
			fail_msg("%s: %lld", good[i].text, (long long)us);
	}
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		if (history_time_parse(bad[i], INT64_C(2000000000000000), &us) == 0)
			fail_msg("%s: %lld", bad[i], (long long)us);
	}
	assert_string_equal(history_time_text(INT64_C(1769862896123456), text), "2026-01-31T12:34:56.123456Z");
	assert_string_equal(history_time_text(-1, text), "1969-12-31T23:59:59.999999Z");
}

static void test_globs(void **state)
{
	static const struct {
		const char *pattern;
		const char *text;
		bool fits;
	} cases[] = {
		{ "*", "", true },          { "a*", "abc", true },      { "*.py", "x.py", true },
		{ "*.py", "x.pyc", false }, { "?", "é", true },         { "??", "é", false },
		{ "[a-c]x", "bx", true },   { "[!a-c]x", "bx", false }, { "[é]", "é", true },
		{ "[]]", "]", true },       { "[a", "[a", true },       { "a[", "a[", true },
		{ "*a*b", "xaxb", true },   { "*a*b", "xbxa", false },  { "", "", true },
		{ "", "a", false },         { "a**b", "ab", true },     { "*é*", "caféx", true },
		{ "[a-]", "-", true },      { "[^é-ü]", "ö", false },   { "x*y*z", "x1y2z3", false },
		{ "x*y*z", "xyzyz", true },
	};
	char text[256];
	char pattern[512];
	uint64_t began = clock_now_ns();

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		if (glob_fits(cases[i].pattern, cases[i].text) != cases[i].fits)
			fail_msg("%s on %s", cases[i].pattern, cases[i].text);
	}
	memset(text, 'a', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	for (size_t i = 0; i < 200; i++)
		memcpy(pattern + 2 * i, "*a", 2);
	memcpy(pattern + 400, "b", 2);
	assert_false(glob_fits(pattern, text));
	assert_true(clock_now_ns() - began < NS_PER_SEC);
}

static void test_paths(void **state)
{
	char *variables[] = { strdupa("HOME=/home/a"), strdupa("XDG_STATE_HOME=relative"), NULL, NULL };
	struct err e = { .kind = ERR_NONE };
	char *p = NULL;

	(void)state;
	assert_int_equal(history_path(NULL, 1000, variables, &p, &e), 0);
	assert_string_equal(p, "/home/a/.local/state/cloche/history.db");
	free(p);
	variables[1] = strdupa("XDG_STATE_HOME=/s");
	assert_int_equal(history_path(NULL, 1000, variables, &p, &e), 0);
	assert_string_equal(p, "/s/cloche/history.db");
	free(p);
	assert_int_equal(history_path(NULL, 0, variables, &p, &e), 0);
	assert_string_equal(p, HISTORY_SYSTEM_PATH);
	free(p);
	assert_int_equal(history_path("/x/y", 0, variables, &p, &e), 0);
	assert_string_equal(p, "/x/y");
	free(p);
	variables[0] = NULL;
	assert_true(history_path(NULL, 1000, variables, &p, &e) < 0);
}

static void test_prepare(void **state)
{
	struct err e = { .kind = ERR_NONE };
	char aside[192];
	struct stat st;

	(void)state;
	assert_int_equal(history_prepare(path, geteuid(), getegid(), &e), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	(void)snprintf(aside, sizeof(aside), "%s/state", folder);
	assert_int_equal(stat(aside, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	assert_int_equal(history_prepare(path, geteuid(), getegid(), &e), 0);
	/* a folder that was there before is not given away */
	assert_int_equal(chmod(aside, 0755), 0);
	assert_true(history_prepare(path, geteuid() + 1, getegid(), &e) < 0);
	assert_non_null(strstr(e.msg, "belongs to user"));
	assert_int_equal(stat(aside, &st), 0);
	assert_int_equal(st.st_uid, geteuid());
	/* nor is what another name leads to */
	assert_int_equal(unlink(path), 0);
	(void)snprintf(aside, sizeof(aside), "%s/aside", folder);
	assert_int_equal(symlink(aside, path), 0);
	assert_true(history_prepare(path, geteuid(), getegid(), &e) < 0);
	assert_int_equal(access(aside, F_OK), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_times),
		cmocka_unit_test(test_globs),
		cmocka_unit_test(test_paths),
		cmocka_unit_test_setup_teardown(test_prepare, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
