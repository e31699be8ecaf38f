/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/stat.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

#define FIRST  4 /* the first number behind the name and the state */
#define FIELDS 53
#define TRIES  16

int stat_parse(const char *text, struct stat_line *ret)
{
	const char *p = strrchr(text, ')'); /* the name is its owner's choice and may hold anything */
	long long field[FIELDS] = { 0 };

	if (!p || strlen(p) < 4)
		return -EBADMSG;
	p += 3; /* ") S" */
	for (unsigned i = FIRST; i < FIELDS; i++) {
		char *end;

		field[i] = (long long)strtoull(p, &end, 10);
		if (end == p)
			return -EBADMSG;
		p = end;
	}
	*ret = (struct stat_line) {
		.pid = (pid_t)strtol(text, NULL, 10),
		.parent = (pid_t)field[4],
		.flags = (uint64_t)field[9],
		.start_code = (uint64_t)field[26],
		.exit_status = (int)field[52],
	};
	for (unsigned i = 14; i <= 17; i++)
		ret->ticks += field[i] > 0 ? (uint64_t)field[i] : 0;
	return 0;
}

int stat_read(int proc_dir, const char *pid, struct stat_line *ret)
{
	char path[32];
	char text[1024];
	ssize_t n;

	(void)snprintf(path, sizeof(path), "%s/stat", pid);
	n = fd_read_at(proc_dir, path, text, sizeof(text));
	return n < 0 ? (int)n : stat_parse(text, ret);
}

/* If that proc is the one in which it and we have the numbers that we know. */
static int read_own_child(int fd, pid_t pid, struct stat_line *ret)
{
	char text[1024];
	ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
	int r;

	if (n < 0)
		return -errno;
	text[n] = '\0';
	r = stat_parse(text, ret);
	return r < 0 ? r : ret->pid == pid && ret->parent == getpid() ? 0 : -ESRCH;
}

/* Return: ENOENT: it has no program any more, and we may know; EACCES: we may not; 0: it has one */
static int program_of(int proc, pid_t pid)
{
	char path[32];
	char target[8];

	(void)snprintf(path, sizeof(path), "%d/exe", (int)pid);
	return readlinkat(proc, path, target, sizeof(target)) < 0 ? errno : 0;
}

int stat_open(int proc, pid_t pid)
{
	struct stat_line line = { 0 };
	auto_fd int fd = -1;
	char path[32];
	int r;

	(void)snprintf(path, sizeof(path), "%d/stat", (int)pid);
	fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = read_own_child(fd, pid, &line);
	if (r < 0)
		return r;
	/* to look at its link now is also to have it ready when somebody waits */
	return line.start_code > 1 && program_of(proc, pid) == 0 ? take_fd(&fd) : -EACCES;
}

/*
 * Whether we may look depends on its memory while it has some; without, it stays as it is.  So: first without (a few
 * microseconds after its exit has begun), then whether we may, and only then what it exits with.
 */
int stat_foresee(int proc, int fd, pid_t pid, int *ret_status)
{
	struct stat_line line = { 0 };

	for (int tries = 0; tries < TRIES; tries++) {
		if (read_own_child(fd, pid, &line) < 0 || !(line.flags & STAT_EXITING))
			return 0;
		if (line.start_code == 0)
			break;
	}
	if (line.start_code != 0 || program_of(proc, pid) != ENOENT || read_own_child(fd, pid, &line) < 0)
		return 0;
	*ret_status = line.exit_status;
	return 1;
}
