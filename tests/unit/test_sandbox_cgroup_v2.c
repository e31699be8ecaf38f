/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is written to a v2 group and read from it, with ordinary files in the place of the kernel's: kernels of all
 * ages. As an ordinary user, for whom a file's mode holds.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "sandbox/cgroup_impl.h"

#define NOBODY 65534

static const char *const files[] = { "memory.max",     "memory.swap.max", "memory.oom.group", "memory.events",
				     "memory.current", "memory.peak",     "pids.max",         "pids.events",
				     "cpu.max",        "cpu.stat" };
static const struct cgroup_limits limits = { .memory_bytes = 64 << 20, .processes = 10, .cpu_milli = 250 };

static char folder[] = "/tmp/cloche-test-XXXXXX";
static int dir = -1;

static void put(const char *name, const char *text, mode_t mode)
{
	int fd;

	(void)unlinkat(dir, name, 0);
	fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	(void)close(fd);
}

static void has(const char *name, const char *text)
{
	char found[64];

	assert_true(fd_read_at(dir, name, found, sizeof(found)) >= 0);
	assert_string_equal(found, text);
}

/* As a kernel from 5.19 to 6.11 makes a group. */
static int fresh(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(files); i++)
		put(files[i], "", 0644);
	put("memory.peak", "0\n", 0444);
	put("memory.events", "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n", 0444);
	put("pids.events", "max 0\n", 0444);
	put("cpu.stat", "usage_usec 0\n", 0444);
	return 0;
}

static void opened(struct cgroup *g, bool is_used)
{
	struct err e = { 0 };

	*g = (struct cgroup)CGROUP_EMPTY;
	g->kind = CGROUP_V2;
	g->has = CGROUP_ALL | CGROUP_CPUACCT;
	g->is_used = is_used;
	g->dir[0] = dir;
	assert_int_equal(cgroup_v2_open(g, &e), 0);
	assert_int_equal(cgroup_v2_set(g, &limits, &e), 0);
	cgroup_v2_start(g);
}

static struct cgroup_usage usage_of(struct cgroup *g)
{
	struct cgroup_usage u = { 0 };

	cgroup_v2_usage(g, &u);
	(void)close(g->oom_fd);
	if (g->peak_fd >= 0)
		(void)close(g->peak_fd);
	return u;
}

static void test_limits(void **state)
{
	struct cgroup g;

	(void)state;
	opened(&g, false);
	has("memory.max", "67108864");
	has("memory.swap.max", "0");
	has("memory.oom.group", "1");
	has("pids.max", "10");
	has("cpu.max", "25000 100000");
	(void)usage_of(&g);
}

static void test_no_peak(void **state)
{
	struct cgroup g;
	struct cgroup_usage u;

	(void)state;
	(void)unlinkat(dir, "memory.peak", 0); /* before 5.19 */
	opened(&g, false);
	u = usage_of(&g);
	assert_false(u.has_peak);
	assert_true(u.has_cpu);
}

static void test_peak_that_can_not_be_reset(void **state)
{
	struct cgroup g;
	struct cgroup_usage u;

	(void)state;
	opened(&g, false);
	put("memory.peak.new", "4096\n", 0444);
	assert_int_equal(renameat(dir, "memory.peak.new", dir, "memory.peak"), 0);
	(void)close(g.peak_fd);
	g.peak_fd = openat(dir, "memory.peak", O_RDONLY | O_CLOEXEC);
	u = usage_of(&g);
	assert_true(u.has_peak);
	assert_int_equal(u.peak_bytes, 4096);
	opened(&g, true); /* another run was here: its peak is not ours */
	assert_false(usage_of(&g).has_peak);
}

static void test_peak_that_is_reset(void **state)
{
	struct cgroup g;

	(void)state;
	put("memory.peak", "", 0644); /* from 6.12 on */
	opened(&g, true);
	has("memory.peak", "0");
	assert_true(usage_of(&g).has_peak);
}

static void test_counters_are_of_this_run(void **state)
{
	struct cgroup g;
	struct cgroup_usage u;

	(void)state;
	put("memory.events", "low 0\nhigh 0\nmax 3\noom 2\noom_kill 2\noom_group_kill 1\n", 0644);
	put("pids.events", "max 5\n", 0644);
	put("cpu.stat", "usage_usec 1000\nuser_usec 1\n", 0644);
	opened(&g, true);
	assert_int_equal(fd_write_at(dir, "memory.events", "low 0\nhigh 0\nmax 3\noom 2\noom_kill 3\n"), 0);
	assert_int_equal(fd_write_at(dir, "pids.events", "max 9\n"), 0);
	assert_int_equal(fd_write_at(dir, "cpu.stat", "usage_usec 1500\n"), 0);
	u = usage_of(&g);
	assert_int_equal(u.oom_kills, 1);
	assert_int_equal(u.pids_refused, 4);
	assert_int_equal(u.cpu_ns, 500000);
}

static void test_a_limit_that_can_not_be_written(void **state)
{
	struct cgroup g = CGROUP_EMPTY;
	struct err e = { 0 };

	(void)state;
	put("pids.max", "", 0444);
	g.kind = CGROUP_V2;
	g.has = CGROUP_ALL;
	g.dir[0] = dir;
	assert_int_equal(cgroup_v2_open(&g, &e), 0);
	assert_int_equal(cgroup_v2_set(&g, &limits, &e), -EACCES);
	assert_non_null(strstr(e.msg, "pids.max"));
	(void)usage_of(&g);
}

static void test_no_swap_to_limit(void **state)
{
	struct cgroup g;

	(void)state;
	(void)unlinkat(dir, "memory.swap.max", 0);
	opened(&g, false);
	has("memory.max", "67108864");
	(void)usage_of(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_limits, fresh),
		cmocka_unit_test_setup(test_no_peak, fresh),
		cmocka_unit_test_setup(test_peak_that_can_not_be_reset, fresh),
		cmocka_unit_test_setup(test_peak_that_is_reset, fresh),
		cmocka_unit_test_setup(test_counters_are_of_this_run, fresh),
		cmocka_unit_test_setup(test_a_limit_that_can_not_be_written, fresh),
		cmocka_unit_test_setup(test_no_swap_to_limit, fresh),
	};
	int r;

	if (geteuid() == 0 && (setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0))
		return perror("become an ordinary user"), 1;
	dir = mkdtemp(folder) ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	if (dir < 0)
		return perror(folder), 1;
	r = cmocka_run_group_tests(tests, NULL, NULL);
	for (size_t i = 0; i < ARRAY_LEN(files); i++)
		(void)unlinkat(dir, files[i], 0);
	(void)rmdir(folder);
	return r ? 1 : 0;
}
