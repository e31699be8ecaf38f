/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/macro.h"

/* One process's line in proc, /proc/PID/stat: what of it is of use here.  Source: proc_pid_stat(5), fields by number.
 */
struct stat_line {
	pid_t pid;           /* 1; as the owner of that proc counts */
	pid_t parent;        /* 4 */
	uint64_t flags;      /* 9; STAT_EXITING */
	uint64_t ticks;      /* 14 to 17: user and system time, of waited-for children too */
	uint64_t start_code; /* 26; 0: it has no memory (any more), 1: we may not see what is kept from strangers */
	int exit_status;     /* 52; as waitpid() tells it; 0, too, where we may not see it */
};
#define STAT_EXITING 4u /* the kernel's PF_EXITING: it will never again be in its program */

/* stat_parse() - Return: 0, or -EBADMSG: no such line */
int stat_parse(const char *text, struct stat_line *ret) MUST_CHECK;

/* stat_read() - of process @pid in @proc_dir.  Return: 0 or -errno */
int stat_read(int proc_dir, const char *pid, struct stat_line *ret) MUST_CHECK;

/*
 * stat_open()    - the line of a child of ours like @pid, which is alive, if stat_foresee() will ever tell anything by it
 * stat_foresee() - what that child, not reaped, will have exited with, once the kernel takes it apart
 *
 * Who may not look into a process is told that its status is 0: that is found out, and then nothing is known. What is
 * told is true on kernels that tell a group's status before it has ended (5.18 and later).
 * @proc: an open folder of proc (O_PATH is enough)
 * @fd:   of stat_open()
 * Return: a descriptor, owned, or -errno.  1 with what waitpid() will tell in @ret_status; 0: it is not known.
 */
int stat_open(int proc, pid_t pid) MUST_CHECK;
int stat_foresee(int proc, int fd, pid_t pid, int *ret_status) MUST_CHECK;
