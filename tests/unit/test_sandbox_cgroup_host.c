/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folders of a host in this machine's v1 hierarchies: made, seen from containers, swept, removed.  Needs root and
 * v1.
 */
#include "cgroup_support.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "sandbox/cgroup_impl.h"

#define DEAD 4194303 /* a pid that no process has: the highest there can be */

static void test_host_has_everything(void **state)
{
	(void)state;
	assert_string_equal(host.why_not, "");
	assert_int_equal(host.kind, CGROUP_V1);
	assert_int_equal(host.has, CGROUP_ALL | CGROUP_CPUACCT);
	assert_int_equal(host.sup_dir, -1);
	for (unsigned i = 0; i < CGROUP_HIERARCHIES; i++) {
		struct stat st;

		if (host.dir[i] < 0)
			continue;
		assert_non_null(strstr(host.path[i], GROUP));
		assert_int_equal(stat(host.path[i], &st), 0);
		assert_int_equal(st.st_uid, OTHER);
		assert_int_equal(st.st_gid, OTHER);
		assert_true(fcntl(host.dir[i], F_GETFD) & FD_CLOEXEC);
	}
}

static void test_close_removes_everything(void **state)
{
	char path[CGROUP_HIERARCHIES][CGROUP_PATH];
	struct cgroup other = CGROUP_EMPTY;
	struct err e;

	(void)state;
	memcpy(path, host.path, sizeof(path));
	assert_int_equal(cgroup_open(&host, 77, &other, &e), 0);
	cgroup_close(&other, &host, 77, false); /* its folder stays, for the host's end */
	cgroup_close(&group, &host, 0, false);
	cgroup_host_close(&host);
	for (unsigned i = 0; i < CGROUP_HIERARCHIES; i++)
		assert_true(path[i][0] == '\0' || access(path[i], F_OK) < 0);
	assert_int_equal(host.kind, CGROUP_NONE);
	assert_int_equal(host.dir[0], -1);
}

static void path_below(const char *parent, pid_t pid, const char *tail, char *ret)
{
	int n = snprintf(ret, CGROUP_PATH, "%s/cloche-%d-%s", parent, (int)pid, tail);

	assert_in_range(n, 1, CGROUP_PATH - 1);
}

static void test_sweep(void **state)
{
	char own[CGROUP_PATH], dead[CGROUP_PATH], live[CGROUP_PATH], held[CGROUP_PATH], busy[CGROUP_PATH];
	char slot[CGROUP_PATH + 8];
	struct cgroup_host second;
	struct err e;
	int lock, busy_dir;
	pid_t pid;

	(void)state;
	assert_int_equal(find_own("memory", own), 0);
	path_below(own, DEAD, "00000001", dead);
	path_below(own, DEAD, "00000003", held);
	path_below(own, DEAD, "00000004", busy);
	(void)snprintf(slot, sizeof(slot), "%s/s0", dead);
	assert_int_equal(mkdir(dead, 0755) | mkdir(slot, 0755) | mkdir(held, 0755) | mkdir(busy, 0755), 0);
	lock = open(held, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(flock(lock, LOCK_EX | LOCK_NB), 0);
	busy_dir = open(busy, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	pid = fork();
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(fd_write_at(busy_dir, "tasks", "0") < 0 || pause());
	}
	path_below(own, pid, "00000002", live);
	assert_int_equal(mkdir(live, 0755), 0);
	while (cgroup_read_file_count(busy_dir, "tasks") == 0)
		(void)poll(NULL, 0, 1);

	assert_int_equal(cgroup_host_open(OTHER, OTHER, false, &second, &e), 0);
	cgroup_host_sweep(&second);
	assert_int_equal(access(host.path[0], F_OK), 0); /* ours is locked, though its pid is the sweeper's own */
	cgroup_host_close(&second);
	assert_true(access(dead, F_OK) < 0);
	assert_int_equal(access(live, F_OK), 0);
	assert_int_equal(access(held, F_OK), 0);
	assert_int_equal(access(busy, F_OK), 0);

	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	close(lock);
	close(busy_dir);
	assert_int_equal(cgroup_host_open(OTHER, OTHER, false, &second, &e), 0);
	cgroup_host_sweep(&second);
	cgroup_host_close(&second);
	assert_true(access(held, F_OK) < 0);
	assert_true(access(busy, F_OK) < 0);
	assert_true(access(live, F_OK) < 0);
}

static int be_nobody(void)
{
	struct cgroup_host h;
	struct err e;

	if (setresgid(65534, 65534, 65534) < 0 || setresuid(65534, 65534, 65534) < 0)
		return 1;
	if (cgroup_host_open(65534, 65534, false, &h, &e) != 0)
		return 2;
	fprintf(stderr, "an ordinary user is told: %s\n", h.why_not);
	if (h.kind != CGROUP_NONE || h.has != 0 || h.dir[0] != -1)
		return 3;
	if (!strstr(h.why_not, "memory, pids, cpu") || !strstr(h.why_not, "root"))
		return 4;
	cgroup_host_close(&h);
	return 0;
}

static void test_an_ordinary_user_is_told_why(void **state)
{
	(void)state;
	assert_int_equal(in_child(be_nobody), 0);
}

/* A container: only its own group is mounted, in another place. */
static int see_own_group_alone(void)
{
	char own[CGROUP_PATH], found[CGROUP_PATH];
	struct cgroup_host h;
	struct err e;

	if (find_own("memory", own) < 0 || unshare(CLONE_NEWNS) < 0 ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return 1;
	if (mount("tmpfs", "/mnt", "tmpfs", 0, NULL) < 0 || mkdir("/mnt/a b", 0755) < 0 ||
	    mount(own, "/mnt/a b", NULL, MS_BIND, NULL) < 0 || umount2("/sys/fs/cgroup", MNT_DETACH) < 0)
		return 2;
	if (find_own("memory", found) < 0 || strcmp(found, "/mnt/a b") != 0 || find_own("pids", found) != -ENOENT)
		return 3;
	if (cgroup_host_open(OTHER, OTHER, false, &h, &e) < 0)
		return 4;
	fprintf(stderr, "with one hierarchy of four: %s\n", h.why_not);
	if (h.kind != CGROUP_V1 || h.has != CGROUP_MEMORY || !strstr(h.why_not, "pids, cpu, cpuacct"))
		return 5;
	if (strncmp(h.path[0], "/mnt/a b/cloche-", 16) != 0 || access(h.path[0], F_OK) < 0)
		return 6;
	cgroup_host_close(&h);
	return 0;
}

/* A cgroup namespace: what lies above is hidden, and a mount made inside shows our own group as its root. */
static int see_a_namespace(void)
{
	char found[CGROUP_PATH];

	if (unshare(CLONE_NEWNS | CLONE_NEWCGROUP) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return 1;
	if (find_own("memory", found) != -ENOENT)
		return 2;
	if (mount("cgroup", "/mnt", "cgroup", 0, "memory") < 0)
		return 3;
	return find_own("memory", found) == 0 && strcmp(found, "/mnt") == 0 ? 0 : 4;
}

static void test_what_containers_see(void **state)
{
	(void)state;
	assert_int_equal(in_child(see_own_group_alone), 0);
	assert_int_equal(in_child(see_a_namespace), 0);
}

/* This machine's v2, if it is mounted, has none of our controllers, since v1 has them: nothing is made there. */
static void test_v2_without_controllers(void **state)
{
	static const char self[] = "0::/\n";
	struct cgroup_texts t = { .own = self, .mounts = "" };
	struct cgroup_host h = { .dir = { -1, -1, -1, -1 }, .sup_dir = -1 };
	char own[CGROUP_PATH];
	char path[CGROUP_PATH + 64];
	auto_free char *mounts = NULL;
	size_t len;
	auto_fd int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);

	(void)state;
	cgroup_v2_host(&h, &t, "cloche-1-00000005", OTHER, OTHER);
	assert_int_equal(h.kind, CGROUP_NONE);
	assert_non_null(strstr(h.why_not, "not mounted in sight"));
	if (find_own(NULL, own) < 0) {
		print_message("[   NOTE   ] no cgroup2 mount here\n");
		return;
	}
	assert_int_equal(fd_read_all(fd, 16 * MB, &mounts, &len), 0);
	t.mounts = mounts;
	h.why_not[0] = '\0';
	cgroup_v2_host(&h, &t, "cloche-1-00000005", OTHER, OTHER);
	print_message("%s\n", h.why_not);
	assert_int_equal(h.kind, CGROUP_NONE);
	assert_int_equal(h.dir[0], -1);
	assert_non_null(strstr(h.why_not, "Delegate=yes"));
	(void)snprintf(path, sizeof(path), "%s/cloche-1-00000005", own);
	assert_true(access(path, F_OK) < 0);
}

static int run_all(void)
{
	static const struct CMUnitTest tests[] = {
		live(test_host_has_everything),
		live(test_close_removes_everything),
		live(test_sweep),
		live(test_an_ordinary_user_is_told_why),
		live(test_what_containers_see),
		live(test_v2_without_controllers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	return cgroup_test_main(run_all);
}
