/* SPDX-License-Identifier: Apache-2.0 */
/* The home's files: for each environment a root of its own, in a mount namespace that its sandboxes copy. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "sandbox/landlock.h"
#include "sandbox/outside.h"
#include "sandbox/root.h"

static struct root_plan plans[HOME_ENVS_MAX]; /* from capture to build, in one process */

int outside_capture(int env, const char *const *paths, size_t n_paths, struct err *e)
{
	root_plan_init(&plans[env]);
	return root_capture(&plans[env], paths, n_paths, e);
}

void outside_cover(int env, const char *path, const char *text, size_t len)
{
	root_cover(&plans[env], &(struct root_cover){ .path = path, .text = text, .len = len });
}

/* What the kernel has, learned once for all sandboxes. */
static void learn(struct home *home)
{
	struct stat st;
	char quota[32];

	home->has_landlock = landlock_abi() >= 2;
	home->ipc_ino = stat("/proc/self/ns/ipc", &st) == 0 ? st.st_ino : 0;
	/* not tried here: the supervisor itself must go on seeing its groups */
	home->has_cgroup_ns = access("/proc/self/ns/cgroup", F_OK) == 0 &&
			      !(fd_read_at(AT_FDCWD, "/proc/sys/user/max_cgroup_namespaces", quota, sizeof(quota)) > 0 &&
				strcmp(quota, "0\n") == 0);
}

/* One mount namespace per environment; one alone is the namespace that the supervisor itself is in. */
int outside_build(struct home *home, struct err *e)
{
	auto_fd int pristine = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	bool is_alone = home->n_envs == 1;
	bool has_proc = true;
	int r;

	for (int i = 0; i < home->n_envs; i++) {
		if (!is_alone && (setns(pristine, CLONE_NEWNS) < 0 || unshare(CLONE_NEWNS) < 0))
			return err_set(e, ERR_HOST, errno, "make a mount namespace for each environment");
		r = root_build(&plans[i], &has_proc, e);
		root_plan_done(&plans[i]);
		if (r < 0)
			return r;
		home->mnt[i] = is_alone ? -1 : open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
		if (!is_alone && (home->mnt[i] < 0 || fd_cloexec(home->mnt[i], false) < 0)) /* it is to survive the exec */
			return err_set(e, ERR_HOST, errno, "keep a mount namespace");
	}
	home->has_proc = has_proc;
	learn(home);
	return 0;
}
