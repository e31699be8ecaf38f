/* SPDX-License-Identifier: Apache-2.0 */
/* Whether what a zygote was made of is still what is on disk. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fd.h"
#include "run/zygote.h"

static uint64_t ns_of(const struct timespec *t)
{
	return (uint64_t)t->tv_sec * NS_PER_SEC + (uint64_t)t->tv_nsec;
}

/* Links, absolute ones too, are those of the zygote's files: ours depend on the environment that we were in last. */
static int look_at(int root, const char *path, struct stat *ret)
{
	auto_fd int fd = outside_open(root, path);

	return fd < 0 ? fd : fstat(fd, ret);
}

struct zygote_sources zygote_sources(const struct outside *o, const struct zygote *z, const char *python)
{
	struct zygote_sources all = { .sum = 0 };
	const char *at = z->paths;
	char path[32];
	auto_fd int root = -1;
	struct timespec now;
	struct stat st;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	(void)snprintf(path, sizeof(path), "%d/root", (int)z->pid);
	root = openat(o->proc, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	for (const char *name = python; root >= 0 && name; name = at < z->paths + z->paths_len ? at : NULL) {
		if (name == at)
			at += strlen(at) + 1;
		all.sum *= 31;
		if (look_at(root, name, &st) < 0)
			continue;
		all.sum += ns_of(&st.st_mtim) + st.st_ino;
		if (ns_of(&st.st_ctim) > all.newest_ns && ns_of(&st.st_ctim) <= ns_of(&now))
			all.newest_ns = ns_of(&st.st_ctim);
	}
	return all;
}
