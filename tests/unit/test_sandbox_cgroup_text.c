/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The readers of what the kernel writes about control groups, v1 and v2.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sandbox/cgroup_impl.h"

#define MB (UINT64_C(1) << 20)

static bool read_mount(const char *line, struct cgroup_mount *ret)
{
	return cgroup_read_mount(line, strlen(line), ret);
}

static void test_mount_lines(void **state)
{
	struct cgroup_mount m;

	(void)state;
	assert_true(
		read_mount("35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory", &m));
	assert_false(m.is_v2);
	assert_string_equal(m.root, "/");
	assert_string_equal(m.point, "/sys/fs/cgroup/memory");
	assert_true(cgroup_has_word(m.options, "memory"));
	assert_true(read_mount(
		"1 2 0:3 /docker/ab\\040c /mnt/a\\040b\\134 ro shared:1 master:2 - cgroup x rw,cpu,cpuacct", &m));
	assert_string_equal(m.root, "/docker/ab c");
	assert_string_equal(m.point, "/mnt/a b\\");
	assert_true(cgroup_has_word(m.options, "cpu"));
	assert_true(cgroup_has_word(m.options, "cpuacct"));
	assert_false(cgroup_has_word(m.options, "cpua"));
	assert_true(read_mount("41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate", &m));
	assert_true(m.is_v2);
}

static void test_mount_lines_that_are_none(void **state)
{
	static const char whole[] = "35 31 0:32 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory";
	static const char *const bad[] = {
		"",
		" ",
		"-",
		"- - - - - - -",
		"1 2 3 / /x rw - cgroup3 cgroup rw,memory",
		"1 2 3 / /x rw - cgrou cgroup rw",
		"1 2 3 / /x rw - tmpfs cgroup rw,memory",
		"1 2 3 x /x rw - cgroup cgroup rw,memory",
		"1 2 3 / x rw - cgroup cgroup rw,memory",
		"1 2 3 / /x rw cgroup cgroup rw,memory",
	};
	struct cgroup_mount m = { .root = "untouched" };
	char big[2048];

	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(bad); i++)
		assert_false(read_mount(bad[i], &m));
	for (size_t n = 0; n < sizeof(whole) - sizeof("rw,memory"); n++) { /* cut anywhere; a copy, so that ASan sees */
		char *cut = malloc(n + 1);

		assert_non_null(cut);
		memcpy(cut, whole, n);
		assert_false(cgroup_read_mount(cut, n, &m));
		free(cut);
	}
	memset(big, 'a', sizeof(big));
	memcpy(big, "1 2 3 / /", 9);
	memcpy(big + sizeof(big) - 40, " rw - cgroup cgroup rw,memory", 30);
	assert_false(read_mount(big, &m)); /* longer than a path of ours: not cut, left out */
	assert_string_equal(m.root, "untouched");
	assert_true(read_mount("1 2 3 / /a\\04 rw - cgroup c rw,pids", &m)); /* no whole escape: as it stands */
	assert_string_equal(m.point, "/a\\04");
	assert_true(read_mount("1 2 3 / /a\\777 rw - cgroup c rw,pids", &m));
	assert_string_equal(m.point, "/a\\777");
}

static void test_own_group(void **state)
{
	static const char hybrid[] = "12:cpu,cpuacct:/a/b\n4:memory:/c:d/e f\n1:name=systemd:/x\n0::/y z\n";
	char path[CGROUP_PATH] = "untouched";
	char big[1024];

	(void)state;
	assert_int_equal(cgroup_read_own(hybrid, "cpuacct", path), 0);
	assert_string_equal(path, "/a/b");
	assert_int_equal(cgroup_read_own(hybrid, "memory", path), 0);
	assert_string_equal(path, "/c:d/e f");
	assert_int_equal(cgroup_read_own(hybrid, NULL, path), 0);
	assert_string_equal(path, "/y z");
	assert_int_equal(cgroup_read_own("0::/last", NULL, path), 0);
	assert_string_equal(path, "/last");
	assert_int_equal(cgroup_read_own(hybrid, "pids", path), -ENODEV);
	assert_int_equal(cgroup_read_own("", NULL, path), -ENODEV);
	assert_int_equal(cgroup_read_own("0:\n0\n:::\n0:x:/\n00::/\n0::relative\n\n", NULL, path), -ENODEV);
	assert_int_equal(cgroup_read_own("0::/y\n", "", path), -ENODEV);
	memset(big, 'p', sizeof(big));
	memcpy(big, "0::/", 4);
	big[sizeof(big) - 1] = '\0';
	assert_int_equal(cgroup_read_own(big, NULL, path), -ENAMETOOLONG);
	assert_string_equal(path, "/last");
}

static int place(const char *root, const char *point, const char *own, char *ret)
{
	struct cgroup_mount m = { .is_v2 = false };

	(void)snprintf(m.root, sizeof(m.root), "%s", root);
	(void)snprintf(m.point, sizeof(m.point), "%s", point);
	return cgroup_place(&m, own, ret);
}

static void test_place_of_a_group(void **state)
{
	char path[CGROUP_PATH];
	char big[CGROUP_PATH];

	(void)state;
	assert_int_equal(place("/", "/sys/fs/cgroup/memory", "/", path), 0);
	assert_string_equal(path, "/sys/fs/cgroup/memory");
	assert_int_equal(place("/", "/cg", "/a/b", path), 0);
	assert_string_equal(path, "/cg/a/b");
	assert_int_equal(place("/docker/1", "/cg", "/docker/1", path), 0);
	assert_string_equal(path, "/cg");
	assert_int_equal(place("/docker/1", "/cg", "/docker/1/x", path), 0);
	assert_string_equal(path, "/cg/x");
	assert_int_equal(place("/", "/", "/a", path), 0);
	assert_string_equal(path, "/a");
	assert_int_equal(place("/docker/1", "/cg", "/docker/12", path), -ENOENT); /* a neighbour */
	assert_int_equal(place("/docker/1", "/cg", "/", path), -ENOENT);
	assert_int_equal(place("/", "/cg", "/../other", path), -ENOENT); /* above our namespace */
	assert_int_equal(place("/", "/cg", "/..", path), -ENOENT);
	assert_int_equal(place("/../..", "/cg", "/", path), -ENOENT);
	assert_int_equal(place("/", "/cg", "", path), -ENOENT);
	assert_int_equal(place("/", "/cg", "/..name", path), 0);
	assert_string_equal(path, "/cg/..name");
	memset(big, 'p', sizeof(big));
	big[0] = '/';
	big[sizeof(big) - 10] = '\0';
	assert_int_equal(place("/", "/cg", big, path), -ENAMETOOLONG);
}

static void test_numbers(void **state)
{
	static const char oom[] = "oom_kill_disable 0\nunder_oom 1\noom_kill 42\n";
	static const char stat[] = "usage_usec 18446744073709551615\nuser_usec 1x\nsystem_usec -1\nempty \nnr_periods\n"
				   "big 18446744073709551616\n";
	uint64_t v = 7;

	(void)state;
	assert_int_equal(cgroup_read_key(oom, "oom_kill", &v), 0);
	assert_int_equal(v, 42);
	assert_int_equal(cgroup_read_key("low 0\nhigh 0\nmax 3\noom 1\noom_kill 1\noom_group_kill 1", "oom_kill", &v),
			 0);
	assert_int_equal(v, 1);
	assert_int_equal(cgroup_read_key("max 5", "max", &v), 0);
	assert_int_equal(v, 5);
	assert_int_equal(cgroup_read_key(stat, "usage_usec", &v), 0);
	assert_true(v == UINT64_MAX);
	assert_int_equal(cgroup_read_key(stat, "user_usec", &v), -EINVAL);
	assert_int_equal(cgroup_read_key(stat, "system_usec", &v), -EINVAL);
	assert_int_equal(cgroup_read_key(stat, "empty", &v), -EINVAL);
	assert_int_equal(cgroup_read_key(stat, "nr_periods", &v), -ENOENT);
	assert_int_equal(cgroup_read_key(stat, "big", &v), -ERANGE);
	assert_int_equal(cgroup_read_key("", "max", &v), -ENOENT);
	assert_true(v == UINT64_MAX);
	assert_int_equal(cgroup_read_count("123\n", &v), 0);
	assert_int_equal(v, 123);
	assert_int_equal(cgroup_read_count("max\n", &v), 0);
	assert_true(v == UINT64_MAX);
	assert_int_equal(cgroup_read_count("maximum", &v), -EINVAL);
	assert_int_equal(cgroup_read_count("", &v), -EINVAL);
	assert_int_equal(cgroup_read_count(" 1", &v), -EINVAL);
	assert_true(cgroup_has_word("cpuset cpu io memory pids\n", "pids"));
	assert_false(cgroup_has_word("cpuset hugetlb\n", "cpu"));
	assert_false(cgroup_has_word("", ""));
	assert_false(cgroup_has_word("a  b", ""));
}

static void test_names_of_folders(void **state)
{
	static const char *const bad[] = { "cloche-",
					   "cloche-1",
					   "cloche-1-",
					   "cloche-x-01234567",
					   "cloche-1-0123456",
					   "cloche-1-012345678",
					   "cloche-1-0123456G",
					   "cloche-0-01234567",
					   "s0",
					   "",
					   "cloche-1234567890-01234567",
					   "cloche--1-01234567",
					   "xcloche-1-01234567" };
	pid_t pid = 7;

	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(bad); i++)
		assert_false(cgroup_read_name(bad[i], &pid));
	assert_int_equal(pid, 7);
	assert_true(cgroup_read_name("cloche-4242-0af9b8c7", &pid));
	assert_int_equal(pid, 4242);
}

static void test_cpu_quotas(void **state)
{
	(void)state;
	for (uint32_t milli = 1; milli <= 64000; milli++) {
		uint64_t quota;
		uint32_t period;

		cgroup_cpu_quota(milli, &quota, &period);
		assert_in_range(period, 1000, 1000000);
		assert_true(quota >= 1000);
		/* never more than was asked for by over a hundredth of it */
		assert_true(quota * 1000 * 100 <= (uint64_t)milli * period * 101);
		assert_true(quota * 1000 * 101 >= (uint64_t)milli * period * 100);
	}
}

static void test_peak_without_left_overs(void **state)
{
	struct cgroup g = CGROUP_EMPTY;

	(void)state;
	g.now.memory_bytes = 100 * MB;
	g.left_over_bytes = 30 * MB;
	assert_int_equal(cgroup_peak(&g, 50 * MB), 20 * MB);
	assert_int_equal(cgroup_peak(&g, 10 * MB), 0);
	assert_int_equal(cgroup_peak(&g, 100 * MB), 100 * MB); /* touched the limit: they may be gone */
	assert_int_equal(cgroup_risen(5, 9), 0);
	assert_int_equal(cgroup_risen(9, 5), 4);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mount_lines), cmocka_unit_test(test_mount_lines_that_are_none),
		cmocka_unit_test(test_own_group),   cmocka_unit_test(test_place_of_a_group),
		cmocka_unit_test(test_numbers),     cmocka_unit_test(test_names_of_folders),
		cmocka_unit_test(test_cpu_quotas),  cmocka_unit_test(test_peak_without_left_overs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
