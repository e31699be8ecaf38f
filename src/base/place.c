/* SPDX-License-Identifier: Apache-2.0 */
#include "base/place.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

int place_beside(const char *name, char *ret, size_t size)
{
	ssize_t n = readlink("/proc/self/exe", ret, size - 1);
	size_t len = strlen(name) + 1;
	char *slash;

	if (n < 0)
		return -errno;
	ret[n] = '\0';
	slash = strrchr(ret, '/');
	if (!slash || (size_t)(slash + 1 - ret) + len > size)
		return -ENAMETOOLONG;
	memcpy(slash + 1, name, len);
	return access(ret, F_OK) < 0 ? -errno : 0;
}

const char *place_variable(char *const *variables, const char *name)
{
	size_t len = strlen(name);

	for (; variables && *variables; variables++) {
		if (strncmp(*variables, name, len) == 0 && (*variables)[len] == '=')
			return *variables + len + 1;
	}
	return NULL;
}

int place_clear(const struct sockaddr_un *at, int type, struct err *e)
{
	const char *path = at->sun_path;
	auto_fd int fd = -1;
	struct stat st;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0 : err_set(e, ERR_INVALID, errno, "%s", path);
	if (!S_ISSOCK(st.st_mode))
		return err_set(e, ERR_INVALID, 0, "%s: is there, and no socket", path);
	fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_set(e, ERR_HOST, errno, "make a socket");
	if (connect(fd, (const struct sockaddr *)at, sizeof(*at)) == 0 || errno != ECONNREFUSED)
		return err_set(e, ERR_HOST, 0, "%s: somebody answers there", path);
	return unlink(path) < 0 ? err_set(e, ERR_HOST, errno, "%s", path) : 0;
}
