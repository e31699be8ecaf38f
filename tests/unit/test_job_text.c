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

#include "job/text.h"

static void shows(const char *in, size_t len, const char *expected, bool has_errors)
{
	char *text;
	size_t text_len;
	bool errors = !has_errors;

	assert_int_equal(text_from_bytes(in, len, &text, &text_len, &errors), 0);
	assert_int_equal(text_len, strlen(expected));
	assert_memory_equal(text, expected, text_len + 1);
	assert_int_equal(errors, has_errors);
	free(text);
}

#define SHOWS(in, out, errors) shows(in, sizeof(in) - 1, out, errors)
#define R                      "\xef\xbf\xbd"

/* Expected values are what Python's bytes.decode("utf-8", "replace") gives. */
static void test_replacement(void **state)
{
	(void)state;
	shows(NULL, 0, "", false);
	SHOWS("plain", "plain", false);
	SHOWS("\xe2\x82\xac", "\xe2\x82\xac", false);
	SHOWS(R, R, false); /* a real U+FFFD is no error */
	SHOWS("a\xff"
	      "b",
	      "a" R "b", true);
	SHOWS("\xe2\x82", R, true);
	SHOWS("\xe2\x82"
	      "x",
	      R "x", true);
	SHOWS("\xf0\x9f\x98\xe2\x82\xac", R "\xe2\x82\xac", true);
	SHOWS("\xc0\x80", R R, true);
	SHOWS("\xed\xa0\x80", R R R, true);
	SHOWS("\xf4\x90\x80\x80", R R R R, true);
	SHOWS("\x80\x80", R R, true);
	SHOWS("\xf0\x80\x80", R R R, true);
}

static void test_nul_is_kept(void **state)
{
	char *text;
	size_t len;
	bool errors;

	(void)state;
	assert_int_equal(text_from_bytes("a\0b", 3, &text, &len, &errors), 0);
	assert_int_equal(len, 3);
	assert_memory_equal(text, "a\0b", 4);
	assert_false(errors);
	free(text);
}

static void test_base64_vectors(void **state)
{
	static const char *const vectors[][2] = {
		{ "", "" },
		{ "f", "Zg==" },
		{ "fo", "Zm8=" },
		{ "foo", "Zm9v" },
		{ "foob", "Zm9vYg==" },
		{ "fooba", "Zm9vYmE=" },
		{ "foobar", "Zm9vYmFy" },
		{ "\xfb\xff\xfe", "+//+" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
		char *text = base64_encode(vectors[i][0], strlen(vectors[i][0]));
		char *data;
		size_t len;

		assert_non_null(text);
		assert_string_equal(text, vectors[i][1]);
		assert_int_equal(base64_decode(text, strlen(text), &data, &len), 0);
		assert_int_equal(len, strlen(vectors[i][0]));
		assert_memory_equal(data, vectors[i][0], len + 1);
		free(data);
		free(text);
	}
}

static void test_base64_every_byte(void **state)
{
	char bytes[256];
	char *text;
	char *data;
	size_t len;

	(void)state;
	for (int i = 0; i < 256; i++)
		bytes[i] = (char)i;
	for (size_t n = 250; n <= 256; n++) {
		text = base64_encode(bytes, n);
		assert_non_null(text);
		assert_int_equal(base64_decode(text, strlen(text), &data, &len), 0);
		assert_int_equal(len, n);
		assert_memory_equal(data, bytes, n);
		free(text);
		free(data);
	}
}

static void test_base64_is_strict(void **state)
{
	static const char *const bad[] = {
		"Z",    "Zg",   "Zg=",      "Zg===",      "=",         "==",   "====", "Z===",
		"Zh==", "Zm9=", "Zm9v\n",   " Zm9v",      "Zm 9",      "Zm9-", "Zm9_", "Zg==Zg==",
		"Zg=v", "Z=9v", "Zm9v====", "\xc3\xa9Zg", "Zm9v\nYmF", "=m9v",
	};
	char *data = NULL;
	size_t len = 77;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (base64_decode(bad[i], strlen(bad[i]), &data, &len) != -EINVAL)
			fail_msg("\"%s\" was taken", bad[i]);
	assert_int_equal(base64_decode("Zm9\0", 4, &data, &len), -EINVAL);
	assert_null(data);
	assert_int_equal(len, 77);
}

static void visible(const char *in, size_t len, bool keeps_lines, const char *expected)
{
	char *text = text_visible(in, len, keeps_lines);

	assert_non_null(text);
	assert_string_equal(text, expected);
	free(text);
}

#define VISIBLE(in, out) visible(in, sizeof(in) - 1, false, out)

static void test_visible(void **state)
{
	(void)state;
	visible(NULL, 0, false, "");
	VISIBLE("plain \\ text", "plain \\ text");
	VISIBLE("\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80", "\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80");
	VISIBLE("\x1b[2J\a\x7f", "\\x1b[2J\\x07\\x7f");
	VISIBLE("a\0b", "a\\x00b");
	VISIBLE("\xc2\x9b"
		"31m",
		"\\x9b31m"); /* CSI in one character */
	VISIBLE("\x9b"
		"31m",
		"\\x9b31m");
	VISIBLE("\xe2\x80\xae"
		"gnp.exe",
		"\\u202egnp.exe");
	VISIBLE("\xf3\xa0\x81\x81", "\\U000e0041");
	VISIBLE("\xf0\x9f\x98", "\\xf0\\x9f\\x98");
	VISIBLE("a\nb\tc\rd", "a\\nb\\tc\\rd");
	visible("a\nb\tc\rd\x1b", 8, true, "a\nb\tc\\rd\\x1b");
}

static void test_visible_fits(void **state)
{
	char buf[16];

	(void)state;
	assert_string_equal(text_visible_in(buf, sizeof(buf), "123456789012345", 15), "123456789012345");
	assert_string_equal(text_visible_in(buf, sizeof(buf), "1234567890123456", 16), "123456789012...");
	assert_string_equal(text_visible_in(buf, sizeof(buf), "12345678901\xc3\xa9xyz", 16), "12345678901...");
	assert_string_equal(text_visible_in(buf, sizeof(buf), "\x1b\x1b\x1b\x1b", 4), "\\x1b\\x1b\\x1b...");
	assert_string_equal(text_visible_in(buf, 2, "\x1b", 1), ".");
	assert_string_equal(text_visible_in(buf, 1, "x", 1), "");
	assert_string_equal(text_visible_in(buf, 1, "", 0), "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_replacement),      cmocka_unit_test(test_nul_is_kept),
		cmocka_unit_test(test_base64_vectors),   cmocka_unit_test(test_base64_every_byte),
		cmocka_unit_test(test_base64_is_strict), cmocka_unit_test(test_visible),
		cmocka_unit_test(test_visible_fits),
	};

	return cmocka_run_group_tests_name("job/text", tests, NULL, NULL);
}
