/* SPDX-License-Identifier: Apache-2.0 */
/* The front of root's server: what is refused after confine(), and what goes on.  Each in a process of its own. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/macro.h"
#include "server/confine.h"

/* Exit status of a confined child that does @what: 0 it went as it should. */
static int confined(int (*what)(void))
{
	struct front_user u;
	struct err e = { .kind = ERR_NONE };
	int status = 0;
	pid_t pid;

	confine_find_user(&u);
	pid = fork();
	if (pid == 0)
		_exit(confine(&u, &e) < 0 ? 100 : what());
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 200 + WTERMSIG(status);
}

/* 0: the call was refused with @wanted, 1: not so. */
static int refused(long r, int wanted)
{
	return !(r == -1 && errno == wanted);
}

static int no_program(void)
{
	char *argv[] = { (char[]) { "true" }, NULL };

	return refused(execve("/bin/true", argv, argv + 1), EPERM) ||
	       refused(syscall(SYS_execveat, AT_FDCWD, "/bin/true", argv, argv + 1, 0), EPERM);
}

static int no_process(void)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(1);
	return refused(pid, EPERM) || refused(syscall(SYS_clone3, NULL, 0), ENOSYS) ||
	       refused(syscall(SYS_clone, CLONE_VM | SIGCHLD, NULL, NULL, NULL, NULL), EPERM);
}

static int no_others(void)
{
	return refused(ptrace(PTRACE_TRACEME, 0, NULL, NULL), EPERM) || refused(unshare(CLONE_NEWUSER), EPERM) ||
	       refused(mount("none", "/", "tmpfs", 0, NULL), EPERM) || refused(syscall(SYS_bpf, 0, NULL, 0), EPERM) ||
	       refused(syscall(SYS_io_uring_setup, 1, NULL), EPERM) || refused(setuid(0), EPERM) ||
	       refused(syscall(100000), ENOSYS);
}

static int no_code(void)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return 2;
	return refused(mprotect(p, 4096, PROT_READ | PROT_EXEC), EPERM) ||
	       mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED;
}

static int no_network(void)
{
	return refused(socket(AF_INET, SOCK_STREAM, 0), EPERM) || refused(socket(AF_NETLINK, SOCK_RAW, 0), EPERM) ||
	       refused(socket(AF_PACKET, SOCK_RAW, 0), EPERM) || socket(AF_UNIX, SOCK_SEQPACKET, 0) < 0;
}

static void *work(void *arg)
{
	int *fd = arg;

	*fd = memfd_create("test", MFD_CLOEXEC);
	return fd;
}

/* What a server does all day, with a thread that writes. */
static int goes_on(void)
{
	int fd = -1;
	int pair[2];
	pthread_t t;

	if (pthread_create(&t, NULL, work, &fd) != 0 || pthread_join(t, NULL) != 0 || fd < 0)
		return 1;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) < 0 || epoll_create1(0) < 0)
		return 2;
	if (write(fd, "x", 1) != 1 || fsync(fd) < 0 || mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED)
		return 3;
	return open("/proc/self/statm", O_RDONLY) < 0 ? 4 : 0;
}

/* No way back, and nobody looks in. */
static int for_good(void)
{
	if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1 || prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) != 0 ||
	    prctl(PR_GET_SECCOMP, 0, 0, 0, 0) != 2)
		return 1;
	for (int cap = 0; cap < 41; cap++) {
		if (geteuid() != 0 && prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, cap, 0, 0) != 0)
			return 2;
	}
	return access("/proc/1/environ", R_OK) == 0 ? 3 : 0;
}

static void test_refused(void **state)
{
	(void)state;
	assert_int_equal(confined(no_program), 0);
	assert_int_equal(confined(no_process), 0);
	assert_int_equal(confined(no_others), 0);
	assert_int_equal(confined(no_code), 0);
	assert_int_equal(confined(no_network), 0);
}

static void test_goes_on(void **state)
{
	(void)state;
	assert_int_equal(confined(goes_on), 0);
}

static void test_for_good(void **state)
{
	(void)state;
	assert_int_equal(confined(for_good), 0);
}

static void test_user(void **state)
{
	struct front_user u;

	(void)state;
	confine_find_user(&u);
	assert_true(u.uid != 0 && u.gid != 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_user),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_goes_on),
		cmocka_unit_test(test_for_good),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
