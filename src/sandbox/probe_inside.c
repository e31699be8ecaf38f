/* SPDX-License-Identifier: Apache-2.0 */
/* doctor's look from inside: each wall is tried, in a child that was locked down as a script is. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include "base/fd.h"
#include "sandbox/probe.h"
#include "sandbox/sys.h"

/* Each returns whether the wall holds. */

static bool user_holds(const struct home *home)
{
	(void)home;
	return getuid() == HOME_SANDBOX_UID && geteuid() == HOME_SANDBOX_UID && setuid(0) < 0 &&
	       unshare(CLONE_NEWUSER) < 0;
}

static bool pid_holds(const struct home *home)
{
	(void)home;
	/* the parent is outside of this process namespace, and init shrugs SIGKILL off */
	(void)kill(1, SIGKILL);
	return getppid() == 0 && getpid() < 100 && (kill(1, 0) == 0 || errno == EPERM);
}

static bool mount_holds(const struct home *home)
{
	static const char *const hidden[] = { "/var", "/run", "/boot", "/etc/shadow", "/sys/kernel" };
	int fd;

	(void)home;
	for (size_t i = 0; i < ARRAY_LEN(hidden); i++) {
		if (access(hidden[i], F_OK) == 0)
			return false;
	}
	fd = open("/usr/cloche-probe", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd >= 0) {
		(void)close(fd);
		return false;
	}
	return mount("none", "/tmp", "tmpfs", 0, NULL) < 0 && umount2("/tmp", MNT_DETACH) < 0;
}

static bool network_holds(const struct home *home)
{
	auto_fd int sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	(void)home;
	for (int i = 1; i < 128; i++) { /* whatever is there must be called lo */
		struct ifreq r = { .ifr_ifindex = i };

		if (ioctl(sock, SIOCGIFNAME, &r) == 0 && strcmp(r.ifr_name, "lo") != 0)
			return false;
	}
	return sock >= 0;
}

static bool ipc_holds(const struct home *home)
{
	struct stat own;

	if (stat("/proc/self/ns/ipc", &own) < 0)
		return !home->has_proc; /* no /proc here: nothing to compare with */
	return own.st_ino != home->ipc_ino;
}

static bool uts_holds(const struct home *home)
{
	char name[64] = "";

	(void)home;
	return gethostname(name, sizeof(name)) == 0 && strcmp(name, "sandbox") == 0 && sethostname("x", 1) < 0;
}

static bool cgroup_ns_holds(const struct home *home)
{
	char text[4096];
	char *save = NULL;

	(void)home;
	if (fd_read_at(AT_FDCWD, "/proc/self/cgroup", text, sizeof(text)) < 0)
		return true;
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		const char *path = strrchr(line, ':');

		if (!path || strcmp(path, ":/") != 0)
			return false;
	}
	return true;
}

static bool proc_holds(const struct home *home)
{
	auto_fd int fd = -1;

	(void)home;
	fd = open("/proc/1/environ", O_RDONLY | O_CLOEXEC); /* access() does not ask what open() does */
	return fd < 0 && access("/proc/sys", F_OK) < 0 && access("/proc/kmsg", F_OK) < 0;
}

static bool capabilities_hold(const struct home *home)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2] = { { 0 } };

	(void)home;
	if (syscall(SYS_capget, &header, d) < 0)
		return false;
	for (int i = 0; i < 2; i++) {
		if (d[i].effective || d[i].permitted || d[i].inheritable)
			return false;
	}
	for (unsigned long c = 0; c <= CAP_BLOCK_SUSPEND; c++) {
		if (prctl(PR_CAPBSET_READ, c, 0, 0, 0) != 0)
			return false;
	}
	return true;
}

static bool no_new_privs_holds(const struct home *home)
{
	(void)home;
	return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1;
}

static bool refused(long r, int with)
{
	return r < 0 && errno == with;
}

static bool seccomp_holds(const struct home *home)
{
	(void)home;
	return prctl(PR_GET_SECCOMP, 0, 0, 0, 0) == 2 && refused(syscall(SYS_unshare, 0), EPERM) &&
	       refused(syscall(SYS_keyctl, 0, 0, 0, 0, 0), ENOSYS) && refused(syscall(SYS_bpf, 0, NULL, 0), EPERM) &&
	       refused(syscall(SYS_io_uring_setup, 0, NULL), ENOSYS) && refused(syscall(SYS_socket, AF_ALG, SOCK_SEQPACKET, 0), EAFNOSUPPORT);
}

/* A file that the mounts and its mode let us write, and that Landlock alone does not. */
static bool landlock_holds(const struct home *home)
{
	auto_fd int fd = open("/proc/self/comm", O_WRONLY | O_CLOEXEC);

	(void)home;
	return fd < 0;
}

static bool processes_hold(const struct home *home)
{
	struct rlimit l;

	(void)home;
	return getrlimit(RLIMIT_NPROC, &l) == 0 && l.rlim_max != RLIM_INFINITY;
}

static bool disk_holds(const struct home *home)
{
	struct statfs tmp;

	(void)home;
	return statfs("/tmp", &tmp) == 0 && tmp.f_type == 0x01021994 && tmp.f_blocks > 0 && tmp.f_files > 0;
}

static bool (*const holds[PROBE_WALLS])(const struct home *) = {
	[PROBE_USER] = user_holds,
	[PROBE_PID] = pid_holds,
	[PROBE_MOUNT] = mount_holds,
	[PROBE_NETWORK] = network_holds,
	[PROBE_IPC] = ipc_holds,
	[PROBE_UTS] = uts_holds,
	[PROBE_CGROUP_NS] = cgroup_ns_holds,
	[PROBE_PROC] = proc_holds,
	[PROBE_CAPABILITIES] = capabilities_hold,
	[PROBE_NO_NEW_PRIVS] = no_new_privs_holds,
	[PROBE_SECCOMP] = seccomp_holds,
	[PROBE_LANDLOCK] = landlock_holds,
	[PROBE_PROCESSES] = processes_hold,
	[PROBE_DISK] = disk_holds,
};

int probe_inside(const struct home *home, int out)
{
	uint8_t seen[PROBE_WALLS];

	for (int w = 0; w < PROBE_WALLS; w++)
		seen[w] = !holds[w] || holds[w](home) ? PROBE_FULL : PROBE_MISSING;
	return fd_write_all(out, seen, sizeof(seen));
}
