/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is in the way of a wall on this host, and the setting that helps, by name.
 *
 * Theory of operation.  The errno tells a limit (ENOSPC) from a refusal.  Who refuses is found by looking: a system
 * call filter answers even calls whose arguments are wrong, where the kernel itself would complain of those; sysctls
 * and an AppArmor profile are read.  Landlock and a chroot can't be seen from inside: they are what is left when a
 * mount, or a user namespace, is refused all the same.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>

#include "base/fd.h"
#include "sandbox/probe.h"
#include "sandbox/sys.h"

#define CONTAINER                                                                                                      \
	"Docker: --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt "                 \
	"systempaths=unconfined; "                                                                                     \
	"podman: the same with unmask=ALL in place of the last; "                                                      \
	"Kubernetes: seccompProfile, appArmorProfile: Unconfined, procMount: Unmasked, hostUsers: false"
#define COUNT(name)                                                                                                    \
	"user.max_" name "_namespaces is 0 or used up, here or in a user namespace around us: raise it with sysctl"

static const char filter_remedy[] = "a system call filter refuses it. " CONTAINER;
static const char apparmor_remedy[] = "the AppArmor profile around us refuses it. " CONTAINER;
static const char restricted_remedy[] = "kernel.apparmor_restrict_unprivileged_userns is 1: load the AppArmor profile "
					"for cloche that its package brings "
					"(packaging/apparmor/cloche), start cloche as root, or set it to 0";
static const char userns_clone_remedy[] = "kernel.unprivileged_userns_clone is 0: set it to 1, or start cloche as root";
static const char chroot_remedy[] =
	"this seems to be a chroot, where the kernel gives no user namespaces: start cloche outside "
	"of it, or enter that folder by pivot_root (systemd-nspawn, bwrap, an engine)";
static const char depth_remedy[] = "user namespaces are nested to the kernel's limit of 32: start cloche further out";
static const char landlock_remedy[] = "Landlock (or another security module) around us refuses every mount: start "
				      "cloche outside of what restricted itself "
				      "so; nothing inside can lift it";
static const char group_remedy[] =
	"start cloche as root, or in a delegated control group: systemd-run --user --scope -p "
	"Delegate=yes";

static const char user_remedy[] = "allow user namespaces (user.max_user_namespaces). " CONTAINER;

_Static_assert(sizeof(filter_remedy) <= sizeof(((struct probe_report *)0)->remedy), "a long text has room");
_Static_assert(sizeof(user_remedy) <= sizeof(((struct probe_report *)0)->remedy), "the longest text has room");

/* By wall: where there is no more of a namespace (ENOSPC), and where nothing is known. */
static const struct {
	const char *count;
	const char *other;
} remedies[PROBE_WALLS] = {
	[PROBE_USER] = { COUNT("user"), user_remedy },
	[PROBE_OWN_UID] = { NULL, "start cloche as root to give every sandbox uids of its own" },
	[PROBE_PID] = { COUNT("pid"), filter_remedy },
	[PROBE_MOUNT] = { COUNT("mnt"), "allow mounting in user namespaces. " CONTAINER },
	[PROBE_NETWORK] = { COUNT("net"), filter_remedy },
	[PROBE_IPC] = { COUNT("ipc"), filter_remedy },
	[PROBE_UTS] = { COUNT("uts"), filter_remedy },
	[PROBE_CGROUP_NS] = { COUNT("cgroup"),
			      "use a kernel with CONFIG_CGROUPS, and user.max_cgroup_namespaces above 0" },
	[PROBE_PROC] = { NULL, "run the container with an unmasked /proc. Docker: --security-opt "
			       "systempaths=unconfined; podman: "
			       "--security-opt unmask=ALL; Kubernetes: procMount: Unmasked, hostUsers: false" },
	[PROBE_CAPABILITIES] = { NULL, filter_remedy },
	[PROBE_NO_NEW_PRIVS] = { NULL, filter_remedy },
	[PROBE_SECCOMP] = { NULL, filter_remedy },
	[PROBE_LANDLOCK] = { NULL, filter_remedy },
	[PROBE_MEMORY] = { NULL, group_remedy },
	[PROBE_PROCESSES] = { NULL, "raise the caller's own RLIMIT_NPROC and RLIMIT_NOFILE" },
	[PROBE_CPU] = { NULL, group_remedy },
	[PROBE_DISK] = { NULL, "allow mounting in user namespaces. " CONTAINER },
};

static bool is_refusal(int sys)
{
	return sys == EPERM || sys == EACCES || sys == ENOSYS;
}

/* Each call has arguments that the kernel rejects as such before it asks for any right. */
static bool is_filtered(void)
{
	if (mount(NULL, NULL, NULL, 0, NULL) < 0 && is_refusal(errno))
		return true;
	if (umount2(NULL, -1) < 0 && is_refusal(errno))
		return true;
	if (unshare(1) < 0 && is_refusal(errno))
		return true;
	if (setns(-1, 0) < 0 && is_refusal(errno))
		return true;
	return sys_clone3(NULL) < 0 && is_refusal(errno);
}

static bool has_filter(void)
{
	return prctl(PR_GET_SECCOMP, 0, 0, 0, 0) == 2;
}

static bool is_set_to(const char *path, const char *value)
{
	char text[16];

	return fd_read_at(AT_FDCWD, path, text, sizeof(text)) >= 0 && strncmp(text, value, strlen(value)) == 0;
}

static bool is_confined(void)
{
	char label[256];

	return fd_read_at(AT_FDCWD, "/proc/self/attr/apparmor/current", label, sizeof(label)) >= 0 &&
	       strstr(label, "(enforce)");
}

/* Who refuses what root of a user namespace may do?  NULL: nobody that can be seen */
static const char *who_refuses(enum probe_wall wall)
{
	if (is_filtered())
		return filter_remedy;
	if (wall == PROBE_USER && is_set_to("/proc/sys/kernel/unprivileged_userns_clone", "0"))
		return userns_clone_remedy;
	if (is_confined())
		return apparmor_remedy;
	if (is_set_to("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"))
		return restricted_remedy;
	if (has_filter())
		return filter_remedy;
	if (wall == PROBE_MOUNT || wall == PROBE_DISK)
		return landlock_remedy;
	return wall == PROBE_USER ? chroot_remedy : NULL;
}

const char *probe_remedy(enum probe_wall wall, int sys)
{
	const char *found = NULL;

	if (sys == ENOSPC && remedies[wall].count)
		return remedies[wall].count;
	if (sys == EUSERS)
		return depth_remedy;
	if (is_refusal(sys) && ((wall <= PROBE_UTS && wall != PROBE_OWN_UID) || wall == PROBE_DISK))
		found = who_refuses(wall);
	return found ? found : remedies[wall].other;
}
