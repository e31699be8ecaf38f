/* SPDX-License-Identifier: Apache-2.0 */
#include "collect_tree.h"

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
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "job/artifacts.h"
#include "sandbox/collect.h"
#include "sandbox/spec.h"

int tree_setup(void **state)
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

int tree_teardown(void **state)
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

void want(struct tree *t, const char *pattern)
{
	assert_int_equal(pack_add(&t->bundle, SANDBOX_ARTIFACT, NULL, pattern, strlen(pattern)), 0);
}

void folder(struct tree *t, const char *name)
{
	assert_int_equal(mkdirat(t->root, name, 0755), 0);
}

void file(struct tree *t, const char *name, const char *content)
{
	int fd = openat(t->root, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, content, strlen(content)), 0);
	assert_int_equal(close(fd), 0);
}

void sized_file(struct tree *t, const char *name, off_t size)
{
	file(t, name, "");
	{
		int fd = openat(t->root, name, O_WRONLY | O_CLOEXEC);

		assert_true(fd >= 0);
		assert_int_equal(ftruncate(fd, size), 0);
		assert_int_equal(close(fd), 0);
	}
}

int collect_as(struct tree *t, uid_t uid, unsigned descriptors, int out)
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

void collect_limited(struct tree *t, uid_t uid, unsigned descriptors)
{
	int fd = memfd_create("stream", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(collect_as(t, uid, descriptors, fd), 0);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	take_stream(t, fd);
	assert_int_equal(close(fd), 0);
}

void collect(struct tree *t)
{
	collect_limited(t, 0, 0);
}

const struct artifact *at(const struct tree *t, size_t i)
{
	assert_true(i < t->out.n_artifacts);
	return &t->out.artifacts[i];
}

void expect_file(const struct tree *t, size_t i, const char *name, const char *content)
{
	const struct artifact *a = at(t, i);

	assert_string_equal(a->name, name);
	assert_null(a->left_out);
	assert_int_equal(a->size, strlen(content));
	assert_int_equal(a->body.len, strlen(content));
	assert_memory_equal(a->body.data, content, strlen(content) + 1);
}

void expect_left_out(const struct tree *t, size_t i, const char *name, const char *reason)
{
	const struct artifact *a = at(t, i);

	assert_string_equal(a->name, name);
	assert_non_null(a->left_out);
	if (!strstr(a->left_out, reason))
		fail_msg("\"%s\" does not tell \"%s\"", a->left_out, reason);
	assert_null(a->body.data);
}
