/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <linux/openat2.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Thin names for system calls that Debian 12's C library has no function for, or another one another type. */

static inline int sys_clone3(struct clone_args *a)
{
	return (int)syscall(SYS_clone3, a, sizeof(*a));
}

static inline int sys_openat2(int dir, const char *path, struct open_how *how)
{
	return (int)syscall(SYS_openat2, dir, path, how, sizeof(*how));
}

static inline int sys_pivot_root(const char *new_root, const char *put_old)
{
	return (int)syscall(SYS_pivot_root, new_root, put_old);
}

static inline int sys_pidfd_send_signal(int pidfd, int sig)
{
	return (int)syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0);
}

static inline int sys_ioctl(int fd, unsigned long request, void *arg)
{
	return (int)syscall(SYS_ioctl, fd, request, arg);
}
