/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "collect_tree.h"
#include "sandbox/collect.h"

static void test_sparse_file_is_not_read(void **state)
{
	struct tree *t = *state;
	int fd;

	file(t, "huge", "");
	fd = openat(t->root, "huge", O_WRONLY | O_CLOEXEC);
	if (ftruncate(fd, (off_t)1 << 50) < 0) /* where the file system takes it */
		assert_int_equal(ftruncate(fd, (off_t)1 << 40), 0);
	(void)close(fd);
	sized_file(t, "over", (off_t)COLLECT_FILE_BYTES + 1);
	sized_file(t, "under", (off_t)COLLECT_FILE_BYTES);
	want(t, "*");
	collect(t);
	assert_int_equal(t->out.n_artifacts, 3);
	expect_left_out(t, 0, "huge", "more than the 8388608");
	assert_true(at(t, 0)->size >= UINT64_C(1) << 40);
	expect_left_out(t, 1, "over", "8388609 bytes");
	assert_int_equal(at(t, 2)->body.len, COLLECT_FILE_BYTES);
}

static void test_cap_of_all_together(void **state)
{
	struct tree *t = *state;
	char name[16];

	for (int i = 0; i < 5; i++) {
		(void)snprintf(name, sizeof(name), "f%d", i);
		sized_file(t, name, 7 << 20);
	}
	file(t, "g", "small");
	want(t, "*");
	collect(t);
	assert_int_equal(t->out.n_artifacts, 6);
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(at(t, i)->body.len, 7 << 20);
	expect_left_out(t, 4, "f4", "33554432");
	assert_int_equal(at(t, 4)->size, 7 << 20);
	expect_file(t, 5, "g", "small");
}

static void test_cap_of_count_and_of_notes(void **state)
{
	struct tree *t = *state;
	char name[16];

	for (int i = 0; i < COLLECT_FILES + COLLECT_NOTES + 10; i++) {
		(void)snprintf(name, sizeof(name), "f%03d", i);
		file(t, name, name);
	}
	want(t, "*");
	collect(t);
	assert_int_equal(t->out.n_artifacts, COLLECT_FILES + COLLECT_NOTES);
	expect_file(t, 0, "f000", "f000");
	expect_file(t, COLLECT_FILES - 1, "f063", "f063");
	expect_left_out(t, COLLECT_FILES, "f064", "64 files");
	expect_left_out(t, COLLECT_FILES + COLLECT_NOTES - 2, "f190", "64 files");
	expect_left_out(t, COLLECT_FILES + COLLECT_NOTES - 1, ".", "11 more");
}

/* @n folders, each in the one before, and a file f in the last and in the one before it. */
static void deep_folders(struct tree *t, const char *name, int n)
{
	int fd = dup(t->root);

	for (int i = 0; i < n; i++) {
		int next;

		if (i == n - 1) {
			int f = openat(fd, "f", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

			assert_true(f >= 0);
			(void)close(f);
		}
		assert_int_equal(mkdirat(fd, name, 0755), 0);
		next = openat(fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(next >= 0);
		(void)close(fd);
		fd = next;
	}
	{
		int f = openat(fd, "f", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

		assert_true(f >= 0);
		(void)close(f);
	}
	(void)close(fd);
}

static void test_depth(void **state)
{
	struct tree *t = *state;
	char expected[2 * (COLLECT_DEPTH + 1) + 1];

	file(t, "z", "after");
	deep_folders(t, "d", 1000);
	want(t, "**");
	/* Three standard ones, the root, the stream, and three to work with. */
	collect_limited(t, 0, (unsigned)t->root + 5);
	assert_int_equal(t->out.n_artifacts, 2);
	for (size_t i = 0; i < COLLECT_DEPTH + 1; i++)
		memcpy(expected + 2 * i, "d/", 2);
	expected[2 * (COLLECT_DEPTH + 1) - 1] = '\0';
	expect_left_out(t, 0, expected, "64 folders deep");
	expect_file(t, 1, "z", "after");
}

static void test_deepest_that_is_taken(void **state)
{
	struct tree *t = *state;

	deep_folders(t, "d", COLLECT_DEPTH);
	file(t, "d/z", "on the way up");
	want(t, "**");
	collect_limited(t, 0, (unsigned)t->root + 5);
	assert_int_equal(t->out.n_artifacts, 3);
	assert_int_equal(strlen(at(t, 0)->name), 2 * COLLECT_DEPTH + 1);
	assert_int_equal(strlen(at(t, 1)->name), 2 * COLLECT_DEPTH - 1);
	expect_file(t, 2, "d/z", "on the way up");
}

static void test_long_paths(void **state)
{
	struct tree *t = *state;
	char name[256];

	memset(name, 'n', 255);
	name[255] = '\0';
	deep_folders(t, name, 20);
	file(t, "o", "1");
	want(t, "**");
	collect(t);
	assert_int_equal(t->out.n_artifacts, 2);
	assert_int_equal(strlen(at(t, 0)->name), 16 * 256 - 1);
	assert_non_null(strstr(at(t, 0)->left_out, "longer than 4096"));
	expect_file(t, 1, "o", "1");
}

static void test_number_of_entries_is_bounded(void **state)
{
	struct tree *t = *state;
	char name[24];
	size_t notes = 0;

	folder(t, "many");
	folder(t, "next");
	file(t, "next/x.txt", "not looked at");
	file(t, "a.txt", "1");
	for (int i = 0; i < COLLECT_LOOKED; i++) {
		(void)snprintf(name, sizeof(name), "many/%d", i);
		assert_int_equal(mknodat(t->root, name, S_IFREG | 0644, 0), 0);
	}
	want(t, "**/*.txt");
	collect(t);
	expect_file(t, 0, "a.txt", "1");
	for (size_t i = 1; i < t->out.n_artifacts; i++) {
		expect_left_out(t, i, "many", "20000 entries");
		notes++;
	}
	assert_int_equal(notes, 1);
}

#define tree_test(f) cmocka_unit_test_setup_teardown(f, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		tree_test(test_sparse_file_is_not_read),      tree_test(test_cap_of_all_together),
		tree_test(test_cap_of_count_and_of_notes),    tree_test(test_depth),
		tree_test(test_deepest_that_is_taken),        tree_test(test_long_paths),
		tree_test(test_number_of_entries_is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
