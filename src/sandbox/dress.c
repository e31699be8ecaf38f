/* SPDX-License-Identifier: Apache-2.0 */
/* What a locked-down child does with its bundle: write the run's files, execute the interpreter. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/pack.h"
#include "sandbox/inside.h"
#include "sandbox/sys.h"

/* Folders on the way to a file; names were checked when the job was (relative, no ".."). */
static int make_folders(const char *name)
{
	char part[4096];

	for (size_t i = 0; name[i]; i++) {
		if (name[i] != '/' || i == 0)
			continue;
		if (i >= sizeof(part))
			return -ENAMETOOLONG;
		memcpy(part, name, i);
		part[i] = '\0';
		if (mkdir(part, 0755) < 0 && errno != EEXIST)
			return -errno;
	}
	return 0;
}

int inside_write_files(const char *bundle, size_t len)
{
	struct pack_record rec;
	size_t offset = 0;
	int r;

	while ((r = pack_next(bundle, len, &offset, &rec)) > 0) {
		auto_fd int fd = -1;

		if (rec.kind != SANDBOX_FILE)
			continue;
		r = make_folders(rec.name);
		if (r < 0)
			return r;
		fd = open(rec.name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
		if (fd < 0)
			return -errno;
		r = fd_write_all(fd, rec.data, rec.len);
		if (r < 0)
			return r;
	}
	return r;
}

/* A NULL-terminated array of the bundle's strings of one kind; they stay where they are. */
static char **strings(const char *bundle, size_t len, uint32_t kind)
{
	struct pack_record rec;
	size_t offset = 0;
	size_t n = 0;
	char **list;

	while (pack_next(bundle, len, &offset, &rec) > 0)
		n += rec.kind == kind;
	list = calloc(n + 1, sizeof(*list));
	if (!list)
		return NULL;
	offset = 0;
	n = 0;
	while (pack_next(bundle, len, &offset, &rec) > 0) {
		if (rec.kind == kind)
			list[n++] = (char *)(uintptr_t)rec.data; /* execve does not write them */
	}
	return list;
}

int inside_exec(const char *bundle, size_t len)
{
	auto_free char **path = strings(bundle, len, SANDBOX_EXEC);
	auto_free char **argv = strings(bundle, len, SANDBOX_ARG);
	auto_free char **envp = strings(bundle, len, SANDBOX_ENV);

	if (!path || !argv || !envp)
		return -ENOMEM;
	if (!path[0] || !argv[0])
		return -EBADMSG;
	(void)execve(path[0], argv, envp);
	return -errno;
}
