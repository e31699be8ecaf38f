/* SPDX-License-Identifier: Apache-2.0 */
#include "cgroup_support.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "sandbox/cgroup_impl.h"

static const char *const names[] = { "memory", "pids", "cpu", "cpuacct" };

struct cgroup_host host;
struct cgroup group = CGROUP_EMPTY;

/* The text of /proc/self/PATH, for good. */
static char *own_text(const char *path)
{
	auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	char *text;
	size_t len;

	return fd < 0 || fd_read_all(fd, 16 * MB, &text, &len) < 0 ? NULL : text;
}

int find_own(const char *controller, char *ret)
{
	auto_free char *own = own_text("/proc/self/cgroup");
	auto_free char *mounts = own_text("/proc/self/mountinfo");
	struct cgroup_texts t = { .own = own, .mounts = mounts };

	return own && mounts ? cgroup_find(&t, controller, ret) : -EIO;
}

int cgroup_setup(void **state)
{
	struct err e;

	(void)state;
	if (cgroup_host_open(OTHER, OTHER, false, &host, &e) < 0 || cgroup_open(&host, 0, &group, &e) < 0) {
		print_message("%s\n", e.msg);
		return -1;
	}
	return 0;
}

int cgroup_teardown(void **state)
{
	(void)state;
	cgroup_close(&group, &host, 0, true);
	cgroup_host_close(&host);
	return 0;
}

int in_child(int (*body)(void))
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(body());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* Our own group in each hierarchy, so that nothing of this test is seen or left elsewhere. */
static char parents[ARRAY_LEN(names)][CGROUP_PATH];
static char own_name[64];

static char *own_path(unsigned i, const char *tail)
{
	static char path[CGROUP_PATH + 96];
	int n = snprintf(path, sizeof(path), "%s/%s%s", parents[i], own_name, tail);

	if (n < 0 || (size_t)n >= sizeof(path))
		abort();
	return path;
}

static int run_inside(int (*run)(void))
{
	int r;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (unsigned i = 0; i < ARRAY_LEN(names); i++) {
		const char *path = own_path(i, "/tasks");

		r = fd_write_at(AT_FDCWD, path, "0");
		if (r < 0) {
			fprintf(stderr, "join %s: %s\n", path, strerror(-r));
			return 1;
		}
	}
	return run() ? 1 : 0;
}

static void clean_up(void)
{
	for (unsigned i = 0; i < ARRAY_LEN(names); i++) {
		auto_fd int parent = open(parents[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		for (unsigned k = 0; parent >= 0 && k < 200 && cgroup_remove(parent, own_name) < 0; k++)
			(void)poll(NULL, 0, 10);
	}
}

/* A child in a PID namespace does it all; whatever ends it ends all of its children, and we clean up. */
static int run_below_our_own_group(int (*run)(void))
{
	sigset_t set_of;
	siginfo_t info;
	pid_t pid;
	int status = -1;

	(void)snprintf(own_name, sizeof(own_name), GROUP "-%d", (int)getpid());
	for (unsigned i = 0; i < ARRAY_LEN(names); i++) {
		const char *path = own_path(i, "");

		if (mkdir(path, 0755) < 0 && errno != EEXIST)
			return clean_up(), perror(path), 1;
	}
	(void)sigemptyset(&set_of);
	(void)sigaddset(&set_of, SIGTERM);
	(void)sigaddset(&set_of, SIGINT);
	(void)sigaddset(&set_of, SIGCHLD);
	(void)sigprocmask(SIG_BLOCK, &set_of, NULL);
	pid = unshare(CLONE_NEWPID) < 0 ? -1 : fork();
	if (pid == 0) {
		(void)sigprocmask(SIG_UNBLOCK, &set_of, NULL);
		exit(run_inside(run));
	}
	if (pid > 0) {
		if (sigwaitinfo(&set_of, &info) != SIGCHLD)
			(void)kill(pid, SIGKILL);
		(void)waitpid(pid, &status, 0);
	}
	clean_up();
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static int not_tested(const char *what)
{
	fprintf(stderr, "SKIPPED: needs: %s (real control groups were not tested)\n", what);
	return 77;
}

int cgroup_test_main(int (*run)(void))
{
	if (geteuid() != 0)
		return not_tested("root");
	for (unsigned i = 0; i < ARRAY_LEN(names); i++)
		if (find_own(names[i], parents[i]) < 0)
			return not_tested("cgroup1 with memory, pids, cpu and cpuacct");
	return run_below_our_own_group(run);
}
