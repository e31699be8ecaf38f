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
#include "base/clock.h"
#include "request_support.h"

static void test_smallest(void **state)
{
	struct job j;

	(void)state;
	takes(" {\"script_content\": \"print(1)\\n\"}\n", &j);
	assert_string_equal(j.script.data, "print(1)\n");
	assert_int_equal(j.script.len, 9);
	assert_string_equal(j.script_name, "unnamed_script.py");
	assert_string_equal(j.environment, "default");
	assert_int_equal(j.timeout_ns, 60 * NS_PER_SEC);
	assert_int_equal(j.input.len, 0);
	assert_string_equal(j.input.data, "");
	assert_int_equal(j.args.n + j.env.n + j.files.n + j.artifacts.n, 0);
	assert_memory_equal(&j.limits, &rules.defaults, sizeof(j.limits));
	assert_int_equal(j.limits_given, 0);
	assert_int_equal(j.network, JOB_NETWORK_LOOPBACK);
	assert_int_equal(j.mode, JOB_MODE_AUTO);
	assert_false(j.is_buffered);
	assert_int_equal(j.output, JOB_OUTPUT_TEXT);
	job_done(&j);
	job_done(&j); /* twice is harmless */
}

static void test_everything(void **state)
{
	struct job j;

	(void)state;
	takes("{\"output\": \"base64\", \"buffered\": true, \"mode\": \"cold\", \"network\": \"none\","
	      "\"limits\": {\"memory_bytes\": 33554432, \"cpu_seconds\": 1.5, \"cpus\": 0.25, \"processes\": 2,"
	      "\"disk_bytes\": 131072, \"disk_files\": 20.0, \"open_files\": 3e1, \"output_bytes\": 0, "
	      "\"output_bytes_hard\": 5},"
	      "\"environment\": \"sci-1.0\", \"artifacts\": [\"*.png\", \"out/**/[a-z]?.csv\"],"
	      "\"files\": {\"a/b.txt\": \"x\\u0000y\", \"c\": {\"base64\": \"AP8=\"}, \"a/\\u00e9\": \"\"},"
	      "\"env\": {\"A\": \"1\", \"_b2\": \"\\u20ac\"}, \"args\": [\"\", \"-x\", \"\\ud83d\\ude00\"],"
	      "\"stdin\": {\"base64\": \"/w==\"}, \"timeout\": 0.25, \"script_name\": \"\\u00e9 x.py\", "
	      "\"script_content\": \"a\"}",
	      &j);
	assert_int_equal(j.output, JOB_OUTPUT_BASE64);
	assert_true(j.is_buffered);
	assert_int_equal(j.mode, JOB_MODE_COLD);
	assert_int_equal(j.network, JOB_NETWORK_NONE);
	assert_int_equal(j.limits.memory_bytes, 33554432);
	assert_int_equal(j.limits.cpu_ns, 1500000000);
	assert_int_equal(j.limits.cpu_milli, 250);
	assert_int_equal(j.limits.processes, 2);
	assert_int_equal(j.limits.disk_bytes, 131072);
	assert_int_equal(j.limits.disk_files, 20);
	assert_int_equal(j.limits.open_files, 30);
	assert_int_equal(j.limits.output_bytes, 0);
	assert_int_equal(j.limits.output_bytes_hard, 5);
	assert_int_equal(j.limits_given, (1 << LIMIT_DEFS) - 1);
	assert_string_equal(j.environment, "sci-1.0");
	assert_int_equal(j.artifacts.n, 2);
	assert_null(j.artifacts.items[0].name);
	assert_string_equal(j.artifacts.items[1].body.data, "out/**/[a-z]?.csv");
	assert_int_equal(j.files.n, 3);
	assert_string_equal(j.files.items[0].name, "a/b.txt");
	assert_memory_equal(j.files.items[0].body.data, "x\0y", 4);
	assert_int_equal(j.files.items[1].body.len, 2);
	assert_memory_equal(j.files.items[1].body.data, "\0\xff", 3);
	assert_string_equal(j.files.items[2].name, "a/\xc3\xa9");
	assert_int_equal(j.env.n, 2);
	assert_string_equal(j.env.items[1].name, "_b2");
	assert_string_equal(j.env.items[1].body.data, "\xe2\x82\xac");
	assert_int_equal(j.args.n, 3);
	assert_string_equal(j.args.items[0].body.data, "");
	assert_string_equal(j.args.items[2].body.data, "\xf0\x9f\x98\x80");
	assert_int_equal(j.input.len, 1);
	assert_int_equal((unsigned char)j.input.data[0], 0xff);
	assert_int_equal(j.timeout_ns, 250000000);
	assert_string_equal(j.script_name, "\xc3\xa9 x.py");
	job_done(&j);
}

static void test_not_an_object(void **state)
{
	(void)state;
	refuses("", "request: an empty text is not allowed: one JSON object");
	refuses("[]", "request: an array is not allowed: one JSON object");
	refuses("5", "request: 5 is not allowed: one JSON object");
	refuses("null", "request: null is not allowed: one JSON object");
	refuses("\"a\\nb\"", "request: \"a\\nb\" is not allowed: one JSON object");
	refuses("\xef\xbb\xbf{}", "request: a byte order mark is not allowed: JSON in UTF-8 without one");
}

static void test_broken_text(void **state)
{
	static const char nul_behind[] = "{\"script_content\": \"a\"}\0";
	static const char nul_inside[] = "{\"script_content\": \"a\0b\"}";

	(void)state;
	refuses("{\"script_content\": \"a\"",
		"script_content: '}' expected near end of file (line 1, column 22) is not allowed: "
		"JSON (RFC 8259) in UTF-8");
	refuses("{\"script_content\": \"a\"} x", "request: more text behind the object (line 1, column 25) is not "
						 "allowed: one JSON object and nothing else");
	refuses("{\"timeout\": NaN}",
		"timeout: invalid token near 'NaN' (line 1, column 15) is not allowed: JSON (RFC 8259) in UTF-8");
	refuses("{\"timeout\": 01}",
		"timeout: invalid token near '0' (line 1, column 13) is not allowed: JSON (RFC 8259) in UTF-8");
	refuses("{\"script_content\": \"\xff\"}",
		"script_content: unable to decode byte 0xff near '\"' (line 1, column 20) is not "
		"allowed: JSON (RFC 8259) in UTF-8");
	refuses("{\"script_content\": \"\xed\xa0\x80\"}",
		"script_content: unable to decode byte 0xed near '\"' (line 1, column 20) "
		"is not allowed: JSON (RFC 8259) in UTF-8");
	refuses("{'a': 1}",
		"request: string or '}' expected near ''' (line 1, column 2) is not allowed: JSON (RFC 8259) in UTF-8");
	refuses_text(nul_behind, sizeof(nul_behind) - 1,
		     "request: more text behind the object (line 1, column 24) is not allowed: one JSON object and "
		     "nothing else");
	refuses_text(nul_inside, sizeof(nul_inside) - 1,
		     "script_content: control character 0x0 near '\"a' (line 1, column 21) is not "
		     "allowed: JSON (RFC 8259) in UTF-8");
}

static void test_surrogates(void **state)
{
	const char *words =
		"script_content: a lone surrogate (\\ud800 to \\udfff) is not allowed: surrogates in pairs only";

	(void)state;
	refuses("{\"script_content\": \"\\ud800\"}", words);
	refuses("{\"script_content\": \"x\\udc00\"}", words);
	refuses("{\"script_content\": \"\\udc00\\ud800\"}", words);
	refuses("{\"script_content\": \"\\ud800\\u0041\"}", words);
	refuses("{\"script_content\": \"\\udbffx\"}", words);
	refuses("{\"args\": [\"a\", \"\\ud800\"]}",
		"args[1]: a lone surrogate (\\ud800 to \\udfff) is not allowed: surrogates in pairs only");
}

static void test_duplicates(void **state)
{
	(void)state;
	refuses("{\"timeout\": 1, \"timeout\": 1}",
		"timeout: a second value is not allowed: each name once in an object");
	refuses("{\"timeout\": 1, \"t\\u0069meout\": 1}",
		"t\\u0069meout: a second value is not allowed: each name once in an object");
	refuses("{\"env\": {\"A\": \"1\", \"B\": \"\", \"A\": \"1\"}}",
		"env[\"A\"]: a second value is not allowed: each name once in an object");
	refuses("{\"args\": [], \"limits\": {\"cpus\": 1, \"cpus\": 1}}",
		"limits.cpus: a second value is not allowed: each name once in an object");
	refuses("{\"files\": {\"a\": {\"base64\": \"\", \"base64\": \"\"}}}",
		"files[\"a\"]: a second value is not allowed: each name once in an object");
}

static void test_nul(void **state)
{
	(void)state;
	refuses("{\"script_content\": \"a\\u0000\"}",
		"script_content: byte 0x00 at offset 1 is not allowed: UTF-8 text without NUL");
	refuses("{\"script_content\\u0000\": \"a\"}",
		"script_content\\u0000: a NUL character in a name is not allowed: names without NUL (\\u0000)");
	refuses_field("\"script_name\": \"a\\u0000\"",
		      "script_name: a NUL character is not allowed: a plain file name, without NUL (\\u0000)");
	refuses_field("\"args\": [\"\", \"\\u0000\"]",
		      "args[1]: a NUL character is not allowed: a string, without NUL (\\u0000)");
	refuses_field("\"env\": {\"A\": \"\\u0000\"}",
		      "env[\"A\"]: a NUL character is not allowed: a string, without NUL (\\u0000)");
	refuses_field("\"env\": {\"A\\u0000\": \"\"}",
		      "env[\"A\\\\u0000\"]: a NUL character in a name is not allowed: names without NUL (\\u0000)");
}

static void test_unknown_fields(void **state)
{
	(void)state;
	refuses("{\"timeuot\": 5}", "timeuot: an unknown field is not allowed: the nearest known one is timeout");
	refuses("{\"script\": \"\"}",
		"script: an unknown field is not allowed: the nearest known one is script_content");
	refuses("{\"Script-Name\": \"\"}",
		"Script-Name: an unknown field is not allowed: the nearest known one is script_name");
	refuses("{\"script_content\": 5, \"zzz\": 1}",
		"zzz: an unknown field is not allowed: known are script_content, script_name, timeout, stdin, args, "
		"env, files, "
		"artifacts, environment, limits, network, mode, buffered, output");
	refuses("{\"\": 1}", "\"\": an unknown field is not allowed: known are script_content, script_name, timeout, "
			     "stdin, args, env, "
			     "files, artifacts, environment, limits, network, mode, buffered, output");
	refuses_field("\"limits\": {\"memory\": 5}",
		      "limits[\"memory\"]: an unknown limit is not allowed: the nearest known one is memory_bytes");
	refuses_field("\"limits\": {\"a\\nb\": 5}",
		      "limits[\"a\\nb\"]: an unknown limit is not allowed: known are memory_bytes, cpu_seconds, cpus, "
		      "processes, "
		      "disk_bytes, disk_files, open_files, output_bytes, output_bytes_hard");
}

/* many() - head, @n times @item with commas between ("#" in it is the count), tail */
static char *many(const char *head, const char *item, size_t n, const char *tail, size_t *ret_len)
{
	const char *hash = strchr(item, '#');
	size_t before = hash ? (size_t)(hash - item) : strlen(item);
	struct buf b;

	buf_init(&b, UINT64_C(1) << 30);
	assert_int_equal(buf_add(&b, head, strlen(head)), 0);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(buf_printf(&b, "%s%.*s", i ? "," : "", (int)before, item), 0);
		if (hash)
			assert_int_equal(buf_printf(&b, "%zu%s", i, hash + 1), 0);
	}
	assert_int_equal(buf_add(&b, tail, strlen(tail)), 0);
	*ret_len = b.len;
	return b.data;
}

static void refuses_many(const char *head, const char *item, size_t n, const char *tail, const char *message)
{
	size_t len;
	char *json = many(head, item, n, tail, &len);

	refuses_text(json, len, message);
	free(json);
}

static void test_floods(void **state)
{
	char *deep = malloc(100000);

	(void)state;
	assert_non_null(deep);
	memset(deep, '[', 100000);
	refuses_text(deep, 100000, "request: nesting without end is not allowed: at most 32 levels");
	free(deep);
	refuses_many("{\"args\": [", "{}", 200000, "]}",
		     "request: a flood of values is not allowed: at most 262144 values");
	refuses_many("{\"script_content\": \"a\", \"files\": {", "\"f#\": \"\"", 257, "}}",
		     "files: one more file is not allowed: at most 256 files");
	refuses_many("{\"script_content\": \"a\", \"artifacts\": [", "\"f#\"", 65, "]}",
		     "artifacts: one more pattern is not allowed: at most 64 patterns");
	refuses_many("{\"script_content\": \"a\", \"args\": [", "\"\"", 116509, "]}",
		     "args and env: 1048581 bytes is not allowed: together at most 1048576 bytes, 9 for each string "
		     "included");
	refuses_many("{\"script_content\": \"a\", \"limits\": {\"disk_files\": 16}, \"files\": {", "\"f/#\": \"\"", 14,
		     "}}",
		     "files: 17 files and folders is not allowed: at most 16 (limits.disk_files), script and its "
		     "folder included");
	refuses_many("{\"script_content\": \"a\", \"limits\": {\"disk_bytes\": 65536}, \"files\": {", "\"f#\": \"x\"",
		     16, "}}",
		     "files: 69632 bytes is not allowed: with the script at most 65536 bytes (limits.disk_bytes), in "
		     "whole pages "
		     "of 4096");
}

static void test_brackets_in_strings_are_no_nesting(void **state)
{
	struct job j;

	(void)state;
	takes("{\"script_content\": \"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\\\"{{{{{{{{{{{{\"}", &j);
	assert_int_equal(j.script.len, 53);
	job_done(&j);
}

static void test_full_size(void **state)
{
	size_t len;
	char *json = many("{\"script_content\": \"a\", \"args\": [", "\"\"", 116508, "]}", &len);
	struct job_error e;
	struct job j;

	(void)state;
	assert_int_equal(job_parse(json, len, &rules, &j, &e), 0);
	assert_int_equal(j.args.n, 116508);
	job_done(&j);
	free(json);
	json = many("{\"script_content\": \"a\", \"files\": {", "\"d#/f\": \"x\"", 256, "}}", &len);
	assert_int_equal(job_parse(json, len, &rules, &j, &e), 0);
	assert_int_equal(j.files.n, 256);
	job_done(&j);
	free(json);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_smallest, setup),
		cmocka_unit_test_setup(test_everything, setup),
		cmocka_unit_test_setup(test_not_an_object, setup),
		cmocka_unit_test_setup(test_broken_text, setup),
		cmocka_unit_test_setup(test_surrogates, setup),
		cmocka_unit_test_setup(test_duplicates, setup),
		cmocka_unit_test_setup(test_nul, setup),
		cmocka_unit_test_setup(test_unknown_fields, setup),
		cmocka_unit_test_setup(test_floods, setup),
		cmocka_unit_test_setup(test_brackets_in_strings_are_no_nesting, setup),
		cmocka_unit_test_setup(test_full_size, setup),
	};

	return cmocka_run_group_tests_name("job/request_json", tests, NULL, NULL);
}
