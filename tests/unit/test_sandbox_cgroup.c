/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A slot's control group, the real thing: limits that strike, and what is told of it afterwards.  Needs root and v1.
 */
#include "cgroup_support.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "sandbox/cgroup_impl.h"

#define PLENTY                                                                                                         \
	{                                                                                                              \
		.memory_bytes = 512 * MB, .processes = 64, .cpu_milli = 2000                                           \
	}

static void set(const struct cgroup_limits *l)
{
	struct err e;
	int r = cgroup_set(&group, l, &e);

	if (r == 0)
		r = cgroup_start(&group, &e);
	if (r < 0)
		fail_msg("%s", e.msg);
}

static pid_t start(void (*work)(void))
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (cgroup_join(&group) < 0)
			_exit(99);
		work();
		_exit(0);
	}
	return pid;
}

static int run(void (*work)(void))
{
	pid_t pid = start(work);
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static bool is_oom(int wait_ms)
{
	struct pollfd p = { .fd = group.oom_fd, .events = (short)group.oom_events };

	return poll(&p, 1, wait_ms) == 1;
}

static uint64_t value(enum cgroup_controller c, const char *file)
{
	return cgroup_read_file_count(cgroup_dir_of(group.dir, group.controllers, c), file);
}

static void eat(uint64_t bytes)
{
	char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		_exit(98);
	for (uint64_t i = 0; i < bytes; i += 4096)
		p[i] = 1;
}

static void eat_too_much(void)
{
	eat(200 * MB);
}

static void eat_30(void)
{
	eat(30 * MB);
}

static void eat_nothing(void)
{
}

static void burn_200_ms(void)
{
	struct timespec t;

	do {
		(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	} while (t.tv_sec == 0 && t.tv_nsec < 200000000);
}

/* Exits with the number of forks that worked. */
static void fork_much(void)
{
	int n = 0;
	int ours[2]; /* its end is the end of us */

	if (pipe(ours) < 0)
		_exit(95);
	while (n < 90) {
		pid_t pid = fork();

		if (pid == 0) {
			close(ours[1]);
			_exit((int)read(ours[0], &n, 1));
		}
		if (pid < 0)
			_exit(errno == EAGAIN ? n : 97);
		n++;
	}
	_exit(96);
}

static void test_too_much_memory(void **state)
{
	struct cgroup_limits l = PLENTY;
	struct cgroup_usage u;
	int status;

	(void)state;
	l.memory_bytes = 50 * MB;
	set(&l);
	assert_false(is_oom(0));
	status = run(eat_too_much);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	assert_true(is_oom(5000));
	assert_true(cgroup_is_oom(&group));
	assert_false(is_oom(0)); /* taken */
	assert_false(cgroup_is_oom(&group));
	cgroup_usage(&group, &u);
	assert_int_equal(u.oom_kills, 1);
	assert_true(u.has_peak);
	assert_in_range(u.peak_bytes, 49 * MB, 50 * MB);

	/* The next run starts with nothing of that. */
	set(&l);
	assert_false(is_oom(0));
	assert_int_equal(run(eat_30), 0);
	cgroup_usage(&group, &u);
	assert_int_equal(u.oom_kills, 0);
	assert_false(is_oom(0));
}

/* Every group below the one that is full gets the event; those that are not to blame must not pay for it. */
static void test_too_little_memory_above(void **state)
{
	struct cgroup_limits l = PLENTY;
	struct cgroup other = CGROUP_EMPTY;
	struct err e;

	(void)state;
	set(&l);
	assert_int_equal(cgroup_open(&host, 1, &other, &e), 0);
	assert_int_equal(cgroup_set(&other, &l, &e), 0);
	assert_int_equal(cgroup_start(&other, &e), 0);
	assert_int_equal(fd_write_at(host.dir[0], "memory.limit_in_bytes", "50M"), 0);
	assert_int_equal(WTERMSIG(run(eat_too_much)), SIGKILL);
	assert_true(is_oom(5000));
	assert_true(cgroup_is_oom(&group)); /* its process was struck */
	assert_int_equal(poll(&(struct pollfd) { .fd = other.oom_fd, .events = POLLIN }, 1, 5000), 1);
	assert_false(cgroup_is_oom(&other));
	cgroup_close(&other, &host, 1, true);
}

/* With the event left over from one run, the next starts without it. */
static void test_no_event_of_an_earlier_run(void **state)
{
	struct cgroup_limits l = PLENTY;

	(void)state;
	l.memory_bytes = 50 * MB;
	set(&l);
	assert_int_equal(WTERMSIG(run(eat_too_much)), SIGKILL);
	assert_true(is_oom(5000));
	set(&l);
	assert_false(is_oom(0));
}

static void test_peak(void **state)
{
	struct cgroup_limits l = PLENTY;
	struct cgroup_usage u;

	(void)state;
	set(&l);
	assert_int_equal(run(eat_30), 0);
	cgroup_usage(&group, &u);
	assert_true(u.has_peak);
	assert_in_range(u.peak_bytes, 30 * MB, 31 * MB);
	set(&l);
	assert_int_equal(run(eat_nothing), 0);
	cgroup_usage(&group, &u);
	assert_true(u.peak_bytes < MB);
}

static void fill_page_cache(void)
{
	static char block[1 << 20];
	int fd = open("page-cache-of-the-cgroup-test", O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);

	for (unsigned i = 0; fd >= 0 && i < 40; i++)
		if (write(fd, block, sizeof(block)) != (ssize_t)sizeof(block))
			_exit(95);
	if (fd < 0)
		_exit(94);
}

static void test_peak_is_without_the_cache_of_earlier_runs(void **state)
{
	struct cgroup_limits l = PLENTY;
	struct cgroup_usage u;

	(void)state;
	set(&l);
	assert_int_equal(run(fill_page_cache), 0);
	cgroup_usage(&group, &u);
	assert_true(u.peak_bytes >= 40 * MB); /* its own counts */
	assert_true(value(CGROUP_MEMORY, "memory.usage_in_bytes") > 30 * MB);
	set(&l);
	assert_int_equal(run(eat_30), 0);
	cgroup_usage(&group, &u);
	assert_int_equal(unlink("page-cache-of-the-cgroup-test"), 0);
	assert_in_range(u.peak_bytes, 29 * MB, 31 * MB);
}

static void test_limits_go_up_and_down(void **state)
{
	static const uint64_t sizes[] = { 64, 256, 32, 32, 512, 33 };

	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(sizes); i++) {
		struct cgroup_limits l = { .memory_bytes = sizes[i] * MB,
					   .processes = 10 + i,
					   .cpu_milli = 5 + i * 40 };
		uint64_t quota;
		uint32_t period;

		set(&l);
		cgroup_cpu_quota(l.cpu_milli, &quota, &period);
		assert_int_equal(value(CGROUP_MEMORY, "memory.limit_in_bytes"), sizes[i] * MB);
		if (faccessat(host.dir[0], "memory.memsw.limit_in_bytes", F_OK, 0) == 0)
			assert_int_equal(value(CGROUP_MEMORY, "memory.memsw.limit_in_bytes"), sizes[i] * MB);
		assert_int_equal(value(CGROUP_PIDS, "pids.max"), 10 + i);
		assert_int_equal(value(CGROUP_CPU, "cpu.cfs_quota_us"), quota);
		assert_int_equal(value(CGROUP_CPU, "cpu.cfs_period_us"), period);
	}
}

static void test_limit_below_what_is_left_over(void **state)
{
	struct cgroup_limits l = PLENTY;

	(void)state;
	set(&l);
	assert_int_equal(run(fill_page_cache), 0);
	l.memory_bytes = 8 * MB;
	set(&l);
	assert_int_equal(value(CGROUP_MEMORY, "memory.limit_in_bytes"), 8 * MB);
	assert_int_equal(unlink("page-cache-of-the-cgroup-test"), 0);
}

static void test_too_many_processes(void **state)
{
	struct cgroup_limits l = PLENTY;
	struct cgroup_usage u;
	int status;

	(void)state;
	l.processes = 10;
	for (unsigned i = 0; i < 2; i++) { /* the second time: read by difference */
		set(&l);
		cgroup_usage(&group, &u);
		assert_int_equal(u.pids_refused, 0);
		status = run(fork_much);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 9); /* and itself */
		cgroup_usage(&group, &u);
		assert_int_equal(u.pids_refused, 1);
		while (waitpid(-1, NULL, 0) > 0) /* as PID 1 we inherit them */
			;
	}
}

static void test_cpu_time(void **state)
{
	struct cgroup_limits l = PLENTY;
	struct cgroup_usage u;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		set(&l);
		assert_int_equal(run(burn_200_ms), 0);
		cgroup_usage(&group, &u);
		assert_true(u.has_cpu);
		assert_in_range(u.cpu_ns, 195 * NS_PER_MS, 260 * NS_PER_MS);
	}
}

static void test_cpu_quota_holds(void **state)
{
	struct cgroup_limits l = PLENTY;
	uint64_t start_ns;

	(void)state;
	l.cpu_milli = 200;
	set(&l);
	start_ns = clock_now_ns();
	assert_int_equal(run(burn_200_ms), 0);
	assert_true(clock_now_ns() - start_ns >= 700 * NS_PER_MS); /* 200 ms at a fifth; the first 20 ms come free */
}

static void test_zero_is_no_limit(void **state)
{
	static const struct cgroup_limits bad[] = { { 0, 1, 1 }, { MB, 0, 1 }, { MB, 1, 0 } };
	struct err e;

	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(bad); i++) {
		assert_int_equal(cgroup_set(&group, &bad[i], &e), -EPROTO);
		assert_int_equal(e.kind, ERR_BUG);
	}
}

/* As the supervisor: another uid, no capability, no path to any cgroupfs, nothing but the descriptors. */
static int supervise(void)
{
	struct cgroup_limits l = PLENTY;
	struct cgroup mine = CGROUP_EMPTY;
	struct cgroup_usage u;
	struct err e;
	int status;
	pid_t pid;

	if (chroot("/proc/self/fdinfo") < 0 || chdir("/") < 0 || setresgid(OTHER, OTHER, OTHER) < 0 ||
	    setresuid(OTHER, OTHER, OTHER) < 0)
		return 1;
	if (cgroup_open(&host, 5, &mine, &e) < 0 || cgroup_set(&mine, &l, &e) < 0 || cgroup_start(&mine, &e) < 0) {
		fprintf(stderr, "%s\n", e.msg);
		return 2;
	}
	pid = fork();
	if (pid == 0) {
		if (cgroup_join(&mine) < 0)
			_exit(99);
		eat(30 * MB);
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
		return 3;
	cgroup_usage(&mine, &u);
	if (!u.has_peak || u.peak_bytes < 30 * MB || u.peak_bytes > 31 * MB || !u.has_cpu || u.cpu_ns == 0)
		return 4;
	cgroup_close(&mine, &host, 5, true);
	for (unsigned i = 0; i < CGROUP_HIERARCHIES; i++)
		if (host.dir[i] >= 0 && faccessat(host.dir[i], "s5", F_OK, 0) == 0)
			return 5;
	return mine.oom_fd == -1 && mine.dir[0] == -1 && mine.tasks[0] == -1 ? 0 : 6;
}

static void test_by_descriptors_alone(void **state)
{
	(void)state;
	assert_int_equal(in_child(supervise), 0);
}

static void test_taken_again(void **state)
{
	struct cgroup_limits l = PLENTY;
	struct err e;

	(void)state;
	l.memory_bytes = 50 * MB;
	set(&l);
	assert_int_equal(WTERMSIG(run(eat_too_much)), SIGKILL);
	cgroup_close(&group, &host, 0, false);
	assert_int_equal(cgroup_open(&host, 0, &group, &e), 0);
	assert_true(group.is_used);
	set(&l);
	assert_int_equal(run(eat_30), 0);
	assert_false(is_oom(0));
}

/* At rest it takes no new limits, and drops none; roused it is what it was. */
static void test_rest(void **state)
{
	struct cgroup_limits l = PLENTY;
	struct cgroup_usage u;
	struct err e;

	(void)state;
	set(&l);
	cgroup_rest(&group);
	if (!group.is_resting) /* v2 has nothing to close */
		return;
	assert_int_equal(group.dir[0], -1);
	assert_int_equal(group.tasks[0], -1);
	set(&l); /* those that are in force */
	l.memory_bytes = 50 * MB;
	assert_true(cgroup_set(&group, &l, &e) < 0);
	assert_int_equal(e.kind, ERR_BUG);
	assert_int_equal(cgroup_rouse(&host, 0, &group, &e), 0);
	assert_false(group.is_resting);
	set(&l);
	assert_int_equal(WTERMSIG(run(eat_too_much)), SIGKILL);
	cgroup_usage(&group, &u);
	assert_true(u.oom_kills > 0);
}

static int run_all(void)
{
	static const struct CMUnitTest tests[] = {
		live(test_too_much_memory),
		live(test_too_little_memory_above),
		live(test_no_event_of_an_earlier_run),
		live(test_peak),
		live(test_peak_is_without_the_cache_of_earlier_runs),
		live(test_limits_go_up_and_down),
		live(test_limit_below_what_is_left_over),
		live(test_too_many_processes),
		live(test_cpu_time),
		live(test_cpu_quota_holds),
		live(test_zero_is_no_limit),
		live(test_by_descriptors_alone),
		live(test_taken_again),
		live(test_rest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	return cgroup_test_main(run_all);
}
