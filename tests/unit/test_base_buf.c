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

#include "base/buf.h"

static void test_grows_and_stays_terminated(void **state)
{
	struct buf b;

	(void)state;
	buf_init(&b, 100000);
	assert_null(b.data);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(buf_printf(&b, "%03d,", i), 0);
	assert_int_equal(b.len, 4000);
	assert_int_equal(strlen(b.data), 4000);
	assert_string_equal(b.data + 3996, "999,");
	buf_done(&b);
	buf_done(&b); /* twice is harmless */
}

static void test_ceiling_adds_nothing(void **state)
{
	struct buf b;

	(void)state;
	buf_init(&b, 5);
	assert_int_equal(buf_add(&b, "abc", 3), 0);
	assert_int_equal(buf_add(&b, "def", 3), -EFBIG);
	assert_int_equal(buf_printf(&b, "%d", 123), -EFBIG);
	assert_string_equal(b.data, "abc");
	assert_int_equal(buf_add(&b, "de", 2), 0);
	assert_string_equal(b.data, "abcde");
	assert_int_equal(buf_add(&b, "", 0), 0);
	buf_done(&b);
}

static void test_nothing_added_is_an_empty_string(void **state)
{
	struct buf b;

	(void)state;
	buf_init(&b, 0);
	assert_int_equal(buf_add(&b, NULL, 0), 0);
	assert_string_equal(b.data, "");
	assert_int_equal(buf_add(&b, "x", 1), -EFBIG);
	buf_done(&b);
}

static void test_absurd_length_is_refused(void **state)
{
	struct buf b;

	(void)state;
	buf_init(&b, SIZE_MAX);
	assert_int_equal(buf_add(&b, "a\0b", 3), 0);
	assert_int_equal(b.len, 3);
	assert_int_equal(buf_add(&b, "x", SIZE_MAX - 3), -ENOMEM);
	assert_int_equal(b.len, 3);
	assert_memory_equal(b.data, "a\0b", 4);
	buf_done(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_grows_and_stays_terminated),
		cmocka_unit_test(test_ceiling_adds_nothing),
		cmocka_unit_test(test_nothing_added_is_an_empty_string),
		cmocka_unit_test(test_absurd_length_is_refused),
	};

	return cmocka_run_group_tests_name("base/buf", tests, NULL, NULL);
}
