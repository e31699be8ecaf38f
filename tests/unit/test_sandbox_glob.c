/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/macro.h"
#include "sandbox/glob.h"

static bool matches(const char *pattern, const char *path)
{
	struct glob g;
	uint64_t state;

	assert_int_equal(glob_compile(pattern, strlen(pattern), &g), 0);
	state = glob_start(&g);
	for (const char *p = path; *p;) {
		size_t len = strcspn(p, "/");

		state = glob_step(&g, state, p, len);
		p += len + (p[len] == '/');
	}
	return glob_is_match(&g, state);
}

struct sample {
	const char *pattern;
	const char *path;
	bool is_match;
};

static const struct sample samples[] = {
	{ "a.txt", "a.txt", true },
	{ "a.txt", "b/a.txt", false },
	{ "./a//b/./c", "a/b/c", true },
	{ "*.txt", "a.txt", true },
	{ "*.txt", ".txt", false },
	{ "*.txt", "a.txt.bak", false },
	{ "*.txt", "d/a.txt", false },
	{ "*", "a", true },
	{ "*", ".a", false },
	{ "?a", ".a", false },
	{ "[.]a", ".a", false },
	{ ".*", ".a", true },
	{ ".a", ".a", true },
	{ "d/*/x", "d/e/x", true },
	{ "d/*/x", "d/.e/x", false },
	{ "d/.e/x", "d/.e/x", true },
	{ "**", "a", true },
	{ "**", "a/b/c", true },
	{ "**", ".a", false },
	{ "**", "a/.b/c", false },
	{ "**/.b/*", "a/.b/c", true },
	{ "**/.b/*", ".b/c", true },
	{ "**/.b/*", "x/y/z/.b/c", true },
	{ "**/.b/**", "x/.b/c/d", true },
	{ "**/*.py", "a.py", true },
	{ "**/*.py", "a/b/c.py", true },
	{ "**/**/*.py", "c.py", true },
	{ "a/**", "a/b", true },
	{ "a/**", "a/b/c/d", true },
	{ "a/**", "a", false },
	{ "a/**/b", "a/b", true },
	{ "a/**/b", "a/x/y/b", true },
	{ "a/**/b", "a/x/y/c", false },
	{ "a/**/m/**/z", "a/q/m/r/m/z", true },
	{ "a**b", "aXXb", true },
	{ "a**b", "a/b", false },
	{ "[abc]", "b", true },
	{ "[abc]", "d", false },
	{ "[a-c]x", "bx", true },
	{ "[!a-c]x", "bx", false },
	{ "[^a-c]x", "dx", true },
	{ "[]]", "]", true },
	{ "[!]]", "]", false },
	{ "[!]]", "a", true },
	{ "[a-]", "-", true },
	{ "[c-a]", "b", false },
	{ "[", "[", true },
	{ "[a", "[a", true },
	{ "[a", "a", false },
	{ "[*]", "*", true },
	{ "[*]", "a", false },
	{ "\\*", "\\abc", true },
	{ "\\a", "a", false },
	{ "?", "\xc3\xa9", true },
	{ "??", "\xc3\xa9", false },
	{ "?", "\xff", true },
	{ "??", "\xc3", false },
	{ "???", "\xe2\x82\xff", true },
	{ "[\xc3\xa0-\xc3\xbf]", "\xc3\xa9", true },
	{ "[\xc3\xa0-\xc3\xbf]", "\xc3\x80", false },
	{ "[\xff]", "\xff", true },
	{ "\xff", "\xff", true },
	{ "*\xa9", "\xc3\xa9", false },
	{ "a*b*c", "aXbXbXc", true },
	{ "a*b*c", "aXbXbX", false },
	{ "*a", "aaaaaaa", true },
	{ "a b\n", "a b\n", true },
};

static void test_samples(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(samples); i++) {
		if (matches(samples[i].pattern, samples[i].path) != samples[i].is_match)
			fail_msg("\"%s\" against \"%s\": expected %d", samples[i].pattern, samples[i].path,
				 samples[i].is_match);
	}
}

static void test_refused(void **state)
{
	static const char *const bad[] = { "", "/", "/tmp/a", "..", "../a", "a/../b", "a/..", "a/", ".", "./.", "**/" };
	struct glob g = { .n = 77 };
	char deep[2 * (GLOB_PARTS + 1) + 1];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(glob_compile(bad[i], strlen(bad[i]), &g), -EINVAL);
	for (size_t i = 0; i < GLOB_PARTS + 1; i++)
		memcpy(deep + 2 * i, "a/", 2);
	assert_int_equal(glob_compile(deep, sizeof(deep) - 2, &g), -E2BIG);
	assert_int_equal(g.n, 77); /* untouched on failure */
	assert_int_equal(glob_compile(deep, sizeof(deep) - 4, &g), 0);
	assert_int_equal(g.n, GLOB_PARTS);
}

static void test_folders_entered_in_vain(void **state)
{
	struct glob g;

	(void)state;
	assert_int_equal(glob_compile("out/*.png", 9, &g), 0);
	assert_true(glob_goes_on(&g, glob_step(&g, glob_start(&g), "out", 3)));
	assert_false(glob_goes_on(&g, glob_step(&g, glob_start(&g), "lib", 3)));
	assert_false(glob_is_match(&g, glob_step(&g, glob_start(&g), "out", 3)));
	assert_int_equal(glob_compile("*", 1, &g), 0);
	assert_false(glob_goes_on(&g, glob_step(&g, glob_start(&g), "d", 1)));
	assert_int_equal(glob_compile("**", 2, &g), 0);
	assert_true(glob_goes_on(&g, glob_step(&g, glob_start(&g), "d", 1)));
	assert_false(glob_goes_on(&g, glob_step(&g, glob_start(&g), ".d", 2)));
}

/* What makes a backtracking matcher take for ever. */
static void test_worst_case(void **state)
{
	char pattern[2 * 120 + 2];
	char name[256];
	char deep[5 * 30 + 2] = "";
	char path[2 * 64] = "";
	struct timespec before;
	struct timespec after;

	(void)state;
	for (size_t i = 0; i < 120; i++)
		memcpy(pattern + 2 * i, "*a", 2);
	memcpy(pattern + 240, "b", 2);
	memset(name, 'a', 255);
	name[255] = '\0';
	for (size_t i = 0; i < 30; i++)
		memcpy(deep + 5 * i, "**/a/", 5);
	memcpy(deep + 150, "b", 2);
	for (size_t i = 0; i < 63; i++)
		memcpy(path + 2 * i, "a/", 3);
	memcpy(path + 126, "c", 2);
	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
	assert_false(matches(pattern, name));
	assert_false(matches(deep, path));
	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
	assert_true(after.tv_sec - before.tv_sec < 2);
	path[126] = 'b';
	assert_true(matches(deep, path));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_samples),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_folders_entered_in_vain),
		cmocka_unit_test(test_worst_case),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
