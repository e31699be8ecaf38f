/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lock-down: how a process enters a sandbox and gives up, for good, what it will not need.
 *
 * The order is the point; each step says what it comes after and before, and why.  It is the same for every process that
 * ever runs in a sandbox: cold scripts, forks of a warm interpreter, the screen, the artifact collector.
 */
#include "sandbox/inside.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/kernel.h"
#include "sandbox/landlock.h"
#include "sandbox/seccomp.h"
#include "sandbox/sys.h"

/*
 * scheduler - no real time, should our caller have it: it would take the CPU from everybody
 *
 * Before: cgroup (v1 takes nobody in who has).   A fork of a zygote has what the zygote left itself.
 */
static int step_scheduler(const struct inside *in)
{
	struct sched_param none = { .sched_priority = 0 };
	long policy = syscall(SYS_sched_getscheduler, 0); /* not every C library has a function for it */

	(void)in;
	if (policy < 0)
		return -1;
	policy &= ~(long)SCHED_RESET_ON_FORK;
	if (policy == SCHED_OTHER || policy == SCHED_BATCH || policy == SCHED_IDLE)
		return 0;
	return (int)syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, &none);
}

/*
 * cgroup - be accounted to the run (v1; with v2 the process was born there)
 *
 * Before: namespaces, ids (only the home's root may write the files).   Mustn't: write another process's pid (7-15 ms).
 */
static int step_cgroup(const struct inside *in)
{
	return in->cgroup ? cgroup_join(in->cgroup) : 0;
}

/*
 * namespaces - enter what init made, in one call: permissions are checked with the old credentials, so that the user
 * namespace and those that the home owns can be entered together
 *
 * After: cgroup.   Before: ids, bounding (entering a user namespace fills the bounding set again).
 */
static int step_namespaces(const struct inside *in)
{
	return setns(in->init, CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS);
}

/* cgroup-ns - hide the path of our group.   After: cgroup, namespaces (it needs the sandbox's capabilities) */
static int step_cgroup_ns(const struct inside *in)
{
	return in->home->has_cgroup_ns ? unshare(CLONE_NEWCGROUP) : 0;
}

/* session - no controlling terminal; kill(0) stays inside; a scheduler group of its own */
static int step_session(const struct inside *in)
{
	(void)in;
	return setsid() < 0 ? -1 : 0;
}

/* workdir - a folder of the new root.   After: namespaces (before it, this would keep a folder outside reachable) */
static int step_workdir(const struct inside *in)
{
	(void)in;
	umask(022);
	return chdir("/tmp");
}

/*
 * ids - uid and gid 1000 of the sandbox, no groups
 *
 * After: namespaces.   Before: capabilities (it needs them), dumpable (it clears that).
 * An ordinary user's child is 1000 already: his only id is mapped to it.
 */
static int step_ids(const struct inside *in)
{
	if (in->home->ids.count == 1)
		return 0;
	if (setgroups(0, NULL) < 0 || setresgid(HOME_SANDBOX_UID, HOME_SANDBOX_UID, HOME_SANDBOX_UID) < 0)
		return -1;
	return setresuid(HOME_SANDBOX_UID, HOME_SANDBOX_UID, HOME_SANDBOX_UID);
}

/* descriptors - 0, 1, 2, the status, and nothing else.   After: namespaces (it uses init's pidfd) */
static int step_descriptors(const struct inside *in)
{
	int fds[] = { in->in, in->out, in->err, in->status };

	for (int i = 0; i < (int)ARRAY_LEN(fds); i++) { /* out of the way of 0..3 */
		fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 16);
		if (fds[i] < 0)
			return -1;
	}
	for (int i = 0; i < (int)ARRAY_LEN(fds); i++) {
		if (dup3(fds[i], i, i == INSIDE_STATUS_FD ? O_CLOEXEC : 0) < 0)
			return -1;
	}
	return close_range(INSIDE_STATUS_FD + 1, ~0u, 0);
}

/* signals - the defaults: what our own processes ignore or block must not be inherited */
static int step_signals(const struct inside *in)
{
	struct sigaction act = { .sa_handler = SIG_DFL };
	sigset_t none;

	for (int s = 1; s < NSIG; s++) {
		bool is_default = in->signals && !(in->signals >> (s - 1) & 1);

		if (!is_default && s != SIGKILL && s != SIGSTOP)
			(void)sigaction(s, &act, NULL); /* the C library keeps two for itself */
	}
	(void)sigemptyset(&none);
	return sigprocmask(SIG_SETMASK, &none, NULL);
}

static int limit(__rlimit_resource_t what, uint64_t value)
{
	struct rlimit l = { .rlim_cur = value, .rlim_max = value };

	if (setrlimit(what, &l) == 0)
		return 0;
	if (errno != EPERM || getrlimit(what, &l) < 0)
		return -1;
	l.rlim_cur = l.rlim_max; /* the host's own limit is stricter */
	return setrlimit(what, &l);
}

/*
 * limits - beside the control groups, and instead of them where there are none
 *
 * RLIMIT_CORE is 1, not 0: a core_pattern that is a pipe ignores 0 and would start the host's crash handler.
 * A full disk is to be told by ENOSPC: RLIMIT_FSIZE, which bounds sparse files, is above the size of the disks.
 * Processes are counted in the sandbox's own user namespace (an ordinary user's init counts as one of them).
 */
static int step_limits(const struct inside *in)
{
	const struct sandbox_spec *s = in->spec;
	uint64_t init = in->home->ids.count == 1 ? 1 : 0;

	if (limit(RLIMIT_CORE, 1) < 0 || limit(RLIMIT_NOFILE, s->open_files) < 0 ||
	    limit(RLIMIT_NPROC, s->processes + init) < 0 || limit(RLIMIT_FSIZE, 2 * s->disk_bytes) < 0 ||
	    limit(RLIMIT_MEMLOCK, 64 << 10) < 0 || limit(RLIMIT_MSGQUEUE, 0) < 0 || limit(RLIMIT_RTPRIO, 0) < 0 ||
	    limit(RLIMIT_SIGPENDING, 1024) < 0)
		return -1;
	if (in->cpu_seconds && limit(RLIMIT_CPU, in->cpu_seconds) < 0)
		return -1;
#ifndef __SANITIZE_ADDRESS__ /* its shadow would not fit */
	if (in->address_space && limit(RLIMIT_AS, in->address_space) < 0)
		return -1;
	/* address space that is only reserved counts too */
	if (in->is_sampled && limit(RLIMIT_DATA, inside_data_bytes(s, in->home->has_proc)) < 0)
		return -1;
#endif
	return 0;
}

/* affinity - CPUs where no control group holds them; the short filter then refuses to change it */
static int step_affinity(const struct inside *in)
{
	uint32_t n = (in->spec->cpu_milli + 999) / 1000;
	cpu_set_t have;
	cpu_set_t want;
	size_t seen = 0;
	size_t total;

	if (in->cpu < 0)
		return 0;
	if (sched_getaffinity(0, sizeof(have), &have) < 0)
		return -1;
	total = (size_t)CPU_COUNT(&have);
	CPU_ZERO(&want);
	for (size_t i = 0; i < CPU_SETSIZE && n > 0 && seen < total; i++) {
		if (!CPU_ISSET(i, &have))
			continue;
		if (seen++ >= (size_t)in->cpu % total) {
			CPU_SET(i, &want);
			n--;
		}
	}
	for (size_t i = 0; i < CPU_SETSIZE && n > 0; i++) { /* round the end */
		if (CPU_ISSET(i, &have) && !CPU_ISSET(i, &want)) {
			CPU_SET(i, &want);
			n--;
		}
	}
	return sched_setaffinity(0, sizeof(want), &want);
}

/* bounding - nothing can bring a capability back.   After: namespaces   Before: capabilities (it needs CAP_SETPCAP) */
static int step_bounding(const struct inside *in)
{
	(void)in;
	for (unsigned long c = 0; c < 64; c++) {
		if (prctl(PR_CAPBSET_DROP, c, 0, 0, 0) < 0)
			return errno == EINVAL && c > CAP_BLOCK_SUSPEND ? 0 : -1; /* behind the last one */
	}
	return 0;
}

/* capabilities - none at all.   After: ids, bounding   (changing ids does not clear them here) */
static int step_capabilities(const struct inside *in)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { { 0 } };

	(void)in;
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
		return -1;
	return (int)syscall(SYS_capset, &header, none);
}

/* no_new_privs - no setuid program gives anything back.   Before: landlock, filters (they need it now) */
static int step_no_new_privs(const struct inside *in)
{
	(void)in;
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

/* landlock - a second opinion on writing.   After: no_new_privs   Before: filters (they refuse landlock_*) */
static int step_landlock(const struct inside *in)
{
	return in->home->has_landlock ? landlock_restrict(!in->spec->has_loopback) : 0;
}

/*
 * dumpable - a script may read its own /proc/self, as anywhere
 *
 * After: ids (they clear it), descriptors (nothing of ours is left).   Before: filters (they refuse it)
 */
static int step_dumpable(const struct inside *in)
{
	(void)in;
	return prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
}

/* filters - the last step: what the steps above needed is refused from here on */
static int step_filters(const struct inside *in)
{
	unsigned variant = 0;

	if (!in->spec->has_loopback)
		variant |= SECCOMP_NO_INET;
	if (in->is_sampled)
		variant |= SECCOMP_NO_MEMFD;
	if (in->cpu >= 0)
		variant |= SECCOMP_NO_AFFINITY;
	if (!in->has_filters && inside_load_filters() < 0)
		return -1;
	if (in->ret_listener)
		*in->ret_listener = in->tells_sockets && in->spec->has_loopback ? seccomp_load_watched(variant)
										: seccomp_load_heard(variant);
	if (in->ret_listener && *in->ret_listener >= 0)
		return 0;
	return seccomp_load_short(variant);
}

int inside_load_filters(void)
{
	return seccomp_load_base();
}

/* The list. */
static const struct {
	const char *name;
	int (*run)(const struct inside *);
} steps[] = {
	{ "scheduler", step_scheduler },
	{ "cgroup", step_cgroup },
	{ "namespaces", step_namespaces },
	{ "cgroup-ns", step_cgroup_ns },
	{ "session", step_session },
	{ "workdir", step_workdir },
	{ "ids", step_ids },
	{ "descriptors", step_descriptors },
	{ "signals", step_signals },
	{ "limits", step_limits },
	{ "affinity", step_affinity },
	{ "bounding", step_bounding },
	{ "capabilities", step_capabilities },
	{ "no_new_privs", step_no_new_privs },
	{ "landlock", step_landlock },
	{ "dumpable", step_dumpable },
	{ "filters", step_filters },
};

int inside_lock_down(const struct inside *in, struct step_fail *fail)
{
	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		if (step_is_failed_on_purpose(steps[i].name) || steps[i].run(in) < 0) {
			step_fail_set(fail, steps[i].name, errno);
			return -1;
		}
	}
	return 0;
}
