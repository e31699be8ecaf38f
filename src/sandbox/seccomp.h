/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Three stacked filters; the kernel takes the strictest verdict of all.
 *   B      default allow, masked argument denials
 *   A      allow by number; unknown: ENOSYS, known and refused: EPERM or ENOSYS, foreign ABI: kill.  It still allows what the
 *          lock-down list itself needs after it is loaded (setns, unshare of the cgroup namespace, setgroups, capset,
 *          landlock_*, seccomp, clone3, prctl PR_SET_DUMPABLE/PR_CAP_AMBIENT/PR_CAPBSET_DROP/PR_SET_SECCOMP)
 *   short  takes those away, and more by variant
 * A and B are loaded once by a fork server, or by a cold child itself; the short one by each child as its last step.
 */
enum seccomp_variant {
	SECCOMP_NO_INET = 1,     /* socket(AF_INET, AF_INET6, AF_NETLINK): EAFNOSUPPORT */
	SECCOMP_NO_MEMFD = 2,    /* memfd_create: ENOSYS (memory by sampling can't see it) */
	SECCOMP_NO_AFFINITY = 4, /* sched_setaffinity: EPERM (CPUs are limited by affinity) */
};
#define SECCOMP_VARIANTS 8

/* seccomp_load_base() - B, then A.  Needs CAP_SYS_ADMIN or no_new_privs.  Async-signal-safe.  Return: 0 or -1 with errno */
int seccomp_load_base(void);

/* seccomp_load_short() - the last step.  Async-signal-safe.  Return: 0 or -1 with errno */
int seccomp_load_short(unsigned variant);

/*
 * seccomp_load_heard() - the same, with a listener that hangs up when every process under this filter has begun to exit
 * seccomp_load_watched() - and until then calls that would make a socket wait until they are let through
 *
 * Nothing is decided by them: the second tells a run that has touched its network from one that has not.
 * Return: the listener (CLOEXEC), or -1 with errno (EBUSY: somebody above us has one; nothing was loaded then).
 */
int seccomp_load_heard(unsigned variant);
int seccomp_load_watched(unsigned variant);
