/* SPDX-License-Identifier: Apache-2.0 */
/* A process's line in proc: texts, and real children from their life to their end. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "sandbox/stat.h"

#define REST_18_TO_51                                                                                                              \
	"20 0 1 0 4242 8192000 300 18446744073709551615 93824992231424 93824992235000 140737488345000 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 " \
	"1 2 3 4 5 6 7"

static void test_fields(void **state)
{
	struct stat_line l;

	(void)state;
	assert_int_equal(stat_parse("77 (py) S 12 77 77 0 -1 4194308 1 2 3 4 100 20 3 1 " REST_18_TO_51 " 768\n", &l), 0);
	assert_int_equal(l.pid, 77);
	assert_int_equal(l.parent, 12);
	assert_true(l.flags & STAT_EXITING);
	assert_int_equal(l.ticks, 124);
	assert_true(l.start_code == UINT64_C(93824992231424));
	assert_int_equal(l.exit_status, 768);
}

/* The name is its owner's: it may hold what looks like the rest of a line. */
static void test_names_do_not_lie(void **state)
{
	struct stat_line l;

	(void)state;
	assert_int_equal(stat_parse("5 (a) R 1 1 1 1) S 12 5 5 0 -1 64 1 2 3 4 1 1 0 0 " REST_18_TO_51 " 0\n", &l), 0);
	assert_int_equal(l.parent, 12);
	assert_false(l.flags & STAT_EXITING);
	assert_int_equal(l.ticks, 2);
}

static void test_what_is_no_line(void **state)
{
	static const char *const bad[] = { "", "77", "77 (py", "77 (py)", "77 (py) S", "77 (py) S 12 77", "77 (py) S x",
					   "77 (py) S 12 77 77 0 -1 4194308 1 2 3 4 100 20 3 1 " REST_18_TO_51 };
	struct stat_line l;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(stat_parse(bad[i], &l), -EBADMSG);
}

static int proc_fd(void)
{
	int fd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

/* End in one of four ways, when @gate is closed. */
static pid_t child(int how, int number, int gate[2])
{
	pid_t pid = fork();
	char c;

	assert_true(pid >= 0);
	if (pid > 0)
		return pid;
	(void)close(gate[1]);
	(void)!read(gate[0], &c, 1);
	if (how == 0)
		exit(number);
	if (how == 1)
		(void)syscall(SYS_exit, number);
	if (how == 2)
		(void)raise(number);
	_exit(number);
}

static void test_a_child_is_seen_to_its_end(void **state)
{
	int proc = proc_fd();

	(void)state;
	for (int i = 0; i < 40; i++) {
		siginfo_t info;
		int gate[2];
		int seen = -1;
		int status;
		int line;
		pid_t pid;

		assert_int_equal(pipe(gate), 0);
		pid = child(i % 4, i % 4 == 2 ? SIGKILL : i, gate);
		(void)close(gate[0]);
		line = stat_open(proc, pid);
		assert_true(line >= 0);
		assert_int_equal(stat_foresee(proc, line, pid, &seen), 0);
		(void)close(gate[1]);
		assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
		assert_int_equal(stat_foresee(proc, line, pid, &seen), 1);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(seen, status);
		assert_int_equal(stat_foresee(proc, line, pid, &seen), 0); /* it is reaped: another may have its number */
		(void)close(line);
	}
	(void)close(proc);
}

static void test_only_own_children(void **state)
{
	int proc = proc_fd();
	int seen = -1;
	int ours;

	(void)state;
	assert_int_equal(stat_open(proc, getpid()), -ESRCH);
	assert_int_equal(stat_open(proc, getppid()), -ESRCH);
	assert_int_equal(stat_open(proc, 0x3fffffff), -ENOENT);
	ours = openat(proc, "self/stat", O_RDONLY | O_CLOEXEC);
	assert_true(ours >= 0);
	assert_int_equal(stat_foresee(proc, ours, getpid(), &seen), 0);
	(void)close(ours);
	assert_int_equal(seen, -1);
	(void)close(proc);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fields),
		cmocka_unit_test(test_names_do_not_lie),
		cmocka_unit_test(test_what_is_no_line),
		cmocka_unit_test(test_a_child_is_seen_to_its_end),
		cmocka_unit_test(test_only_own_children),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
