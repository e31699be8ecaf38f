/* SPDX-License-Identifier: Apache-2.0 */
/* The system call filters in the kernel, and the table's numbers against the kernel's headers. */
#include <asm/ioctls.h>
#include <asm/mman.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/prctl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/macro.h"
#include "probe_syscalls.h"
#include "sandbox/policy/table.h"
#include "sandbox/seccomp.h"

/* Younger than the headers of the oldest system that this is built on; the numbers are from the kernel's own. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x8
#endif
#ifndef MFD_EXEC
#define MFD_EXEC 0x10
#endif
#ifndef TCP_AO_ADD_KEY
#define TCP_AO_ADD_KEY 38
#define TCP_AO_DEL_KEY 39
#define TCP_AO_INFO    40
#define TCP_AO_REPAIR  42
#endif
#ifndef NETLINK_ROUTE
#define NETLINK_ROUTE 0
#endif
#define NOBODY 65534

/* A child without privilege, and what became of it. */
static int in_child(int (*body)(void))
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		(void)alarm(20);
		if (geteuid() == 0 && (setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0))
			_exit(98);
		_exit(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? 97 : body());
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void assert_exit_0(int status)
{
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		fail_msg("the child ended with status %#x", (unsigned)status);
}

static int load_all(void)
{
	return seccomp_load_base() < 0 || seccomp_load_short(0) < 0 ? -1 : 0;
}

/* errno, or ALLOW for a call that succeeded */
static int try_syscall(const struct probe_syscall *p, long *ret)
{
	errno = 0;
	*ret = syscall(p->nr, p->args[0], p->args[1], p->args[2], p->args[3], p->args[4], p->args[5]);
	return *ret < 0 ? errno : 0;
}

static int probe_all(void)
{
	static int before[256];
	int n_wrong = 0;
	long ret;

	if (n_probe_syscalls > ARRAY_LEN(before))
		return 99;
	for (size_t i = 0; i < n_probe_syscalls; i++) /* the control: what the kernel alone answers */
		if (probe_syscalls[i].expected == ALLOW)
			before[i] = try_syscall(&probe_syscalls[i], &ret);
	if (load_all() < 0)
		return 96;
	for (size_t i = 0; i < n_probe_syscalls; i++) {
		const struct probe_syscall *p = &probe_syscalls[i];
		int got = try_syscall(p, &ret);
		int want = p->expected == ALLOW ? before[i] : p->expected == FAKE0 ? 0 : p->expected;

		if (got == want && (p->expected != FAKE0 || ret == 0))
			continue;
		fprintf(stderr, "%s: errno %d instead of %d\n", p->name, got, want);
		n_wrong++;
	}
	return n_wrong ? 1 : 0;
}

static void *thread(void *arg)
{
	*(int *)arg = gettid() != getpid();
	return NULL;
}

/* glibc asks for clone3 first, and must take its ENOSYS for "use clone". */
static int make_thread_and_process(void)
{
	pthread_t t;
	int has_run = 0, status = 1;
	pid_t pid;

	if (load_all() < 0)
		return 96;
	if (syscall(SYS_clone3, NULL, 0) != -1 || errno != ENOSYS)
		return 2;
	if (pthread_create(&t, NULL, thread, &has_run) || pthread_join(t, NULL) || !has_run)
		return 3;
	pid = fork();
	if (pid == 0)
		_exit(7);
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 7)
		return 4;
	return system("exit 5") == 5 << 8 ? 0 : 5; /* posix_spawn, vfork and exec */
}

static int set_up_between(void)
{
	if (seccomp_load_base() < 0)
		return 96;
	if (prctl(PR_SET_DUMPABLE, 1) < 0 || prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
		return 2;
	if (syscall(SYS_clone3, NULL, 0) != -1 || errno == ENOSYS || errno == EPERM)
		return 3;
	if (setns(-1, 0) != -1 || errno != EBADF)
		return 4;
	if (unshare(CLONE_NEWUSER) != -1 || errno != EPERM)
		return 5;
	if (seccomp_load_short(SECCOMP_NO_INET | SECCOMP_NO_MEMFD | SECCOMP_NO_AFFINITY) < 0)
		return 6;
	if (prctl(PR_SET_DUMPABLE, 1) != -1 || errno != EPERM || prctl(PR_SET_DUMPABLE, 0) < 0)
		return 7;
	if (setns(-1, 0) != -1 || errno != EPERM)
		return 8;
	if (socket(AF_INET, SOCK_STREAM, 0) != -1 || errno != EAFNOSUPPORT || socket(AF_UNIX, SOCK_STREAM, 0) < 0)
		return 9;
	if (memfd_create("x", MFD_CLOEXEC) != -1 || errno != ENOSYS)
		return 10;
	return sched_setaffinity(0, 0, NULL) == -1 && errno == EPERM ? 0 : 11;
}

static int load_short_again(void)
{
	if (load_all() < 0)
		return 96;
	if (seccomp_load_short(0) != -1 || errno != EPERM)
		return 2;
	return seccomp_load_base() == -1 && errno == EPERM ? 0 : 3;
}

static int bad_variant(void)
{
	if (seccomp_load_short(SECCOMP_VARIANTS) != -1 || errno != EINVAL)
		return 2;
	return prctl(PR_GET_SECCOMP) == 0 ? 0 : 3; /* nothing was loaded */
}

#ifdef __x86_64__
static int call_i386_free(void)
{
	long ret = 20; /* getpid there, writev here */

	__asm__ volatile("int $0x80" : "+a"(ret) : : "memory");
	return 2;
}

static int call_i386(void)
{
	return load_all() < 0 ? 96 : call_i386_free();
}

static int call_x32(void)
{
	if (load_all() < 0)
		return 96;
	(void)syscall(0x40000000 | SYS_getpid);
	return 2;
}

static void *call_i386_thread(void *arg)
{
	(void)arg;
	return (void *)(intptr_t)call_i386();
}

/* The whole process dies, not the thread alone. */
static int call_i386_in_thread(void)
{
	pthread_t t;

	if (pthread_create(&t, NULL, call_i386_thread, NULL))
		return 2;
	return pthread_join(t, NULL) ? 3 : 4;
}

static void test_foreign_abi_is_killed(void **state)
{
	int (*const bodies[])(void) = { call_x32, call_i386, call_i386_in_thread };
	int control = in_child(call_i386_free);
	size_t n = ARRAY_LEN(bodies);

	(void)state;
	if (!WIFEXITED(control)) { /* there is no such ABI to be kept out of */
		print_message("SKIPPED in part: this kernel has no 32-bit calls\n");
		n = 1;
	}
	for (size_t i = 0; i < n; i++) {
		int status = in_child(bodies[i]);

		assert_true(WIFSIGNALED(status));
		assert_int_equal(WTERMSIG(status), SIGSYS);
	}
}
#endif

static void test_probes(void **state)
{
	(void)state;
	assert_exit_0(in_child(probe_all));
}

static void test_threads_and_processes(void **state)
{
	(void)state;
	assert_exit_0(in_child(make_thread_and_process));
}

static void test_set_up_between_base_and_short(void **state)
{
	(void)state;
	assert_exit_0(in_child(set_up_between));
}

static void test_nothing_can_be_loaded_after(void **state)
{
	(void)state;
	assert_exit_0(in_child(load_short_again));
}

static void test_bad_variant_loads_nothing(void **state)
{
	(void)state;
	assert_exit_0(in_child(bad_variant));
}

static void test_constants_are_the_headers(void **state)
{
	(void)state;
#define CHECK(name, value) assert_int_equal(value, (uint32_t)(name));
	POLICY_CONSTS(CHECK)
#undef CHECK
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_constants_are_the_headers),
		cmocka_unit_test(test_probes),
		cmocka_unit_test(test_threads_and_processes),
		cmocka_unit_test(test_set_up_between_base_and_short),
		cmocka_unit_test(test_nothing_can_be_loaded_after),
		cmocka_unit_test(test_bad_variant_loads_nothing),
#ifdef __x86_64__
		cmocka_unit_test(test_foreign_abi_is_killed),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
