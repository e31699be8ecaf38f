/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/deliver.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

int deliver_open(const char *path, struct refusal *no)
{
	int fd = -1;

	if (mkdir(path, 0777) == 0 || errno == EEXIST)
		fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0) {
		int sys = errno;

		(void)refuse_file(no, "--output", path, sys);
		(void)snprintf(no->why.allowed, sizeof(no->why.allowed), "a folder that can be written");
		no->status = CLI_COULD_NOT;
		return -sys;
	}
	return fd;
}

/* Relative, and each component a name of its own: no "", ".", "..". */
static bool is_plain(const char *name)
{
	size_t len = strlen(name);

	if (len == 0 || len >= PATH_MAX)
		return false;
	for (const char *p = name; p; p = strchr(p, '/') ? strchr(p, '/') + 1 : NULL) {
		size_t n = strcspn(p, "/");

		if (n == 0 || n > NAME_MAX || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
			return false;
	}
	return true;
}

/*
 * Walk to the folder of @name, making what is missing; a link on the way is refused by O_NOFOLLOW.
 * Return: its descriptor, the caller closes it, with *@ret_leaf the last component; or -errno
 */
static int open_parent(int dir, const char *name, const char **ret_leaf)
{
	auto_fd int at = fcntl(dir, F_DUPFD_CLOEXEC, 3);
	const char *slash;

	if (at < 0)
		return -errno;
	while ((slash = strchr(name, '/'))) {
		char component[NAME_MAX + 1];
		int next;

		memcpy(component, name, (size_t)(slash - name));
		component[slash - name] = 0;
		if (mkdirat(at, component, 0777) < 0 && errno != EEXIST)
			return -errno;
		next = openat(at, component, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (next < 0)
			return -errno;
		fd_close(&at);
		at = next;
		name = slash + 1;
	}
	*ret_leaf = name;
	return take_fd(&at);
}

static int write_one(int dir, const struct artifact *a, bool is_forced)
{
	const char *leaf = a->name;
	auto_fd int parent = -1;
	auto_fd int fd = -1;
	int r;

	if (!is_plain(a->name))
		return -EINVAL;
	parent = open_parent(dir, a->name, &leaf);
	if (parent < 0)
		return parent;
	if (is_forced && unlinkat(parent, leaf, 0) < 0 && errno != ENOENT)
		return -errno;
	fd = openat(parent, leaf, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
	if (fd < 0)
		return -errno;
	r = fd_write_all(fd, a->body.data, a->body.len);
	if (r < 0)
		(void)unlinkat(parent, leaf, 0); /* half a file is worse than none */
	return r;
}

int deliver(const struct result *r, int dir, const char *path, bool is_forced, bool is_quiet)
{
	int first = 0;

	for (size_t i = 0; i < r->n_artifacts; i++) {
		const struct artifact *a = &r->artifacts[i];
		int rc;

		if (a->left_out) {
			if (!is_quiet)
				say("warning: artifact %.300s left out: %s", a->name, a->left_out);
			continue;
		}
		rc = write_one(dir, a, is_forced);
		if (rc == -EEXIST)
			say("%.300s/%.300s: is there already, not overwritten (--force would)", path, a->name);
		else if (rc == -EINVAL)
			say("artifact %.300s: not written: its name leads out of %.300s", a->name, path);
		else if (rc == -ENOTDIR || rc == -ELOOP)
			say("%.300s/%.300s: not written: a link or a file is where a folder should be", path, a->name);
		else if (rc < 0)
			say("%.300s/%.300s: %s", path, a->name, strerror(-rc));
		if (rc < 0 && first == 0)
			first = rc;
	}
	return first;
}
