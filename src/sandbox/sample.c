/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory and CPU of a sandbox by reading its proc: for hosts that give us no control group.
 *
 * Everything below is written by the kernel, but names of processes are the script's: in status they are escaped and
 * come first, so only starts of lines are looked at (stat: stat.c).
 */
#include "sandbox/sample.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "sandbox/stat.h"

#define STATUS_SIZE 16384 /* its list of groups can be long, and stands before the sizes */
#define PATH_SIZE   64
#define PID_DIGITS  10

/* Sums over all processes, in kB as proc has them. */
struct sums {
	uint64_t anon_kb; /* with swap */
	uint64_t shmem_kb;
	uint64_t fair_anon_kb;
	uint64_t fair_shmem_kb;
	uint64_t ticks;
	uint32_t processes;
};

/* The number behind @key (which ends in ':') at the start of a line.  Return: was it there? */
static bool find_kb(const char *text, const char *key, uint64_t *ret)
{
	size_t len = strlen(key);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		if (*line == '\n')
			line++;
		if (strncmp(line, key, len) == 0) {
			*ret = strtoull(line + len, NULL, 10);
			return true;
		}
	}
	return false;
}

static uint64_t kb_of(const char *text, const char *key)
{
	uint64_t kb = 0;

	return find_kb(text, key, &kb) ? kb : 0;
}

static ssize_t read_file(int proc_dir, const char *pid, const char *file, char *buf, size_t size)
{
	char path[PATH_SIZE];

	(void)snprintf(path, sizeof(path), "%s/%s", pid, file);
	return fd_read_at(proc_dir, path, buf, size);
}

/* Return: 0, or -errno when the process is gone.  A zombie has no sizes: 0. */
static int read_rss(int proc_dir, const char *pid, uint64_t *ret_anon_kb, uint64_t *ret_shmem_kb)
{
	char text[STATUS_SIZE];
	ssize_t n = read_file(proc_dir, pid, "status", text, sizeof(text));
	uint64_t pages = 0;
	uint64_t anon_kb;

	if (n < 0)
		return (int)n;
	if (find_kb(text, "RssAnon:", &anon_kb)) {
		*ret_anon_kb = anon_kb + kb_of(text, "VmSwap:");
		*ret_shmem_kb = kb_of(text, "RssShmem:");
		return 0;
	}
	*ret_anon_kb = 0;
	*ret_shmem_kb = 0;
	if (n < (ssize_t)sizeof(text) - 1)
		return 0;
	/* Cut before the sizes: everything that is resident is more than enough. */
	n = read_file(proc_dir, pid, "statm", text, sizeof(text));
	if (n < 0)
		return (int)n;
	if (sscanf(text, "%*u %lu", &pages) == 1)
		*ret_anon_kb = pages * (uint64_t)sysconf(_SC_PAGESIZE) / 1024;
	return 0;
}

static uint64_t read_ticks(int proc_dir, const char *pid)
{
	struct stat_line line;

	return stat_read(proc_dir, pid, &line) < 0 ? 0 : line.ticks;
}

static void add_fair(int proc_dir, const char *pid, uint64_t anon_kb, uint64_t shmem_kb, struct sums *s)
{
	char text[4096];
	uint64_t fair_kb;

	if (read_file(proc_dir, pid, "smaps_rollup", text, sizeof(text)) <= 0) {
		s->fair_anon_kb += anon_kb;
		s->fair_shmem_kb += shmem_kb;
		return;
	}
	if (find_kb(text, "Pss_Anon:", &fair_kb)) {
		s->fair_anon_kb += fair_kb + kb_of(text, "SwapPss:");
		s->fair_shmem_kb += kb_of(text, "Pss_Shmem:");
	} else { /* kernels before 5.4 do not tell them apart */
		s->fair_anon_kb += kb_of(text, "Pss:") + kb_of(text, "SwapPss:");
	}
}

static void add_process(int proc_dir, const char *pid, bool is_fair, struct sums *s)
{
	uint64_t anon_kb;
	uint64_t shmem_kb;

	if (read_rss(proc_dir, pid, &anon_kb, &shmem_kb) < 0)
		return;
	s->processes++;
	s->anon_kb += anon_kb;
	s->shmem_kb += shmem_kb;
	s->ticks += read_ticks(proc_dir, pid);
	if (is_fair && anon_kb + shmem_kb > 0)
		add_fair(proc_dir, pid, anon_kb, shmem_kb, s);
}

static bool is_pid(const char *name)
{
	size_t n = strspn(name, "0123456789");

	return n > 0 && n <= PID_DIGITS && name[n] == '\0';
}

static int add_all(int proc_dir, bool is_fair, struct sums *s)
{
	int fd = openat(proc_dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	int r;

	if (!d) {
		r = -errno;
		fd_close(&fd);
		return r;
	}
	do {
		errno = 0;
		entry = readdir(d);
		r = -errno;
		if (entry && is_pid(entry->d_name))
			add_process(proc_dir, entry->d_name, is_fair, s);
	} while (entry);
	(void)closedir(d);
	return r;
}

static int tmpfs_bytes(const int *tmpfs, unsigned n, uint64_t *ret)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < n; i++) {
		struct statfs fs;

		if (tmpfs[i] < 0)
			continue;
		if (fstatfs(tmpfs[i], &fs) < 0)
			return -errno;
		sum += (uint64_t)(fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
	}
	*ret = sum;
	return 0;
}

static int sample(int proc_dir, const int *tmpfs, unsigned n_tmpfs, bool is_fair, struct sample *ret)
{
	struct sums s = { 0 };
	uint64_t held = 0;
	uint64_t fair_shmem;
	int r = add_all(proc_dir, is_fair, &s);

	if (r == 0)
		r = tmpfs_bytes(tmpfs, n_tmpfs, &held);
	if (r < 0)
		return r;
	fair_shmem = s.fair_shmem_kb * 1024;
	*ret = (struct sample) {
		.resident_bytes = (s.anon_kb + s.shmem_kb) * 1024 + held,
		.fair_bytes = is_fair ? s.fair_anon_kb * 1024 + (fair_shmem > held ? fair_shmem : held) : 0,
		.cpu_ns = s.ticks * (NS_PER_SEC / (uint64_t)sysconf(_SC_CLK_TCK)),
		.processes = s.processes,
	};
	return 0;
}

int sample_take(int proc_dir, const int *tmpfs, unsigned n_tmpfs, struct sample *ret)
{
	return sample(proc_dir, tmpfs, n_tmpfs, false, ret);
}

int sample_fair(int proc_dir, const int *tmpfs, unsigned n_tmpfs, struct sample *ret)
{
	return sample(proc_dir, tmpfs, n_tmpfs, true, ret);
}
