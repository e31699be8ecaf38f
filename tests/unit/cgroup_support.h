/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sandbox/cgroup.h"

/* What tests on real v1 hierarchies share: a group of the test's own, in which everything happens. */

#define MB    (UINT64_C(1) << 20)
#define OTHER 200000 /* a uid that is not ours, as the root of a user namespace has */
#define GROUP "unit-test-of-cloche"

/* For each test, by cgroup_setup() and cgroup_teardown(): a host, and its slot 0. */
extern struct cgroup_host host;
extern struct cgroup group;

int cgroup_setup(void **state);
int cgroup_teardown(void **state);

#define live(test) cmocka_unit_test_setup_teardown(test, cgroup_setup, cgroup_teardown)

/* find_own() - cgroup_find() with the texts of this process; @controller NULL: v2 */
int find_own(const char *controller, char *ret);

/* in_child() - run @body in a process of its own.  Return: what it returned */
int in_child(int (*body)(void));

/*
 * cgroup_test_main() - run @run in a PID namespace and a group of our own, and clean up whatever happens
 *
 * Return: the program's exit status; 77 where it can't be, and says what it needs (tests/check.py judges that).
 */
int cgroup_test_main(int (*run)(void));
