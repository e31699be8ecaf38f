/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * System calls that glibc 2.36 has functions for and a smaller libc has not: programs of ours that are started for each
 * run are linked with whichever starts fastest.  Same names, shapes and errors.
 */
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#ifndef __GLIBC__
#include <linux/mount.h>
#include <stddef.h>
#include <sys/syscall.h>

typedef int __rlimit_resource_t;

static inline int close_range(unsigned first, unsigned last, int flags)
{
	return (int)syscall(SYS_close_range, first, last, flags);
}

static inline int open_tree(int dir, const char *path, unsigned flags)
{
	return (int)syscall(SYS_open_tree, dir, path, flags);
}

static inline int move_mount(int from, const char *from_path, int to, const char *to_path, unsigned flags)
{
	return (int)syscall(SYS_move_mount, from, from_path, to, to_path, flags);
}

static inline int mount_setattr(int dir, const char *path, unsigned flags, struct mount_attr *attr, size_t size)
{
	return (int)syscall(SYS_mount_setattr, dir, path, flags, attr, size);
}

static inline int fsopen(const char *type, unsigned flags)
{
	return (int)syscall(SYS_fsopen, type, flags);
}

static inline int fsconfig(int fd, unsigned command, const char *key, const void *value, int aux)
{
	return (int)syscall(SYS_fsconfig, fd, command, key, value, aux);
}

static inline int fsmount(int fd, unsigned flags, unsigned attributes)
{
	return (int)syscall(SYS_fsmount, fd, flags, attributes);
}
#endif
