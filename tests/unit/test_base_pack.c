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

#include "base/pack.h"

/* Offsets in a record's head, as pack.c lays it out: magic, kind, name length, zero, data length. */
#define AT_NAME_LEN 8
#define AT_ZERO     12
#define AT_DATA_LEN 16
#define HEAD        24

static void put_u32(char *p, uint32_t v)
{
	memcpy(p, &v, sizeof(v));
}

static void put_u64(char *p, uint64_t v)
{
	memcpy(p, &v, sizeof(v));
}

static void test_round_trip(void **state)
{
	struct pack p = { 0 };
	struct pack_record r;
	char big[100000];
	size_t at = 0;

	(void)state;
	memset(big, 'z', sizeof(big));
	assert_int_equal(pack_add(&p, 7, "name", "da\0ta", 5), 0);
	assert_int_equal(pack_add(&p, 8, NULL, NULL, 0), 0);
	assert_int_equal(pack_add(&p, UINT32_MAX, "", big, sizeof(big)), 0);
	assert_int_equal(pack_next(p.data, p.len, &at, &r), 1);
	assert_int_equal(r.kind, 7);
	assert_string_equal(r.name, "name");
	assert_int_equal(r.len, 5);
	assert_memory_equal(r.data, "da\0ta", 6);
	assert_int_equal(pack_next(p.data, p.len, &at, &r), 1);
	assert_string_equal(r.name, "");
	assert_int_equal(r.len, 0);
	assert_string_equal(r.data, "");
	assert_int_equal(pack_next(p.data, p.len, &at, &r), 1);
	assert_int_equal(r.kind, UINT32_MAX);
	assert_memory_equal(r.data, big, sizeof(big));
	assert_int_equal(r.data[r.len], 0);
	assert_int_equal(pack_next(p.data, p.len, &at, &r), 0);
	assert_int_equal(at, p.len);
	pack_done(&p);
	assert_null(p.data);
}

static void test_empty_block(void **state)
{
	struct pack_record r;
	size_t at = 0;

	(void)state;
	assert_int_equal(pack_next(NULL, 0, &at, &r), 0);
	at = 1;
	assert_int_equal(pack_next("", 0, &at, &r), -EBADMSG);
}

/* Every cut of a good pack is refused, from an exact heap block so that a sanitizer sees any step too far. */
static void test_every_cut_is_refused(void **state)
{
	struct pack p = { 0 };

	(void)state;
	assert_int_equal(pack_add(&p, 1, "ab", "cde", 3), 0);
	for (size_t len = 1; len < p.len; len++) {
		char *cut = malloc(len);
		struct pack_record r = { .kind = 99 };
		size_t at = 0;

		assert_non_null(cut);
		memcpy(cut, p.data, len);
		assert_int_equal(pack_next(cut, len, &at, &r), -EBADMSG);
		assert_int_equal(at, 0);
		assert_int_equal(r.kind, 99); /* untouched */
		free(cut);
	}
	pack_done(&p);
}

static void refuse_with(size_t where, uint64_t value, size_t width)
{
	struct pack p = { 0 };
	struct pack_record r;
	size_t at = 0;

	assert_int_equal(pack_add(&p, 1, "ab", "cde", 3), 0);
	if (width == 4)
		put_u32(p.data + where, (uint32_t)value);
	else
		put_u64(p.data + where, value);
	assert_int_equal(pack_next(p.data, p.len, &at, &r), -EBADMSG);
	assert_int_equal(at, 0);
	pack_done(&p);
}

static void test_false_lengths(void **state)
{
	(void)state;
	refuse_with(0, 0, 4); /* no pack at all */
	refuse_with(AT_ZERO, 1, 4);
	refuse_with(AT_NAME_LEN, UINT32_MAX, 4);
	refuse_with(AT_NAME_LEN, 3, 4);
	refuse_with(AT_NAME_LEN, 1, 4);
	refuse_with(AT_DATA_LEN, UINT64_C(4) << 30, 8);
	refuse_with(AT_DATA_LEN, UINT64_MAX, 8);
	refuse_with(AT_DATA_LEN, UINT64_MAX - 1, 8);
	refuse_with(AT_DATA_LEN, UINT64_MAX - HEAD - 4, 8); /* whose sum with the rest wraps to the right length */
	refuse_with(AT_DATA_LEN, 4, 8);
	refuse_with(AT_DATA_LEN, 2, 8);
}

static void test_name_with_nul_inside(void **state)
{
	struct pack p = { 0 };
	struct pack_record r;
	size_t at = 0;

	(void)state;
	assert_int_equal(pack_add(&p, 1, "abc", "d", 1), 0);
	p.data[HEAD + 1] = '\0';
	assert_int_equal(pack_next(p.data, p.len, &at, &r), -EBADMSG);
	pack_done(&p);
}

static void test_impossible_size(void **state)
{
	struct pack p = { 0 };

	(void)state;
	assert_int_equal(pack_add(&p, 1, NULL, "x", SIZE_MAX - 8), -ENOMEM);
	assert_int_equal(p.len, 0);
	pack_done(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),           cmocka_unit_test(test_empty_block),
		cmocka_unit_test(test_every_cut_is_refused), cmocka_unit_test(test_false_lengths),
		cmocka_unit_test(test_name_with_nul_inside), cmocka_unit_test(test_impossible_size),
	};

	return cmocka_run_group_tests_name("base/pack", tests, NULL, NULL);
}
