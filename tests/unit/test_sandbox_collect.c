/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "collect_tree.h"
#include "job/artifacts.h"
#include "sandbox/collect.h"
#include "sandbox/spec.h"

static void test_named_files_come_sorted(void **state)
{
	struct tree *t = *state;

	folder(t, "b");
	folder(t, "b/.hidden");
	folder(t, "other");
	file(t, "b.txt", "3");
	file(t, "b/c.txt", "4");
	file(t, "b-a.txt", "2");
	file(t, "a.txt", "1");
	file(t, "z.txt", "");
	file(t, "a.png", "no");
	file(t, ".dot.txt", "no");
	file(t, "b/.hidden/x.txt", "no");
	want(t, "**/*.txt");
	collect(t);
	assert_int_equal(t->out.n_artifacts, 5);
	expect_file(t, 0, "a.txt", "1");
	expect_file(t, 1, "b-a.txt", "2");
	expect_file(t, 2, "b.txt", "3");
	expect_file(t, 3, "b/c.txt", "4");
	expect_file(t, 4, "z.txt", "");
	want(t, ".dot*");
	want(t, "*/.hidden/*");
	want(t, "a.txt"); /* named twice, sent once */
	collect(t);
	assert_int_equal(t->out.n_artifacts, 7);
	expect_file(t, 0, ".dot.txt", "no");
	expect_file(t, 4, "b/.hidden/x.txt", "no");
}

static void test_nothing_asked(void **state)
{
	struct tree *t = *state;

	file(t, "a", "1");
	collect(t);
	assert_int_equal(t->out.n_artifacts, 0);
	want(t, "b*");
	collect(t);
	assert_int_equal(t->out.n_artifacts, 0);
}

static void test_only_regular_files(void **state)
{
	struct tree *t = *state;
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	folder(t, "real");
	file(t, "real/f", "content");
	assert_int_equal(symlinkat("/etc/passwd", t->root, "link"), 0);
	assert_int_equal(symlinkat("real/f", t->root, "link2"), 0);
	assert_int_equal(symlinkat("real", t->root, "folder-link"), 0);
	assert_int_equal(symlinkat(".", t->root, "loop"), 0);
	assert_int_equal(symlinkat("..", t->root, "up"), 0);
	assert_int_equal(mkfifoat(t->root, "fifo", 0644), 0);
	(void)snprintf(sun.sun_path, sizeof(sun.sun_path), "%s/socket", t->path);
	assert_int_equal(bind(sock, (struct sockaddr *)&sun, sizeof(sun)), 0);
	if (geteuid() == 0)
		(void)mknodat(t->root, "zero", S_IFCHR | 0666, 1 << 8 | 5);
	want(t, "**");
	want(t, "link/x");
	want(t, "folder-link/f");
	want(t, "loop/loop/real/f");
	want(t, "fifo");
	collect(t);
	(void)close(sock);
	assert_int_equal(t->out.n_artifacts, 1);
	expect_file(t, 0, "real/f", "content");
}

static void test_inputs_only_when_changed(void **state)
{
	struct tree *t = *state;
	char *big = calloc(1, 200000);

	assert_non_null(big);
	assert_int_equal(pack_add(&t->bundle, SANDBOX_FILE, "same", "abc", 3), 0);
	assert_int_equal(pack_add(&t->bundle, SANDBOX_FILE, "empty", "", 0), 0);
	assert_int_equal(pack_add(&t->bundle, SANDBOX_FILE, "d/.//same", "abc", 3), 0);
	assert_int_equal(pack_add(&t->bundle, SANDBOX_FILE, "longer", "abc", 3), 0);
	assert_int_equal(pack_add(&t->bundle, SANDBOX_FILE, "other", "abc", 3), 0);
	assert_int_equal(pack_add(&t->bundle, SANDBOX_FILE, "big", big, 200000), 0);
	free(big);
	folder(t, "d");
	file(t, "same", "abc");
	file(t, "empty", "");
	file(t, "d/same", "abc");
	file(t, "longer", "abcd");
	file(t, "other", "abd");
	file(t, "new", "abc");
	sized_file(t, "big", 200000);
	assert_int_equal(linkat(t->root, "same", t->root, "alias", 0), 0);
	want(t, "**");
	collect(t);
	assert_int_equal(t->out.n_artifacts, 4);
	expect_file(t, 0, "alias", "abc");
	expect_file(t, 1, "longer", "abcd");
	expect_file(t, 2, "new", "abc");
	expect_file(t, 3, "other", "abd");
}

static void test_odd_names(void **state)
{
	struct tree *t = *state;
	char longest[256];

	memset(longest, 'x', 255);
	longest[255] = '\0';
	file(t, "a\nb", "1");
	file(t, "\xff\xfe", "4");
	file(t, " ", "0");
	file(t, "\x1b[31m", "0");
	file(t, longest, "3");
	want(t, "*");
	collect(t);
	assert_int_equal(t->out.n_artifacts, 5);
	expect_file(t, 0, "\x1b[31m", "0");
	expect_file(t, 1, " ", "0");
	expect_file(t, 2, "a\nb", "1");
	expect_file(t, 3, longest, "3");
	expect_file(t, 4, "\xff\xfe", "4");
}

static void test_unreadable(void **state)
{
	struct tree *t = *state;

	folder(t, "closed");
	file(t, "closed/f", "1");
	file(t, "secret", "1");
	file(t, "z", "1");
	assert_int_equal(fchmodat(t->root, "closed", 0, 0), 0);
	assert_int_equal(fchmodat(t->root, "secret", 0, 0), 0);
	want(t, "**");
	collect_limited(t, geteuid() == 0 ? 65534 : 0, 0);
	assert_int_equal(fchmodat(t->root, "closed", 0700, 0), 0);
	assert_int_equal(t->out.n_artifacts, 3);
	expect_left_out(t, 0, "closed", "can't be opened: Permission denied");
	expect_left_out(t, 1, "secret", "can't be opened: Permission denied");
	expect_file(t, 2, "z", "1");
}

static void test_patterns_that_name_nothing(void **state)
{
	struct tree *t = *state;
	char deep[2 * 70];

	for (size_t i = 0; i < sizeof(deep); i++)
		deep[i] = i % 2 ? '/' : 'a';
	deep[sizeof(deep) - 1] = '\0';
	file(t, "a", "1");
	want(t, "../a");
	want(t, "/a");
	want(t, deep);
	want(t, "a");
	collect(t);
	assert_int_equal(t->out.n_artifacts, 4);
	expect_left_out(t, 0, "../a", "names no file");
	expect_left_out(t, 1, "/a", "names no file");
	expect_left_out(t, 2, deep, "more than 62 parts");
	expect_file(t, 3, "a", "1");
}

/* The stream is a full pipe while the file changes: what was promised is kept to, then declared void. */
static void change_while_read(struct tree *t, off_t size)
{
	struct artifacts_reader reader;
	static char buf[65536];
	int fds[2];
	int fd;
	int status;
	ssize_t n;
	pid_t pid;

	sized_file(t, "f", 4 << 20);
	file(t, "g", "1");
	want(t, "*");
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		(void)alarm(30);
		(void)close(fds[0]);
		_exit(collect_artifacts(t->root, t->bundle.data, t->bundle.len, fds[1]) < 0);
	}
	(void)close(fds[1]);
	artifacts_init(&reader);
	n = read(fds[0], buf, 100);
	assert_true(n > 0);
	assert_int_equal(artifacts_feed(&reader, buf, (size_t)n), 0);
	fd = openat(t->root, "f", O_WRONLY | O_CLOEXEC);
	assert_int_equal(ftruncate(fd, size), 0);
	(void)close(fd);
	while ((n = read(fds[0], buf, sizeof(buf))) > 0)
		assert_int_equal(artifacts_feed(&reader, buf, (size_t)n), 0);
	(void)close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(artifacts_take(&reader, &t->out), 0);
	assert_int_equal(t->out.n_artifacts, 2);
	expect_file(t, 1, "g", "1");
}

static void test_file_that_shrinks(void **state)
{
	struct tree *t = *state;

	change_while_read(t, 100);
	expect_left_out(t, 0, "f", "shorter while it was read");
}

static void test_file_that_grows(void **state)
{
	struct tree *t = *state;

	change_while_read(t, 5 << 20);
	expect_left_out(t, 0, "f", "changed while it was read");
}

static void test_own_faults(void **state)
{
	struct tree *t = *state;
	int fds[2];

	file(t, "a", "1");
	want(t, "a");
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	(void)close(fds[0]);
	assert_int_equal(collect_as(t, 0, 0, fds[1]), EPIPE);
	(void)close(fds[1]);
	assert_int_equal(collect_artifacts(t->root, "no pack at all", 14, -1), -EBADMSG);
}

#define tree_test(f) cmocka_unit_test_setup_teardown(f, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		tree_test(test_named_files_come_sorted),
		tree_test(test_nothing_asked),
		tree_test(test_only_regular_files),
		tree_test(test_inputs_only_when_changed),
		tree_test(test_odd_names),
		tree_test(test_unreadable),
		tree_test(test_patterns_that_name_nothing),
		tree_test(test_file_that_shrinks),
		tree_test(test_file_that_grows),
		tree_test(test_own_faults),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
