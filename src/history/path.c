/* SPDX-License-Identifier: Apache-2.0 */
/* Where the history is, and whose. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/place.h"
#include "history/history.h"
#include "history/store.h"

int history_path(const char *configured, uid_t uid, char *const *variables, char **ret, struct err *e)
{
	const char *state = place_variable(variables, "XDG_STATE_HOME");
	const char *home = place_variable(variables, "HOME");
	char *path;
	int n;

	if (configured)
		n = asprintf(&path, "%s", configured);
	else if (uid == 0)
		n = asprintf(&path, "%s", HISTORY_SYSTEM_PATH);
	else if (state && state[0] == '/')
		n = asprintf(&path, "%s/cloche/history.db", state);
	else if (home && home[0] == '/')
		n = asprintf(&path, "%s/.local/state/cloche/history.db", home);
	else
		return err_set(e, ERR_NOT_FOUND, 0,
			       "history: neither HOME nor XDG_STATE_HOME says where; set history.path");
	if (n < 0)
		return err_set(e, ERR_HOST, ENOMEM, "history");
	*ret = path;
	return 0;
}

/* Every folder above @path that is missing, 0700.  Return: 1 the last one was; 0 it was not; -errno */
static int make_folders(const char *path)
{
	char folder[PATH_MAX];
	size_t len = strlen(path);
	int made = 0;

	if (len >= sizeof(folder))
		return -ENAMETOOLONG;
	memcpy(folder, path, len + 1);
	for (char *slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		made = mkdir(folder, 0700) == 0;
		if (!made && errno != EEXIST && access(folder, X_OK) < 0)
			return -errno;
		*slash = '/';
	}
	return made;
}

/* Opened, it must be a plain file with one name and of nobody but root, ourselves or @uid. */
static int check_file(int fd, const char *path, uid_t uid, struct err *e)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_set(e, ERR_HOST, errno, "%s", path);
	if (!S_ISREG(st.st_mode) || st.st_nlink != 1)
		return err_set(e, ERR_INVALID, 0, "%s is no plain file with one name: move it away", path);
	if (st.st_uid != 0 && st.st_uid != geteuid() && st.st_uid != uid)
		return err_set(e, ERR_ACCESS, 0, "%s belongs to another user (%u): move it away", path, st.st_uid);
	return 0;
}

int path_make(const char *path, struct err *e)
{
	auto_fd int fd = -1;
	int r;

	if (path[0] != '/')
		return err_set(e, ERR_INVALID, 0, "%s: the history's path must be absolute", path);
	r = make_folders(path);
	if (r < 0)
		return err_set(e, r == -EACCES || r == -EPERM ? ERR_ACCESS : ERR_HOST, -r, "make the folder of %s",
			       path);
	fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
	if (fd < 0)
		return err_set(e, errno == EACCES || errno == ELOOP ? ERR_ACCESS : ERR_HOST, errno, "open %s", path);
	r = check_file(fd, path, geteuid(), e);
	if (r < 0)
		return r;
	/* whoever made it: it holds other people's words */
	if (fchmod(fd, 0600) < 0 && errno != EPERM)
		return err_set(e, ERR_HOST, errno, "chmod %s", path);
	return 0;
}

/* give() - one of the database's files, if it is there; @folder is its folder */
static int give(int folder, const char *name, uid_t uid, gid_t gid, bool make, struct err *e)
{
	auto_fd int fd =
		openat(folder, name, O_RDWR | (make ? O_CREAT : 0) | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
	int r;

	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd < 0)
		return err_set(e, ERR_HOST, errno, "open %s", name);
	r = check_file(fd, name, uid, e);
	if (r < 0)
		return r;
	if (fchmod(fd, 0600) < 0 || fchown(fd, uid, gid) < 0)
		return err_set(e, ERR_HOST, errno, "give %s to user %u", name, uid);
	return 0;
}

/* SQLite makes its other files beside it, so the folder must be the writer's; one that is not ours is not given away.
 */
static int give_folder(int folder, const char *path, bool is_ours, uid_t uid, gid_t gid, struct err *e)
{
	struct stat st;

	if (fstat(folder, &st) < 0)
		return err_set(e, ERR_HOST, errno, "look at %s", path);
	if (st.st_uid == uid)
		return 0;
	if (!is_ours)
		return err_set(e, ERR_INVALID, 0,
			       "%s belongs to user %u: give the history a folder that belongs to user %u", path,
			       st.st_uid, uid);
	if (fchmod(folder, 0700) < 0 || fchown(folder, uid, gid) < 0)
		return err_set(e, ERR_HOST, errno, "give %s to user %u", path, uid);
	return 0;
}

int history_prepare(const char *path, uid_t uid, gid_t gid, struct err *e)
{
	static const char *const suffixes[] = { "", "-wal", "-shm" };
	auto_free char *copy = strdup(path);
	auto_fd int folder = -1;
	char *slash = copy ? strrchr(copy, '/') : NULL;
	int made;
	int r;

	if (!copy)
		return err_set(e, ERR_HOST, ENOMEM, "history");
	if (path[0] != '/' || !slash || slash == copy || !slash[1])
		return err_set(e, ERR_INVALID, 0, "%s: the history's path must be absolute, and in a folder", path);
	made = make_folders(path);
	if (made < 0)
		return err_set(e, ERR_HOST, -made, "make the folder of %s", path);
	*slash = '\0';
	folder = open(copy, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (folder < 0)
		return err_set(e, ERR_HOST, errno, "open %s", copy);
	r = give_folder(folder, copy, made || strcmp(path, HISTORY_SYSTEM_PATH) == 0, uid, gid, e);
	for (size_t i = 0; i < ARRAY_LEN(suffixes) && r == 0; i++) {
		char name[NAME_MAX + 1];

		(void)snprintf(name, sizeof(name), "%.240s%s", slash + 1, suffixes[i]);
		r = give(folder, name, uid, gid, i == 0, e);
	}
	return r;
}
