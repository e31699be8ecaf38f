/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sampling, tried in a PID namespace of its own: its proc shows the test, as PID 1, and its children alone.  Needs
 * root, or a user namespace.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "sandbox/sample.h"

#define MB (UINT64_C(1) << 20)

/* What the tests look at: our proc, and two tmpfs. */
static int proc_dir = -1;
static int tmpfs[3] = { -1, -1, -1 };

static char *touch(void *map, size_t len)
{
	char *p = map;

	assert_ptr_not_equal(map, MAP_FAILED);
	for (size_t i = 0; i < len; i += 4096)
		p[i] = 1;
	return p;
}

static char *map_anon(size_t len, int flags)
{
	return touch(mmap(NULL, len, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0), len);
}

/* Fork a child that does @work, says so and stays until killed. */
static pid_t start(void (*work)(void))
{
	int said[2];
	char c;
	pid_t pid;

	assert_int_equal(pipe2(said, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		work();
		if (write(said[1], "x", 1) != 1)
			_exit(1);
		pause();
		_exit(0);
	}
	close(said[1]);
	assert_int_equal(read(said[0], &c, 1), 1);
	close(said[0]);
	return pid;
}

static void stop(pid_t pid)
{
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static struct sample look(void)
{
	struct sample s;

	assert_int_equal(sample_fair(proc_dir, tmpfs, 3, &s), 0);
	return s;
}

static void assert_near(uint64_t got, uint64_t want)
{
	assert_in_range(got, want > MB ? want - MB : 0, want + MB);
}

static int dir_open(void)
{
	return openat(tmpfs[0], "file", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
}

static void fill(int fd, uint64_t bytes)
{
	static char block[1 << 20];

	memset(block, 1, sizeof(block));
	for (uint64_t i = 0; i < bytes; i += sizeof(block))
		assert_int_equal(write(fd, block, sizeof(block)), (ssize_t)sizeof(block));
}

static void work_nothing(void)
{
}

static void work_anon(void)
{
	(void)map_anon(40 * MB, MAP_PRIVATE);
}

static void test_anonymous_memory(void **state)
{
	pid_t idle = start(work_nothing);
	struct sample before = look();
	struct sample after;
	pid_t pid = start(work_anon);

	(void)state;
	after = look();
	assert_int_equal(before.processes, 2);
	assert_int_equal(after.processes, 3);
	assert_near(after.resident_bytes - before.resident_bytes, 40 * MB);
	assert_near(after.fair_bytes - before.fair_bytes, 40 * MB);
	stop(pid);
	stop(idle);
	assert_near(look().fair_bytes, before.fair_bytes);
}

static void test_pages_shared_by_fork_count_once(void **state)
{
	struct sample before = look();
	char *p = map_anon(40 * MB, MAP_PRIVATE);
	struct sample after;
	pid_t pid[3];

	(void)state;
	for (unsigned i = 0; i < 3; i++)
		pid[i] = start(work_nothing);
	after = look();
	/* Seen four times by Rss, which is why it does not decide. */
	assert_in_range(after.resident_bytes - before.resident_bytes, 160 * MB - 1, 166 * MB);
	assert_near(after.fair_bytes - before.fair_bytes, 40 * MB);
	for (unsigned i = 0; i < 3; i++)
		stop(pid[i]);
	munmap(p, 40 * MB);
}

static void test_shared_memory_outside_the_tmpfs(void **state)
{
	struct sample before = look();
	char *p = map_anon(24 * MB, MAP_SHARED);
	pid_t pid = start(work_nothing);
	struct sample after = look();

	(void)state;
	assert_true(after.resident_bytes - before.resident_bytes >= 24 * MB);
	assert_near(after.fair_bytes - before.fair_bytes, 24 * MB);
	stop(pid);
	munmap(p, 24 * MB);
}

static void test_files_in_the_tmpfs(void **state)
{
	struct sample before = look();
	struct sample after;
	int fd = dir_open();
	char *p;

	(void)state;
	fill(fd, 32 * MB);
	after = look();
	assert_near(after.resident_bytes - before.resident_bytes, 32 * MB);
	assert_near(after.fair_bytes - before.fair_bytes, 32 * MB);

	/* Mapped as well: the trigger may see it twice, the fair figure may not. */
	p = touch(mmap(NULL, 32 * MB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), 32 * MB);
	after = look();
	assert_near(after.resident_bytes - before.resident_bytes, 64 * MB);
	assert_near(after.fair_bytes - before.fair_bytes, 32 * MB);

	/* Unlinked and still open is still there. */
	assert_int_equal(unlinkat(tmpfs[0], "file", 0), 0);
	munmap(p, 32 * MB);
	assert_near(look().fair_bytes - before.fair_bytes, 32 * MB);
	close(fd);
	assert_near(look().fair_bytes, before.fair_bytes);
}

static void test_every_tmpfs_counts(void **state)
{
	struct sample before = look();
	int fd = openat(tmpfs[1], "other", O_CREAT | O_RDWR | O_CLOEXEC, 0600);

	(void)state;
	fill(fd, 8 * MB);
	assert_near(look().fair_bytes - before.fair_bytes, 8 * MB);
	assert_int_equal(unlinkat(tmpfs[1], "other", 0), 0);
	close(fd);
}

static void burn(uint64_t ns)
{
	uint64_t end = clock_now_ns() + ns;
	struct timespec t;

	/* By CPU time, so that a busy machine does not matter. */
	do {
		(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	} while ((uint64_t)t.tv_sec * NS_PER_SEC + (uint64_t)t.tv_nsec < ns && clock_now_ns() < end + 20 * NS_PER_SEC);
}

static void work_burn(void)
{
	burn(300 * NS_PER_MS);
}

static void work_burn_by_child(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		burn(300 * NS_PER_MS);
		_exit(0);
	}
	(void)waitpid(pid, NULL, 0);
}

static void test_cpu_time(void **state)
{
	struct sample before = look();
	struct sample after;
	pid_t pid = start(work_burn);

	(void)state;
	after = look();
	assert_in_range(after.cpu_ns - before.cpu_ns, 270 * NS_PER_MS, 400 * NS_PER_MS);
	stop(pid);

	before = look();
	pid = start(work_burn_by_child); /* dead and waited for: not lost */
	after = look();
	assert_in_range(after.cpu_ns - before.cpu_ns, 270 * NS_PER_MS, 400 * NS_PER_MS);
	stop(pid);
}

static void work_lie(void)
{
	/* A name that looks like the files that are read: it must not be taken for them. */
	if (prctl(PR_SET_NAME, "x) R 9 9 9 9 9") < 0)
		_exit(1);
	(void)map_anon(16 * MB, MAP_PRIVATE);
}

static void work_lie_by_line(void)
{
	if (prctl(PR_SET_NAME, "\nRssAnon: 7777") < 0)
		_exit(1);
	(void)map_anon(16 * MB, MAP_PRIVATE);
}

static void test_names_of_processes_are_not_believed(void **state)
{
	struct sample before = look();
	struct sample after;
	pid_t a = start(work_lie);
	pid_t b = start(work_lie_by_line);

	(void)state;
	after = look();
	assert_near(after.fair_bytes - before.fair_bytes, 32 * MB);
	assert_true(after.cpu_ns - before.cpu_ns < NS_PER_SEC);
	stop(a);
	stop(b);
}

static void test_zombies_count_as_processes_without_memory(void **state)
{
	struct sample before = look();
	struct sample after;
	siginfo_t info;
	pid_t pid = fork();

	(void)state;
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(0);
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	after = look();
	assert_int_equal(after.processes, before.processes + 1);
	assert_near(after.fair_bytes, before.fair_bytes);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void test_processes_that_come_and_go(void **state)
{
	pid_t pid = fork();

	(void)state;
	assert_true(pid >= 0);
	if (pid == 0)
		for (;;) {
			pid_t child = fork();

			if (child == 0)
				_exit(0);
			(void)waitpid(child, NULL, 0);
		}
	for (unsigned i = 0; i < 500; i++) {
		struct sample s;

		assert_int_equal(i % 2 ? sample_take(proc_dir, tmpfs, 3, &s) : sample_fair(proc_dir, tmpfs, 3, &s), 0);
		assert_in_range(s.processes, 2, 3);
	}
	stop(pid);
	while (waitpid(-1, NULL, 0) > 0) /* its last child, now ours */
		;
}

static void test_many_processes_take_bounded_time(void **state)
{
	static pid_t pid[1000];
	struct sample s;
	uint64_t start_ns;
	uint64_t took_ns;

	(void)state;
	for (unsigned i = 0; i < 1000; i++) {
		pid[i] = fork();
		assert_true(pid[i] >= 0);
		if (pid[i] == 0) {
			pause();
			_exit(0);
		}
	}
	start_ns = clock_now_ns();
	assert_int_equal(sample_take(proc_dir, tmpfs, 3, &s), 0);
	took_ns = clock_now_ns() - start_ns;
	print_message("1001 processes: %llu us\n", (unsigned long long)(took_ns / 1000));
	for (unsigned i = 0; i < 1000; i++)
		stop(pid[i]);
	assert_int_equal(s.processes, 1001);
	assert_true(took_ns < 5 * NS_PER_SEC); /* far above what it takes: a guard against the square of it */
}

static void test_no_proc_is_an_error(void **state)
{
	struct sample s = { .processes = 77 };
	int bad[] = { 999 };

	(void)state;
	assert_int_equal(sample_take(-1, NULL, 0, &s), -EBADF);
	assert_int_equal(sample_take(proc_dir, bad, 1, &s), -EBADF);
	assert_int_equal(s.processes, 77);
}

static int mount_all(const char *path)
{
	char sub[3][128];
	static const char *const type[] = { "proc", "tmpfs", "tmpfs" };

	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || mount("tmpfs", path, "tmpfs", 0, NULL) < 0)
		return -1;
	for (unsigned i = 0; i < 3; i++) {
		int fd;

		(void)snprintf(sub[i], sizeof(sub[i]), "%s/%u", path, i);
		if (mkdir(sub[i], 0700) < 0 || mount(type[i], sub[i], type[i], 0, i ? "size=64m" : NULL) < 0)
			return -1;
		fd = open(sub[i], O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (fd < 0)
			return -1;
		if (i == 0)
			proc_dir = fd;
		else
			tmpfs[i - 1] = fd;
	}
	return 0;
}

static int write_own(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : write(fd, text, strlen(text));

	if (fd >= 0)
		close(fd);
	return n == (ssize_t)strlen(text) ? 0 : -1;
}

/* In a user namespace: be root of it, or nothing can be owned there. */
static int map_own_ids(uid_t uid, gid_t gid)
{
	char users[32];
	char groups[32];

	(void)snprintf(users, sizeof(users), "0 %u 1", uid);
	(void)snprintf(groups, sizeof(groups), "0 %u 1", gid);
	if (write_own("/proc/self/uid_map", users) < 0 || write_own("/proc/self/setgroups", "deny") < 0)
		return -1;
	return write_own("/proc/self/gid_map", groups);
}

static int run_all(const char *path)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_anonymous_memory),
		cmocka_unit_test(test_pages_shared_by_fork_count_once),
		cmocka_unit_test(test_shared_memory_outside_the_tmpfs),
		cmocka_unit_test(test_files_in_the_tmpfs),
		cmocka_unit_test(test_every_tmpfs_counts),
		cmocka_unit_test(test_cpu_time),
		cmocka_unit_test(test_names_of_processes_are_not_believed),
		cmocka_unit_test(test_zombies_count_as_processes_without_memory),
		cmocka_unit_test(test_processes_that_come_and_go),
		cmocka_unit_test(test_many_processes_take_bounded_time),
		cmocka_unit_test(test_no_proc_is_an_error),
	};

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (mount_all(path) < 0) {
		perror("mount in a namespace of our own");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}

static int not_tested(const char *what)
{
	fprintf(stderr, "SKIPPED: sampling was not tested: %s\n", what);
	return 77;
}

int main(void)
{
	char path[] = "/tmp/cloche-test-XXXXXX";
	uid_t uid = geteuid();
	gid_t gid = getegid();
	int flags = CLONE_NEWNS | CLONE_NEWPID | (uid == 0 ? 0 : CLONE_NEWUSER);
	int status;
	pid_t pid;

	if (!mkdtemp(path))
		return perror(path), 1;
	if (unshare(flags) < 0 || (uid != 0 && map_own_ids(uid, gid) < 0)) {
		(void)rmdir(path);
		return not_tested("no root and no user namespace");
	}
	pid = fork();
	if (pid == 0)
		exit(run_all(path));
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return perror("fork"), 1;
	(void)umount2(path, MNT_DETACH);
	(void)rmdir(path);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		return not_tested("proc or tmpfs can't be mounted in a namespace");
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
