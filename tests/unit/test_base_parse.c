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
#include "base/parse.h"

typedef int parse_fn(const char *s, uint64_t min, uint64_t max, uint64_t *ret);

static void gives(parse_fn *f, const char *s, uint64_t expected)
{
	uint64_t v = 12345;

	if (f(s, 0, UINT64_MAX, &v) != 0 || v != expected)
		fail_msg("\"%s\" gave %llu, not %llu", s, (unsigned long long)v, (unsigned long long)expected);
}

static void refuses(parse_fn *f, const char *s, int error)
{
	uint64_t v = 12345;
	int r = f(s, 0, UINT64_MAX, &v);

	if (r != error || v != 12345)
		fail_msg("\"%s\" gave %d (value %llu), not %d", s, r, (unsigned long long)v, error);
}

static void test_u64(void **state)
{
	static const char *const bad[] = { "", " 1", "1 ", "+1", "-1", "0x10", "1.0", "1e3", "a", "1a", "\n1" };

	(void)state;
	gives(parse_u64, "0", 0);
	gives(parse_u64, "007", 7);
	gives(parse_u64, "18446744073709551615", UINT64_MAX);
	refuses(parse_u64, "18446744073709551616", -ERANGE);
	refuses(parse_u64, "99999999999999999999999999", -ERANGE);
	refuses(parse_u64, "99999999999999999999999999x", -EINVAL);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		refuses(parse_u64, bad[i], -EINVAL);
}

static void test_range(void **state)
{
	uint64_t v = 5;

	(void)state;
	assert_int_equal(parse_u64("3", 4, 6, &v), -ERANGE);
	assert_int_equal(parse_u64("7", 4, 6, &v), -ERANGE);
	assert_int_equal(v, 5);
	assert_int_equal(parse_u64("4", 4, 6, &v), 0);
	assert_int_equal(v, 4);
	assert_int_equal(parse_u64("6", 4, 6, &v), 0);
	assert_int_equal(v, 6);
}

static void test_size(void **state)
{
	static const char *const bad[] = { "",    "k",   "1.",  ".5k",    "1.5", "1 k",
					   "1kk", "-1k", "1e3", "1.5.5k", "1p",  "mib" };

	(void)state;
	gives(parse_size, "0", 0);
	gives(parse_size, "512", 512);
	gives(parse_size, "1.0", 1);
	gives(parse_size, "512m", UINT64_C(512) << 20);
	gives(parse_size, "512M", UINT64_C(512) << 20);
	gives(parse_size, "64MiB", UINT64_C(64) << 20);
	gives(parse_size, "64mb", UINT64_C(64) << 20);
	gives(parse_size, "1.5g", UINT64_C(3) << 29);
	gives(parse_size, "0.1g", 107374182); /* rounded down, never up */
	gives(parse_size, "0.999999999t", 1099511626676);
	gives(parse_size, "2t", UINT64_C(2) << 40);
	refuses(parse_size, "16777216t", -ERANGE);
	gives(parse_size, "16777215.5t", (UINT64_C(16777215) << 40) + (UINT64_C(1) << 39));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		refuses(parse_size, bad[i], -EINVAL);
}

static void test_duration(void **state)
{
	static const char *const bad[] = { "", "s", "1w", "1 s", "-1", "1.s", "inf", "nan", "1e9" };

	(void)state;
	gives(parse_duration_ns, "10", 10 * NS_PER_SEC);
	gives(parse_duration_ns, "1.5", 1500000000);
	gives(parse_duration_ns, "2m", 120 * NS_PER_SEC);
	gives(parse_duration_ns, "250ms", 250 * NS_PER_MS);
	gives(parse_duration_ns, "0.5ms", 500000);
	gives(parse_duration_ns, "1h", 3600 * NS_PER_SEC);
	gives(parse_duration_ns, "3s", 3 * NS_PER_SEC);
	gives(parse_duration_ns, "0.000000001", 1);
	gives(parse_duration_ns, "0.0000000019", 1); /* past the ninth digit: dropped */
	refuses(parse_duration_ns, "18446744074", -ERANGE);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		refuses(parse_duration_ns, bad[i], -EINVAL);
}

static void test_milli(void **state)
{
	(void)state;
	gives(parse_milli, "1", 1000);
	gives(parse_milli, "1.5", 1500);
	gives(parse_milli, "0.001", 1);
	refuses(parse_milli, "1k", -EINVAL);
	refuses(parse_milli, "18446744073709551615", -ERANGE);
}

static void test_bool(void **state)
{
	bool b = true;

	(void)state;
	assert_int_equal(parse_bool("No", &b), 0);
	assert_false(b);
	assert_int_equal(parse_bool("ON", &b), 0);
	assert_true(b);
	assert_int_equal(parse_bool("0", &b), 0);
	assert_false(b);
	assert_int_equal(parse_bool("", &b), -EINVAL);
	assert_int_equal(parse_bool("yes ", &b), -EINVAL);
	assert_int_equal(parse_bool("2", &b), -EINVAL);
}

#define VALID(s)   assert_true(utf8_valid(s, sizeof(s) - 1))
#define INVALID(s) assert_false(utf8_valid(s, sizeof(s) - 1))

static void test_utf8(void **state)
{
	(void)state;
	VALID("");
	VALID("a\0b");
	VALID("\xc2\x80\xdf\xbf");
	VALID("\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf");
	VALID("\xf0\x90\x80\x80\xf4\x8f\xbf\xbf");
	INVALID("\x80");
	INVALID("\xc0\x80"); /* overlong */
	INVALID("\xc1\xbf");
	INVALID("\xe0\x9f\xbf");
	INVALID("\xf0\x8f\xbf\xbf");
	INVALID("\xed\xa0\x80"); /* surrogate */
	INVALID("\xed\xbf\xbf");
	INVALID("\xf4\x90\x80\x80"); /* past U+10FFFF */
	INVALID("\xf5\x80\x80\x80");
	INVALID("\xff");
	INVALID("a\xc2");
	INVALID("a\xe2\x82");
	INVALID("\xf0\x9f\x98");
	INVALID("\xe2\x82\x41");
}

static void test_utf8_parts(void **state)
{
	enum utf8_part part;

	(void)state;
	assert_int_equal(utf8_next("\xe2\x82\xac", 3, &part), 3);
	assert_int_equal(part, UTF8_CHAR);
	assert_int_equal(utf8_next("\xe2\x82\xac", 2, &part), 2);
	assert_int_equal(part, UTF8_CUT);
	assert_int_equal(utf8_next("\xe2\x82\x41", 3, &part), 2);
	assert_int_equal(part, UTF8_BAD);
	assert_int_equal(utf8_next("\xed\xa0\x80", 3, &part), 1);
	assert_int_equal(part, UTF8_BAD);
	assert_int_equal(utf8_next("\xff", 1, &part), 1);
	assert_int_equal(part, UTF8_BAD);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_u64),      cmocka_unit_test(test_range),      cmocka_unit_test(test_size),
		cmocka_unit_test(test_duration), cmocka_unit_test(test_milli),      cmocka_unit_test(test_bool),
		cmocka_unit_test(test_utf8),     cmocka_unit_test(test_utf8_parts),
	};

	return cmocka_run_group_tests_name("base/parse", tests, NULL, NULL);
}
