/* SPDX-License-Identifier: Apache-2.0 */
/* What protects a run on this host: known from the set-up, and tried from inside. */
#include "sandbox/probe.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <linux/capability.h>

#include "base/fd.h"
#include "sandbox/landlock.h"
#include "sandbox/sys.h"

/* How missing a wall is taken when nobody says anything. */
static const struct {
	const char *name;
	const char *what;
	bool is_vital; /* can't be done without, whoever allows it */
} walls[PROBE_WALLS] = {
	[PROBE_USER] = { "user", "a user namespace of its own; the script is uid 1000 there, never root", true },
	[PROBE_OWN_UID] = { "own-uid", "each sandbox has host uids that nobody else has", false },
	[PROBE_PID] = { "pid", "sees and signals its own processes only; all die with it", true },
	[PROBE_MOUNT] = { "mount", "a file tree of allowed, read-only folders", true },
	[PROBE_NETWORK] = { "network", "a network namespace with nothing but its own lo", false },
	[PROBE_IPC] = { "ipc", "shared memory and queues of its own", false },
	[PROBE_UTS] = { "uts", "a host name of its own", false },
	[PROBE_CGROUP_NS] = { "cgroup-ns", "does not see the path of its control group", false },
	[PROBE_PROC] = { "proc", "a /proc of its own processes only", false },
	[PROBE_CAPABILITIES] = { "capabilities", "none, and none can be gained", false },
	[PROBE_NO_NEW_PRIVS] = { "no_new_privs", "setuid programs give nothing", true },
	[PROBE_SECCOMP] = { "seccomp", "system calls by allow-list", true },
	[PROBE_LANDLOCK] = { "landlock", "a second opinion on writing and on signals", false },
	[PROBE_MEMORY] = { "memory", "memory of the whole sandbox is limited", false },
	[PROBE_PROCESSES] = { "processes", "number of processes and threads is limited", false },
	[PROBE_CPU] = { "cpu", "share of CPUs is limited", false },
	[PROBE_DISK] = { "disk", "bytes and files of /tmp and /dev/shm are limited", false },
};

const char *probe_name(enum probe_wall w)
{
	return walls[w].name;
}

const char *probe_what(enum probe_wall w)
{
	return walls[w].what;
}

static void tell(struct probe_report *r, enum probe_state state, const char *detail, const char *remedy)
{
	r->state = (int32_t)state;
	(void)snprintf(r->detail, sizeof(r->detail), "%.199s", detail);
	(void)snprintf(r->remedy, sizeof(r->remedy), "%s", remedy);
}

static void tell_limits(const struct home *home, struct probe_report *ret)
{
	const struct cgroup_host *g = &home->cgroup;
	const char *how = g->kind == CGROUP_V1 ? "by control group (v1)" : "by control group (v2)";

	if (g->has & CGROUP_MEMORY)
		tell(&ret[PROBE_MEMORY], PROBE_FULL, how, "");
	else if (home->has_proc)
		tell(&ret[PROBE_MEMORY], PROBE_WEAK,
		     "by sampling every 20 ms; a fast script can overshoot between two looks", g->why_not);
	else
		tell(&ret[PROBE_MEMORY], PROBE_WEAK,
		     "by RLIMIT_DATA of each process only: without /proc nothing can be sampled", g->why_not);
	if (g->has & CGROUP_PIDS)
		tell(&ret[PROBE_PROCESSES], PROBE_FULL, how, "");
	else
		tell(&ret[PROBE_PROCESSES], PROBE_FULL, "by RLIMIT_NPROC in the sandbox's own user namespace", "");
	if (g->has & CGROUP_CPU)
		tell(&ret[PROBE_CPU], PROBE_FULL, how, "");
	else
		tell(&ret[PROBE_CPU], PROBE_WEAK, "by CPU affinity: whole CPUs only, which others may use as well",
		     g->why_not);
	tell(&ret[PROBE_DISK], PROBE_FULL, "by size and inodes of private tmpfs", "");
}

void probe_home(const struct home *home, struct probe_report *ret)
{
	char text[64];

	for (int i = 0; i < PROBE_WALLS; i++)
		tell(&ret[i], PROBE_FULL, "in force", "");
	if (home->ids.count == 1)
		tell(&ret[PROBE_OWN_UID], PROBE_WEAK,
		     "the sandboxes have the caller's own uid outside; namespaces keep them apart",
		     probe_remedy(PROBE_OWN_UID, 0));
	if (!home->has_proc)
		tell(&ret[PROBE_PROC], PROBE_WEAK,
		     "no /proc at all: this container's /proc is masked, and the kernel refuses a fresh one",
		     probe_remedy(PROBE_PROC, 0));
	if (!home->has_cgroup_ns)
		tell(&ret[PROBE_CGROUP_NS], PROBE_MISSING, "the kernel gives no cgroup namespace",
		     probe_remedy(PROBE_CGROUP_NS, 0));
	if (home->has_landlock) {
		(void)snprintf(text, sizeof(text), "in force, ABI %d", landlock_abi());
		tell(&ret[PROBE_LANDLOCK], PROBE_FULL, text, "");
	} else {
		(void)snprintf(text, sizeof(text),
			       landlock_abi() == 1 ? "ABI 1 is too old" : "the kernel has no Landlock");
		tell(&ret[PROBE_LANDLOCK], PROBE_MISSING, text,
		     "use Linux 5.19 or later with landlock in the kernel's lsm= list, or accept it: --allow-missing "
		     "landlock");
	}
	tell_limits(home, ret);
}

static bool is_in(const char *const *list, const char *name)
{
	for (size_t i = 0; list && list[i]; i++) {
		if (strcmp(list[i], name) == 0)
			return true;
	}
	return false;
}

/* Every name that is asked for must be one of ours: a typing error must not switch a demand off. */
static int check_names(const char *const *list, bool is_allowing, struct err *e)
{
	char known[320] = "cgroup";

	for (int w = 0; w < PROBE_WALLS; w++) {
		size_t used = strlen(known);

		(void)snprintf(known + used, sizeof(known) - used, ", %s", walls[w].name);
	}
	for (size_t i = 0; list && list[i]; i++) {
		int w = 0;

		while (w < PROBE_WALLS && strcmp(walls[w].name, list[i]) != 0)
			w++;
		if (w < PROBE_WALLS && is_allowing && walls[w].is_vital)
			return err_set(e, ERR_INVALID, 0, "allow_missing: %s can't be done without", list[i]);
		if (w == PROBE_WALLS && (is_allowing || strcmp(list[i], "cgroup") != 0))
			return err_set(e, ERR_INVALID, 0, "%.60s is not a protection; known are %s", list[i],
				       is_allowing ? known + strlen("cgroup, ") : known);
	}
	return 0;
}

int probe_demand(const struct probe_report *reports, const char *const *require, const char *const *allow,
		 struct err *e)
{
	int r;

	r = check_names(require, false, e);
	if (r == 0)
		r = check_names(allow, true, e);
	if (r < 0)
		return r;
	for (int w = 0; w < PROBE_WALLS; w++) {
		bool is_group = w == PROBE_MEMORY || w == PROBE_PROCESSES || w == PROBE_CPU;
		bool is_demanded = is_in(require, walls[w].name) || (is_group && is_in(require, "cgroup"));
		const struct probe_report *p = &reports[w];

		if (is_demanded && (p->state != PROBE_FULL ||
				    (is_group && is_in(require, "cgroup") && !strstr(p->detail, "control group"))))
			return err_set(e, ERR_HOST, 0, "%s is required but does not hold in full here: %s%s%s",
				       walls[w].name, p->detail, p->remedy[0] ? "; remedy: " : "", p->remedy);
		if (p->state == PROBE_MISSING && (walls[w].is_vital || !is_in(allow, walls[w].name)))
			return err_set(e, ERR_HOST, 0, "%s can't be had here: %s%s%s", walls[w].name, p->detail,
				       p->remedy[0] ? "; remedy: " : "", p->remedy);
	}
	return 0;
}

int probe_wall_of_step(const char *step)
{
	static const struct {
		const char *step;
		enum probe_wall wall;
	} known[] = {
		{ "capture", PROBE_MOUNT },
		{ "root", PROBE_MOUNT },
		{ "ids-home", PROBE_USER },
		{ "network", PROBE_NETWORK },
		{ "init-maps", PROBE_USER },
		{ "init-quota", PROBE_USER },
		{ "init-tie", PROBE_PID },
		{ "init-tmp", PROBE_DISK },
		{ "init-shm", PROBE_DISK },
		{ "init-cpus", PROBE_CPU },
		{ "init-proc", PROBE_PROC },
		{ "init-hostname", PROBE_UTS },
		{ "init-hide", PROBE_PID },
		{ "scheduler", PROBE_CPU },
		{ "cgroup", PROBE_MEMORY },
		{ "cgroup-open", PROBE_MEMORY },
		{ "namespaces", PROBE_USER },
		{ "cgroup-ns", PROBE_CGROUP_NS },
		{ "session", PROBE_PID },
		{ "workdir", PROBE_MOUNT },
		{ "ids", PROBE_USER },
		{ "limits", PROBE_PROCESSES },
		{ "affinity", PROBE_CPU },
		{ "bounding", PROBE_CAPABILITIES },
		{ "capabilities", PROBE_CAPABILITIES },
		{ "no_new_privs", PROBE_NO_NEW_PRIVS },
		{ "landlock", PROBE_LANDLOCK },
		{ "filters", PROBE_SECCOMP },
	};

	for (size_t i = 0; i < ARRAY_LEN(known); i++) {
		if (strcmp(known[i].step, step) == 0)
			return (int)known[i].wall;
	}
	return -1;
}

static bool can_clone(uint64_t flags)
{
	struct clone_args args = { .flags = flags, .exit_signal = SIGCHLD };
	pid_t pid = sys_clone3(&args);

	if (pid == 0)
		_exit(0);
	if (pid > 0)
		(void)waitpid(pid, NULL, 0);
	return pid > 0;
}

int probe_namespaces(bool is_outer)
{
	static const struct {
		uint64_t flag;
		enum probe_wall wall;
	} all[] = {
		{ CLONE_NEWUSER, PROBE_USER },   { CLONE_NEWPID, PROBE_PID }, { CLONE_NEWNS, PROBE_MOUNT },
		{ CLONE_NEWNET, PROBE_NETWORK }, { CLONE_NEWIPC, PROBE_IPC }, { CLONE_NEWUTS, PROBE_UTS },
	};

	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		if (!can_clone(all[i].flag | (is_outer ? (uint64_t)CLONE_NEWUSER : 0)))
			return (int)all[i].wall;
	}
	return -1;
}

void probe_failed(int wall, struct probe_report *reports, struct err *e)
{
	char inner[sizeof(e->msg)];
	const char *remedy;

	for (int i = 0; i < PROBE_WALLS; i++)
		tell(&reports[i], PROBE_MISSING, "not tried: the sandbox could not be built", "");
	if (wall < 0)
		return;
	remedy = probe_remedy((enum probe_wall)wall, e->sys);
	memcpy(inner, e->msg, sizeof(inner));
	tell(&reports[wall], PROBE_MISSING, inner, remedy);
	(void)snprintf(e->msg, sizeof(e->msg), "the %s wall can't be had here: %.140s; remedy: %s", walls[wall].name,
		       inner, remedy);
}

void probe_why_no_home(int sys, struct probe_report *reports, struct err *e)
{
	int wall = probe_namespaces(true);

	e->sys = sys;
	probe_failed(wall < 0 ? PROBE_USER : wall, reports, e);
}
