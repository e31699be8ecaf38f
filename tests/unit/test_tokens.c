/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "doors/tokens.h"

static char folder[] = "/tmp/test-tokens-XXXXXX";
static char path[128];

static int make_folder(void **state)
{
	(void)state;
	if (!mkdtemp(folder))
		return -1;
	(void)snprintf(path, sizeof(path), "%s/a/b/tokens.json", folder);
	return 0;
}

static int remove_folder(void **state)
{
	char command[200];

	(void)state;
	(void)snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	return system(command); /* NOLINT(cert-env33-c): our own folder */
}

static void test_secret(void **state)
{
	static const unsigned char abc[TOKEN_HASH_BYTES] = { 0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea,
							     0x41, 0x41, 0x40, 0xde, 0x5d, 0xae, 0x22, 0x23,
							     0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17, 0x7a, 0x9c,
							     0xb4, 0x10, 0xff, 0x61, 0xf2, 0x00, 0x15, 0xad };
	unsigned char hash[TOKEN_HASH_BYTES];
	unsigned char again[TOKEN_HASH_BYTES];
	char one[TOKEN_TEXT_SIZE];
	char two[TOKEN_TEXT_SIZE];

	(void)state;
	token_hash("abc", hash); /* FIPS 180-4's own example */
	assert_memory_equal(hash, abc, sizeof(abc));
	assert_int_equal(token_make(one, hash), 0);
	assert_int_equal(token_make(two, again), 0);
	assert_int_equal(strlen(one), TOKEN_TEXT_SIZE - 1);
	assert_memory_equal(one, TOKEN_PREFIX, strlen(TOKEN_PREFIX));
	assert_int_equal(strspn(one + strlen(TOKEN_PREFIX), "0123456789abcdef"), 64);
	assert_string_not_equal(one, two);
	assert_false(token_equal(hash, again));
	token_hash(one, again);
	assert_true(token_equal(hash, again));
	for (size_t i = 0; i < sizeof(again); i++) {
		again[i] ^= 1;
		assert_false(token_equal(hash, again));
		again[i] ^= 1;
	}
}

static void test_names(void **state)
{
	char longest[TOKEN_NAME_MAX + 2];

	(void)state;
	memset(longest, 'x', sizeof(longest));
	longest[TOKEN_NAME_MAX] = '\0';
	assert_true(tokens_name_ok("a") && tokens_name_ok("A-z_0.9") && tokens_name_ok(longest));
	longest[TOKEN_NAME_MAX] = 'x';
	longest[TOKEN_NAME_MAX + 1] = '\0';
	assert_false(tokens_name_ok("") || tokens_name_ok("a b") || tokens_name_ok("a/b") || tokens_name_ok(longest));
}

static void test_file(void **state)
{
	char *names[] = { (char[]) { "default" }, (char[]) { "other" } };
	struct token narrow = {
		.name = "narrow", .environments = { .items = names, .n = 2 }, .max_concurrent = 3, .rate = 0.5
	};
	struct token wide = { .name = "wide", .expires = 1000 };
	struct tokens writer;
	struct tokens reader;
	char one[TOKEN_TEXT_SIZE];
	char two[TOKEN_TEXT_SIZE];
	const struct token *found;
	struct stat st;
	struct err e;

	(void)state;
	assert_int_equal(tokens_open(&writer, path, &e), 0);
	assert_int_equal(tokens_open(&reader, path, &e), 0);
	assert_int_equal(reader.n, 0);
	assert_int_equal(tokens_add(&writer, &narrow, one, &e), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0137, 0);
	assert_int_equal(tokens_refresh(&reader, &e), 0);
	found = tokens_find(&reader, one, 0);
	assert_non_null(found);
	assert_string_equal(found->name, "narrow");
	assert_int_equal(found->max_concurrent, 3);
	assert_true(found->rate > 0.49 && found->rate < 0.51);
	assert_true(token_allows(found, "other") && !token_allows(found, "third"));
	/* another writer knows what the first one wrote */
	assert_int_equal(tokens_add(&reader, &wide, two, &e), 0);
	assert_true(tokens_add(&writer, &wide, two, &e) < 0);
	assert_int_equal(e.kind, ERR_INVALID);
	assert_int_equal(writer.n, 2);
	assert_non_null(tokens_find(&reader, one, 5000));
	assert_true(token_allows(tokens_by_name(&reader, "wide"), "third"));
	assert_null(tokens_find(&reader, "cloche_", 0));
	assert_int_equal(tokens_remove(&writer, "narrow", &e), 0);
	assert_true(tokens_remove(&writer, "narrow", &e) < 0);
	assert_int_equal(e.kind, ERR_NOT_FOUND);
	assert_int_equal(tokens_refresh(&reader, &e), 0);
	assert_null(tokens_find(&reader, one, 0));
	assert_int_equal(reader.n, 1);
	tokens_done(&writer);
	tokens_done(&reader);
}

static void test_expiry(void **state)
{
	struct token brief = { .name = "brief", .expires = 1000 };
	struct tokens t;
	char secret[TOKEN_TEXT_SIZE];
	struct err e;

	(void)state;
	assert_int_equal(tokens_open(&t, path, &e), 0);
	assert_int_equal(tokens_add(&t, &brief, secret, &e), 0);
	assert_non_null(tokens_find(&t, secret, 999));
	assert_null(tokens_find(&t, secret, 1000));
	tokens_done(&t);
}

static void test_damage(void **state)
{
#define ONE  "{\"tokens\": [{\"name\": \"a\", \"sha256\": "
#define HASH "\"0000000000000000000000000000000000000000000000000000000000000000\", \"created\": 1"
	static const char *const texts[] = {
		"",
		"[]",
		"{}",
		"{\"tokens\": {}}",
		"{\"tokens\": [1]}",
		ONE "\"00\"}]}",
		ONE HASH ", \"other\": 1}]}",
		ONE HASH ", \"environments\": []}]}",
		ONE HASH ", \"environments\": [1]}]}",
		ONE HASH ", \"environments\": 1}]}",
		ONE HASH ", \"rate\": -1}]}",
		ONE HASH ", \"expires\": -1}]}",
		ONE HASH ", \"max_concurrent\": 4294967296}]}",
		ONE HASH ", \"name\": \"b\"}]}",
	};
	static const mode_t modes[] = { 0602, 0620 };
	struct tokens t;
	struct err e;
	FILE *f;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		f = fopen(path, "we");
		assert_non_null(f);
		assert_true(fputs(texts[i], f) >= 0 && fclose(f) == 0);
		assert_true(tokens_open(&t, path, &e) < 0);
		assert_int_equal(e.kind, ERR_INVALID);
		tokens_done(&t);
	}
	for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
		assert_int_equal(chmod(path, modes[i]), 0);
		assert_true(tokens_open(&t, path, &e) < 0);
		assert_int_equal(e.kind, ERR_ACCESS);
		tokens_done(&t);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_secret), cmocka_unit_test(test_names),  cmocka_unit_test(test_file),
		cmocka_unit_test(test_expiry), cmocka_unit_test(test_damage),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
