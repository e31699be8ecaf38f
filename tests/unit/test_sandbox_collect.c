/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/pack.h"
#include "job/artifacts.h"
#include "sandbox/collect.h"
#include "sandbox/spec.h"

/* A folder as a script may leave it, what the run asked for, and what came out. */
struct tree {
	char path[64];
	int root;
	struct pack bundle;
	struct result out;
};

static int tree_setup(void **state)
{
	struct tree *t = calloc(1, sizeof(*t));

	assert_non_null(t);
	(void)snprintf(t->path, sizeof(t->path), "%s/cloche-test-XXXXXX",
		       access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	assert_non_null(mkdtemp(t->path));
	assert_int_equal(chmod(t->path, 0755), 0);
	t->root = open(t->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(t->root >= 0);
	*state = t;
	return 0;
}

static void forget_result(struct tree *t)
{
	for (size_t i = 0; i < t->out.n_artifacts; i++) {
		free(t->out.artifacts[i].name);
		free(t->out.artifacts[i].left_out);
		free(t->out.artifacts[i].body.data);
	}
	free(t->out.artifacts);
	t->out.artifacts = NULL;
	t->out.n_artifacts = 0;
}

static int tree_teardown(void **state)
{
	struct tree *t = *state;
	pid_t pid = fork();
	int status;

	if (pid == 0) { /* rm knows how to remove trees that are deeper than PATH_MAX */
		(void)execlp("rm", "rm", "-rf", "--", t->path, (char *)NULL);
		_exit(127);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	forget_result(t);
	(void)close(t->root);
	pack_done(&t->bundle);
	free(t);
	return 0;
}

static void want(struct tree *t, const char *pattern)
{
	assert_int_equal(pack_add(&t->bundle, SANDBOX_ARTIFACT, NULL, pattern, strlen(pattern)), 0);
}

static void folder(struct tree *t, const char *name)
{
	assert_int_equal(mkdirat(t->root, name, 0755), 0);
}

static void file(struct tree *t, const char *name, const char *content)
{
	int fd = openat(t->root, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, content, strlen(content)), 0);
	assert_int_equal(close(fd), 0);
}

static void sized_file(struct tree *t, const char *name, off_t size)
{
	file(t, name, "");
	{
		int fd = openat(t->root, name, O_WRONLY | O_CLOEXEC);

		assert_true(fd >= 0);
		assert_int_equal(ftruncate(fd, size), 0);
		assert_int_equal(close(fd), 0);
	}
}

/* In a process of its own, as it is used; @uid: to become first, 0: none; @descriptors: the limit, 0: none. */
static int collect_as(struct tree *t, uid_t uid, unsigned descriptors, int out)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		struct rlimit l = { descriptors, descriptors };
		int r;

		(void)signal(SIGPIPE, SIG_IGN);
		(void)alarm(30); /* whatever blocks is a failure */
		if (uid && setresuid(uid, uid, uid) < 0)
			_exit(250);
		if (descriptors && setrlimit(RLIMIT_NOFILE, &l) < 0)
			_exit(251);
		r = collect_artifacts(t->root, t->bundle.data, t->bundle.len, out);
		_exit(r < 0 ? -r : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void take_stream(struct tree *t, int fd)
{
	struct artifacts_reader reader;
	char buf[65536];
	ssize_t n;

	artifacts_init(&reader);
	while ((n = read(fd, buf, sizeof(buf))) > 0)
		assert_int_equal(artifacts_feed(&reader, buf, (size_t)n), 0);
	assert_int_equal(n, 0);
	forget_result(t);
	assert_int_equal(artifacts_take(&reader, &t->out), 0);
}

static void collect_limited(struct tree *t, uid_t uid, unsigned descriptors)
{
	int fd = memfd_create("stream", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(collect_as(t, uid, descriptors, fd), 0);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	take_stream(t, fd);
	assert_int_equal(close(fd), 0);
}

static void collect(struct tree *t)
{
	collect_limited(t, 0, 0);
}

static const struct artifact *at(const struct tree *t, size_t i)
{
	assert_true(i < t->out.n_artifacts);
	return &t->out.artifacts[i];
}

static void expect_file(const struct tree *t, size_t i, const char *name, const char *content)
{
	const struct artifact *a = at(t, i);

	assert_string_equal(a->name, name);
	assert_null(a->left_out);
	assert_int_equal(a->size, strlen(content));
	assert_int_equal(a->body.len, strlen(content));
	assert_memory_equal(a->body.data, content, strlen(content) + 1);
}

static void expect_left_out(const struct tree *t, size_t i, const char *name, const char *reason)
{
	const struct artifact *a = at(t, i);

	assert_string_equal(a->name, name);
	assert_non_null(a->left_out);
	if (!strstr(a->left_out, reason))
		fail_msg("\"%s\" does not tell \"%s\"", a->left_out, reason);
	assert_null(a->body.data);
}

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
		tree_test(test_sparse_file_is_not_read),
		tree_test(test_cap_of_all_together),
		tree_test(test_cap_of_count_and_of_notes),
		tree_test(test_inputs_only_when_changed),
		tree_test(test_depth),
		tree_test(test_deepest_that_is_taken),
		tree_test(test_long_paths),
		tree_test(test_odd_names),
		tree_test(test_number_of_entries_is_bounded),
		tree_test(test_unreadable),
		tree_test(test_patterns_that_name_nothing),
		tree_test(test_file_that_shrinks),
		tree_test(test_file_that_grows),
		tree_test(test_own_faults),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
