/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "job/limits.h"

static void test_contract_defaults(void **state)
{
	struct job_rules r;

	(void)state;
	job_rules_init(&r);
	assert_int_equal(r.defaults.memory_bytes, 512 << 20);
	assert_int_equal(r.defaults.cpu_ns, 0);
	assert_int_equal(r.defaults.cpu_milli, 1000);
	assert_int_equal(r.defaults.processes, 64);
	assert_int_equal(r.defaults.disk_bytes, 64 << 20);
	assert_int_equal(r.defaults.disk_files, 4096);
	assert_int_equal(r.defaults.open_files, 256);
	assert_int_equal(r.defaults.output_bytes, 1 << 20);
	assert_int_equal(r.defaults.output_bytes_hard, 64 << 20);
	assert_int_equal(r.timeout_ns, 60 * NS_PER_SEC);
	assert_int_equal(r.max_timeout_ns, 3600 * NS_PER_SEC);
	assert_int_equal(r.max_script_bytes, 1 << 20);
	assert_int_equal(r.n_profiles, 0);
	for (size_t i = 0; i < LIMIT_DEFS; i++)
		assert_int_equal(limit_get(&r.max, &limit_defs[i]), 0);
}

/* Each line of the table reaches a field of its own, and its ceiling fits there. */
static void test_each_line_has_its_own_field(void **state)
{
	struct job_limits l = { 0 };

	(void)state;
	for (size_t i = 0; i < LIMIT_DEFS; i++) {
		const struct limit_def *d = &limit_defs[i];

		assert_ptr_equal(limit_find(d->name), d);
		assert_true(d->min <= d->ceiling);
		assert_true(d->initial == 0 || d->initial >= d->min);
		assert_true(d->is_wide || d->ceiling <= UINT32_MAX);
		limit_put(&l, d, d->ceiling - i);
	}
	for (size_t i = 0; i < LIMIT_DEFS; i++)
		assert_int_equal(limit_get(&l, &limit_defs[i]), limit_defs[i].ceiling - i);
	assert_null(limit_find("memory"));
	assert_null(limit_find(""));
}

static void test_maximum_or_ceiling(void **state)
{
	struct job_rules r;
	const struct limit_def *d = limit_find("processes");

	(void)state;
	job_rules_init(&r);
	assert_int_equal(limit_max(&r, d), d->ceiling);
	r.max.processes = 5;
	assert_int_equal(limit_max(&r, d), 5);
}

static void test_words(void **state)
{
	char buf[160];

	(void)state;
	limit_words(limit_find("cpus"), 2500, buf, sizeof(buf));
	assert_string_equal(buf, "a number, at least 0.01, at most 2.5 CPUs");
	limit_words(limit_find("memory_bytes"), 1 << 30, buf, sizeof(buf));
	assert_string_equal(buf, "a whole number, at least 16777216, at most 1073741824 bytes");
	assert_string_equal(scaled_text(UINT64_MAX, NS_PER_SEC, buf, sizeof(buf)), "18446744073.709551615");
	assert_string_equal(scaled_text(1, NS_PER_SEC, buf, sizeof(buf)), "0.000000001");
	assert_string_equal(scaled_text(0, 1000, buf, sizeof(buf)), "0");
	assert_string_equal(scaled_text(7, 1, buf, sizeof(buf)), "7");
	assert_string_equal(scaled_text(10050, 1000, buf, sizeof(buf)), "10.05");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_contract_defaults),
		cmocka_unit_test(test_each_line_has_its_own_field),
		cmocka_unit_test(test_maximum_or_ceiling),
		cmocka_unit_test(test_words),
	};

	return cmocka_run_group_tests_name("job/limits", tests, NULL, NULL);
}
