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

#include "base/parse.h"
#include "job/keep.h"

/* Write @in in parts of @part bytes and compare what is kept. */
static void keeps_in_parts(uint64_t max, const char *in, size_t len, size_t part, const char *expected)
{
	struct keep k;
	char *bytes;
	size_t n;

	keep_init(&k, max);
	for (size_t at = 0; at < len; at += part)
		assert_int_equal(keep_add(&k, in + at, len - at < part ? len - at : part), 0);
	assert_int_equal(k.total, len);
	assert_int_equal(keep_is_truncated(&k), len > max);
	assert_int_equal(keep_bytes(&k, &bytes, &n), 0);
	assert_string_equal(bytes, expected);
	assert_int_equal(n, strlen(expected));
	free(bytes);
	keep_done(&k);
}

static void keeps(uint64_t max, const char *in, const char *expected)
{
	for (size_t part = 1; part <= strlen(in) + 1; part++)
		keeps_in_parts(max, in, strlen(in), part, expected);
}

static void test_small_is_whole(void **state)
{
	(void)state;
	keeps(10, "", "");
	keeps(10, "abc", "abc");
	keeps(10, "abcdefghij", "abcdefghij");
}

static void test_cut(void **state)
{
	(void)state;
	keeps(10, "abcdefghijk", "abcde[... 1 bytes left out ...]ghijk");
	keeps(10, "abcdefghijklmnopqrstuvwxyz", "abcde[... 16 bytes left out ...]vwxyz");
	keeps(5, "abcdefgh", "abc[... 3 bytes left out ...]gh"); /* the odd byte is the head's */
	keeps(1, "abc", "a[... 2 bytes left out ...]");
	keeps(0, "abc", "[... 3 bytes left out ...]");
	keeps(0, "", "");
}

static void test_characters_stay_whole(void **state)
{
	(void)state;
	/* five two-byte characters; head and tail of five bytes each cut one in two */
	keeps(10, "\xc3\xa1\xc3\xa2\xc3\xa3\xc3\xa4\xc3\xa5\xc3\xa6",
	      "\xc3\xa1\xc3\xa2[... 4 bytes left out ...]\xc3\xa5\xc3\xa6");
	/* a four-byte character with one, two and three bytes inside the head */
	keeps(8, "abc\xf0\x9f\x98\x80vwxyz", "abc[... 5 bytes left out ...]wxyz");
	keeps(8, "ab\xf0\x9f\x98\x80vwxyz", "ab[... 5 bytes left out ...]wxyz");
	keeps(8, "a\xf0\x9f\x98\x80vwxyz", "a[... 5 bytes left out ...]wxyz");
	/* and inside the tail */
	keeps(8, "abcdef\xf0\x9f\x98\x80z", "abcd[... 6 bytes left out ...]z");
	/* whole characters at both edges stay */
	keeps(8, "\xf0\x9f\x98\x80--\xf0\x9f\x98\x81", "\xf0\x9f\x98\x80[... 2 bytes left out ...]\xf0\x9f\x98\x81");
}

static void test_invalid_bytes_at_the_edges_are_kept(void **state)
{
	(void)state;
	keeps(8, "abc\xff--------\xffxyz", "abc\xff[... 8 bytes left out ...]\xffxyz");
	/* a head of continuation bytes alone has no character to cut */
	keeps(8, "\x80\x80\x80\x80----wxyz", "\x80\x80\x80\x80[... 4 bytes left out ...]wxyz");
}

/* Memory stays bounded, and the marker always accounts for every byte. */
static void test_flood(void **state)
{
	struct keep k;
	char block[1000];
	char *bytes;
	size_t n;
	unsigned long long out;
	const char *mark;

	(void)state;
	keep_init(&k, 10001);
	for (int i = 0; i < 5000; i++) {
		memset(block, 'a' + i % 26, sizeof(block));
		assert_int_equal(keep_add(&k, block, (size_t)(i * 7 % 1000)), 0);
		assert_true(k.head_size + k.tail_len <= 10001 + 5000);
	}
	assert_true(k.head_size + k.tail_len <= 10001);
	assert_int_equal(keep_bytes(&k, &bytes, &n), 0);
	mark = strstr(bytes, "[... ");
	assert_non_null(mark);
	assert_int_equal(sscanf(mark, "[... %llu bytes left out ...]", &out), 1);
	assert_int_equal(mark - bytes, 5001);
	assert_int_equal(
		n - (strlen("[... ") + strlen(" bytes left out ...]") + (size_t)snprintf(NULL, 0, "%llu", out)) + out,
		k.total);
	free(bytes);
	keep_done(&k);
}

static void test_valid_text_stays_valid(void **state)
{
	static const char text[] = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80";
	char in[sizeof(text) * 8];
	size_t len = 0;

	(void)state;
	for (int i = 0; i < 7; i++) {
		memcpy(in + len, text, sizeof(text) - 1);
		len += sizeof(text) - 1;
	}
	for (uint64_t max = 0; max <= len; max++) {
		struct keep k;
		char *bytes;
		size_t n;

		keep_init(&k, max);
		assert_int_equal(keep_add(&k, in, len), 0);
		assert_int_equal(keep_bytes(&k, &bytes, &n), 0);
		assert_true(utf8_valid(bytes, n));
		free(bytes);
		keep_done(&k);
	}
}

static void test_nul_bytes_and_endless_maximum(void **state)
{
	struct keep k;
	char *bytes;
	size_t n;

	(void)state;
	keep_init(&k, UINT64_MAX);
	assert_int_equal(keep_add(&k, "a\0b", 3), 0);
	assert_int_equal(keep_add(&k, NULL, 0), 0);
	assert_int_equal(keep_bytes(&k, &bytes, &n), 0);
	assert_int_equal(n, 3);
	assert_memory_equal(bytes, "a\0b", 4);
	free(bytes);
	keep_done(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_small_is_whole),
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_characters_stay_whole),
		cmocka_unit_test(test_invalid_bytes_at_the_edges_are_kept),
		cmocka_unit_test(test_flood),
		cmocka_unit_test(test_valid_text_stays_valid),
		cmocka_unit_test(test_nul_bytes_and_endless_maximum),
	};

	return cmocka_run_group_tests_name("job/keep", tests, NULL, NULL);
}
