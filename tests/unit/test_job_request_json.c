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
#include "job/request.h"

static struct job_rules rules;

static int setup(void **state)
{
	(void)state;
	job_rules_init(&rules);
	return 0;
}

static void takes(const char *json, struct job *ret)
{
	struct job_error e = { 0 };
	int r = job_parse(json, strlen(json), &rules, ret, &e);

	if (r != 0)
		fail_msg("%s\n gave %d: %s", json, r, e.message);
}

/* refuses_text() - -EINVAL with exactly that message, and the job untouched */
static void refuses_text(const char *json, size_t len, const char *message)
{
	struct job j;
	struct job untouched;
	struct job_error e = { 0 };
	int r;

	memset(&j, 0x5a, sizeof(j));
	untouched = j;
	r = job_parse(json, len, &rules, &j, &e);
	if (r != -EINVAL || strcmp(e.message, message) != 0)
		fail_msg("%.300s\n gave %d: %s\n not: %s", json, r, e.message, message);
	assert_memory_equal(&j, &untouched, sizeof(j));
	assert_true(e.field[0] && e.given[0] && e.allowed[0]);
}

static void refuses(const char *json, const char *message)
{
	refuses_text(json, strlen(json), message);
}

/* refuses_field() - the same with a script and this field beside it */
static void refuses_field(const char *field, const char *message)
{
	char json[2000];

	(void)snprintf(json, sizeof(json), "{\"script_content\": \"pass\", %s}", field);
	refuses(json, message);
}

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
	      "\"disk_bytes\": 131072, \"disk_files\": 20.0, \"open_files\": 3e1, \"output_bytes\": 0, \"output_bytes_hard\": 5},"
	      "\"environment\": \"sci-1.0\", \"artifacts\": [\"*.png\", \"out/**/[a-z]?.csv\"],"
	      "\"files\": {\"a/b.txt\": \"x\\u0000y\", \"c\": {\"base64\": \"AP8=\"}, \"a/\\u00e9\": \"\"},"
	      "\"env\": {\"A\": \"1\", \"_b2\": \"\\u20ac\"}, \"args\": [\"\", \"-x\", \"\\ud83d\\ude00\"],"
	      "\"stdin\": {\"base64\": \"/w==\"}, \"timeout\": 0.25, \"script_name\": \"\\u00e9 x.py\", \"script_content\": \"a\"}",
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
	refuses("{\"script_content\": \"a\"", "script_content: '}' expected near end of file (line 1, column 22) is not allowed: "
					      "JSON (RFC 8259) in UTF-8");
	refuses("{\"script_content\": \"a\"} x",
		"request: more text behind the object (line 1, column 25) is not allowed: one JSON object and nothing else");
	refuses("{\"timeout\": NaN}",
		"timeout: invalid token near 'NaN' (line 1, column 15) is not allowed: JSON (RFC 8259) in UTF-8");
	refuses("{\"timeout\": 01}", "timeout: invalid token near '0' (line 1, column 13) is not allowed: JSON (RFC 8259) in UTF-8");
	refuses("{\"script_content\": \"\xff\"}", "script_content: unable to decode byte 0xff near '\"' (line 1, column 20) is not "
						"allowed: JSON (RFC 8259) in UTF-8");
	refuses("{\"script_content\": \"\xed\xa0\x80\"}", "script_content: unable to decode byte 0xed near '\"' (line 1, column 20) "
							"is not allowed: JSON (RFC 8259) in UTF-8");
	refuses("{'a': 1}", "request: string or '}' expected near ''' (line 1, column 2) is not allowed: JSON (RFC 8259) in UTF-8");
	refuses_text(nul_behind, sizeof(nul_behind) - 1,
		     "request: more text behind the object (line 1, column 24) is not allowed: one JSON object and nothing else");
	refuses_text(nul_inside, sizeof(nul_inside) - 1, "script_content: control character 0x0 near '\"a' (line 1, column 21) is not "
							 "allowed: JSON (RFC 8259) in UTF-8");
}

static void test_surrogates(void **state)
{
	const char *words = "script_content: a lone surrogate (\\ud800 to \\udfff) is not allowed: surrogates in pairs only";

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
	refuses("{\"timeout\": 1, \"timeout\": 1}", "timeout: a second value is not allowed: each name once in an object");
	refuses("{\"timeout\": 1, \"t\\u0069meout\": 1}", "t\\u0069meout: a second value is not allowed: each name once in an object");
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
	refuses("{\"script_content\": \"a\\u0000\"}", "script_content: byte 0x00 at offset 1 is not allowed: UTF-8 text without NUL");
	refuses("{\"script_content\\u0000\": \"a\"}",
		"script_content\\u0000: a NUL character in a name is not allowed: names without NUL (\\u0000)");
	refuses_field("\"script_name\": \"a\\u0000\"",
		      "script_name: a NUL character is not allowed: a plain file name, without NUL (\\u0000)");
	refuses_field("\"args\": [\"\", \"\\u0000\"]", "args[1]: a NUL character is not allowed: a string, without NUL (\\u0000)");
	refuses_field("\"env\": {\"A\": \"\\u0000\"}", "env[\"A\"]: a NUL character is not allowed: a string, without NUL (\\u0000)");
	refuses_field("\"env\": {\"A\\u0000\": \"\"}",
		      "env[\"A\\\\u0000\"]: a NUL character in a name is not allowed: names without NUL (\\u0000)");
}

static void test_unknown_fields(void **state)
{
	(void)state;
	refuses("{\"timeuot\": 5}", "timeuot: an unknown field is not allowed: the nearest known one is timeout");
	refuses("{\"script\": \"\"}", "script: an unknown field is not allowed: the nearest known one is script_content");
	refuses("{\"Script-Name\": \"\"}", "Script-Name: an unknown field is not allowed: the nearest known one is script_name");
	refuses("{\"script_content\": 5, \"zzz\": 1}",
		"zzz: an unknown field is not allowed: known are script_content, script_name, timeout, stdin, args, env, files, "
		"artifacts, environment, limits, network, mode, buffered, output");
	refuses("{\"\": 1}", "\"\": an unknown field is not allowed: known are script_content, script_name, timeout, stdin, args, env, "
			     "files, artifacts, environment, limits, network, mode, buffered, output");
	refuses_field("\"limits\": {\"memory\": 5}",
		      "limits[\"memory\"]: an unknown limit is not allowed: the nearest known one is memory_bytes");
	refuses_field("\"limits\": {\"a\\nb\": 5}",
		      "limits[\"a\\nb\"]: an unknown limit is not allowed: known are memory_bytes, cpu_seconds, cpus, processes, "
		      "disk_bytes, disk_files, open_files, output_bytes, output_bytes_hard");
}

static void test_script(void **state)
{
	(void)state;
	refuses("{}", "script_content is missing: a string of 1 to 1048576 bytes");
	refuses("{\"timeout\": \"x\"}", "script_content is missing: a string of 1 to 1048576 bytes");
	refuses("{\"script_content\": null}", "script_content: null is not allowed: a string of 1 to 1048576 bytes");
	refuses("{\"script_content\": {\"base64\": \"YQ==\"}}",
		"script_content: an object is not allowed: a string of 1 to 1048576 bytes");
	refuses("{\"script_content\": \"\"}", "script_content: an empty script is not allowed: 1 to 1048576 bytes");
	rules.max_script_bytes = 3;
	refuses("{\"script_content\": \"abcd\"}", "script_content: a script of 4 bytes is not allowed: 1 to 3 bytes");
}

static void test_script_name(void **state)
{
	char json[600];
	char long_name[257];
	struct job j;

	(void)state;
	refuses_field("\"script_name\": 5", "script_name: 5 is not allowed: a plain file name");
	refuses_field("\"script_name\": \"\"", "script_name: \"\" is not allowed: a file name of 1 to 255 bytes");
	refuses_field("\"script_name\": \"a/b\"", "script_name: \"a/b\" is not allowed: a plain file name without \"/\"");
	refuses_field("\"script_name\": \".\"", "script_name: \".\" is not allowed: a file name, not a folder");
	refuses_field("\"script_name\": \"..\"", "script_name: \"..\" is not allowed: a file name, not a folder");
	refuses_field("\"script_name\": \"a\\u001bb\"",
		      "script_name: \"a\\x1bb\" is not allowed: a file name in UTF-8 without control characters");
	refuses_field("\"script_name\": \"a\\u0085\"",
		      "script_name: \"a\\x85\" is not allowed: a file name in UTF-8 without control characters");
	memset(long_name, 'n', 256);
	long_name[256] = '\0';
	(void)snprintf(json, sizeof(json), "{\"script_content\": \"a\", \"script_name\": \"%s\"}", long_name + 1);
	takes(json, &j);
	job_done(&j);
	(void)snprintf(json, sizeof(json), "\"script_name\": \"%s\"", long_name);
	refuses_field(json, "script_name: a name of 256 bytes is not allowed: a file name of 1 to 255 bytes");
}

static void test_timeout(void **state)
{
	struct job j;

	(void)state;
	refuses_field("\"timeout\": 0", "timeout: 0 is not allowed: more than 0, at most 3600 seconds");
	refuses_field("\"timeout\": -0.0", "timeout: -0 is not allowed: more than 0, at most 3600 seconds");
	refuses_field("\"timeout\": -1.5", "timeout: -1.5 is not allowed: more than 0, at most 3600 seconds");
	refuses_field("\"timeout\": 3600.001", "timeout: 3600.001 is not allowed: more than 0, at most 3600 seconds");
	refuses_field("\"timeout\": 99999999999999999999999999999999",
		      "timeout: 1e+32 is not allowed: more than 0, at most 3600 seconds");
	refuses_field("\"timeout\": 1e308", "timeout: 1e+308 is not allowed: more than 0, at most 3600 seconds");
	refuses_field("\"timeout\": 1e309",
		      "timeout: a number beyond 1e308 is not allowed: a number that a double can hold");
	refuses_field("\"timeout\": \"ten\"",
		      "timeout: \"ten\" is not allowed: a number of seconds, more than 0, at most 3600 seconds");
	refuses_field("\"timeout\": true", "timeout: true is not allowed: a number of seconds, more than 0, at most 3600 seconds");
	refuses_field("\"timeout\": null", "timeout: null is not allowed: a number of seconds, more than 0, at most 3600 seconds");
	takes("{\"script_content\": \"a\", \"timeout\": 1e-30}", &j);
	assert_int_equal(j.timeout_ns, 1);
	job_done(&j);
	takes("{\"script_content\": \"a\", \"timeout\": 3600}", &j);
	assert_int_equal(j.timeout_ns, 3600 * NS_PER_SEC);
	job_done(&j);
}

static void test_bytes(void **state)
{
	(void)state;
	refuses_field("\"stdin\": 5", "stdin: 5 is not allowed: a string or {\"base64\": \"...\"}");
	refuses_field("\"stdin\": {}", "stdin: an object is not allowed: a string or {\"base64\": \"...\"}");
	refuses_field("\"stdin\": {\"base64\": \"\", \"x\": 1}", "stdin: an object is not allowed: a string or {\"base64\": \"...\"}");
	refuses_field("\"stdin\": {\"base64\": 5}", "stdin: {\"base64\": 5} is not allowed: a string or {\"base64\": \"...\"}");
	refuses_field("\"stdin\": {\"base64\": \"YQ\"}",
		      "stdin: \"YQ\" is not allowed: base64 of RFC 4648 with padding and without white space");
	refuses_field("\"files\": {\"a\": {\"base64\": \"Y Q=\"}}",
		      "files[\"a\"]: \"Y Q=\" is not allowed: base64 of RFC 4648 with padding and without white space");
}

static void test_args_and_env(void **state)
{
	(void)state;
	refuses_field("\"args\": \"x\"", "args: \"x\" is not allowed: an array of strings");
	refuses_field("\"args\": [\"a\", 5]", "args[1]: 5 is not allowed: a string");
	refuses_field("\"args\": [null]", "args[0]: null is not allowed: a string");
	refuses_field("\"env\": []", "env: an array is not allowed: an object of strings");
	refuses_field("\"env\": {\"A\": 1}", "env[\"A\"]: 1 is not allowed: a string");
	refuses_field("\"env\": {\"A\": [[]]}", "env[\"A\"]: an array is not allowed: a string");
	refuses_field("\"env\": {\"1A\": \"\"}",
		      "env[\"1A\"]: \"1A\" is not allowed: names are letters, digits and \"_\", not beginning with a digit");
	refuses_field("\"env\": {\"\": \"\"}",
		      "env[\"\"]: \"\" is not allowed: names are letters, digits and \"_\", not beginning with a digit");
	refuses_field("\"env\": {\"A=B\": \"\"}",
		      "env[\"A=B\"]: \"A=B\" is not allowed: names are letters, digits and \"_\", not beginning with a digit");
	refuses_field("\"env\": {\"\\u00e9\": \"\"}", "env[\"\xc3\xa9\"]: \"\xc3\xa9\" is not allowed: names are letters, digits and "
						      "\"_\", not beginning with a digit");
}

static void test_files(void **state)
{
	(void)state;
	refuses_field("\"files\": \"x\"", "files: \"x\" is not allowed: an object of names, each with a string or {\"base64\": \"...\"}");
	refuses_field("\"files\": {\"a\": 1}", "files[\"a\"]: 1 is not allowed: a string or {\"base64\": \"...\"}");
	refuses_field("\"files\": {\"a/../b\": \"\"}",
		      "files[\"a/../b\"]: \"a/../b\" is not allowed: a relative path without empty parts, \".\" or \"..\"");
	refuses_field("\"files\": {\"./b\": \"\"}",
		      "files[\"./b\"]: \"./b\" is not allowed: a relative path without empty parts, \".\" or \"..\"");
	refuses_field("\"files\": {\"a/\": \"\"}",
		      "files[\"a/\"]: \"a/\" is not allowed: a relative path without empty parts, \".\" or \"..\"");
	refuses_field("\"files\": {\"a//b\": \"\"}",
		      "files[\"a//b\"]: \"a//b\" is not allowed: a relative path without empty parts, \".\" or \"..\"");
	refuses_field("\"files\": {\"/a\": \"\"}",
		      "files[\"/a\"]: \"/a\" is not allowed: a relative path (below the script's folder)");
	refuses_field("\"files\": {\"\": \"\"}", "files[\"\"]: \"\" is not allowed: a relative path of 1 to 1024 bytes");
	refuses_field("\"files\": {\"a\\nb\": \"\"}",
		      "files[\"a\\nb\"]: \"a\\nb\" is not allowed: a path in UTF-8 without control characters");
	refuses_field("\"files\": {\"unnamed_script.py\": \"\"}",
		      "files[\"unnamed_script.py\"]: the script's own name is not allowed: any other name than script_name");
	refuses_field("\"files\": {\"unnamed_script.py/a\": \"\"}", "files[\"unnamed_script.py/a\"]: \"unnamed_script.py/a\" is not "
								    "allowed: no file below a name that is itself a file");
	refuses_field("\"files\": {\"a/b/c\": \"\", \"a-b\": \"\", \"a/b\": \"\"}",
		      "files[\"a/b/c\"]: \"a/b/c\" is not allowed: no file below a name that is itself a file");
}

static void test_artifacts(void **state)
{
	(void)state;
	refuses_field("\"artifacts\": {}", "artifacts: an object is not allowed: an array of glob patterns (strings)");
	refuses_field("\"artifacts\": [\"a\", 1]", "artifacts[1]: 1 is not allowed: a string");
	refuses_field("\"artifacts\": [\"../*\"]",
		      "artifacts[0]: \"../*\" is not allowed: a relative path without empty parts, \".\" or \"..\"");
	refuses_field("\"artifacts\": [\"*\", \"/etc/passwd\"]",
		      "artifacts[1]: \"/etc/passwd\" is not allowed: a relative path (below the script's folder)");
}

static void test_choices(void **state)
{
	(void)state;
	refuses_field("\"mode\": \"hot\"", "mode: \"hot\" is not allowed: one of auto, warm, cold");
	refuses_field("\"mode\": 5", "mode: 5 is not allowed: one of auto, warm, cold");
	refuses_field("\"network\": \"host\"", "network: \"host\" is not allowed: one of loopback, none");
	refuses_field("\"network\": null", "network: null is not allowed: one of loopback, none");
	refuses_field("\"output\": \"Text\"", "output: \"Text\" is not allowed: one of text, base64");
	refuses_field("\"buffered\": 1", "buffered: 1 is not allowed: true or false");
	refuses_field("\"buffered\": \"yes\"", "buffered: \"yes\" is not allowed: true or false");
	refuses_field("\"environment\": \"a/b\"", "environment: \"a/b\" is not allowed: 1 to 32 of A-Z, a-z, 0-9, \".\", \"_\", \"-\", not "
						  "beginning with \".\" or \"-\"");
}

static void test_limits(void **state)
{
	struct job j;

	(void)state;
	refuses_field("\"limits\": 5", "limits: 5 is not allowed: an object of numbers");
	refuses_field("\"limits\": {\"memory_bytes\": \"1g\"}", "limits.memory_bytes: \"1g\" is not allowed: a whole number, at least "
								"16777216, at most 1125899906842624 bytes");
	refuses_field("\"limits\": {\"memory_bytes\": 16777215}", "limits.memory_bytes: 16777215 is not allowed: a whole number, at "
								  "least 16777216, at most 1125899906842624 bytes");
	refuses_field("\"limits\": {\"memory_bytes\": 33554432.5}", "limits.memory_bytes: 33554432.5 is not allowed: a whole number, "
								    "at least 16777216, at most 1125899906842624 bytes");
	refuses_field("\"limits\": {\"memory_bytes\": 18446744073709551617}",
		      "limits.memory_bytes: 1.8446744073709552e+19 is not allowed: a whole number, at least 16777216, at most "
		      "1125899906842624 bytes");
	refuses_field("\"limits\": {\"processes\": 4294967297}", "limits.processes: 4294967297 is not allowed: a whole number, at least "
								 "1, at most 4194304 processes");
	refuses_field("\"limits\": {\"processes\": true}",
		      "limits.processes: true is not allowed: a whole number, at least 1, at most 4194304 processes");
	refuses_field("\"limits\": {\"cpus\": 0}", "limits.cpus: 0 is not allowed: a number, at least 0.01, at most 1024 CPUs");
	refuses_field("\"limits\": {\"cpu_seconds\": 0}",
		      "limits.cpu_seconds: 0 is not allowed: a number, at least 0.001, at most 100000000 seconds");
	refuses_field("\"limits\": {\"cpu_seconds\": -1e300}",
		      "limits.cpu_seconds: -1e+300 is not allowed: a number, at least 0.001, at most 100000000 seconds");
	refuses_field("\"limits\": {\"output_bytes\": -1}",
		      "limits.output_bytes: -1 is not allowed: a whole number, at least 0, at most 1073741824 bytes");
	rules.max.memory_bytes = UINT64_C(1) << 30;
	rules.max.cpu_ns = 5 * NS_PER_SEC;
	refuses_field("\"limits\": {\"memory_bytes\": 1073741825}",
		      "limits.memory_bytes: 1073741825 is not allowed: a whole number, at least 16777216, at most 1073741824 bytes");
	refuses_field("\"limits\": {\"cpu_seconds\": 5.001}",
		      "limits.cpu_seconds: 5.001 is not allowed: a number, at least 0.001, at most 5 seconds");
	takes("{\"script_content\": \"a\"}", &j);
	assert_int_equal(j.limits.cpu_ns, 5 * NS_PER_SEC); /* no CPU limit asked for: the maximum holds all the same */
	job_done(&j);
	takes("{\"script_content\": \"a\", \"limits\": {\"memory_bytes\": 1073741824, \"cpus\": 1.0004}}", &j);
	assert_int_equal(j.limits.memory_bytes, 1 << 30);
	assert_int_equal(j.limits.cpu_milli, 1000);
	job_done(&j);
}

static void test_profiles(void **state)
{
	static const struct job_profile profiles[] = {
		{ .name = "default" },
		{ .name = "sci", .limits = { .disk_bytes = 1 << 20, .processes = 7 }, .mode = JOB_MODE_COLD },
	};
	struct job j;

	(void)state;
	rules.profiles = profiles;
	rules.n_profiles = 2;
	refuses_field("\"environment\": \"nope\"", "environment: \"nope\" is not allowed: one of default, sci");
	takes("{\"script_content\": \"a\", \"environment\": \"sci\", \"limits\": {\"processes\": 9}}", &j);
	assert_int_equal(j.limits.processes, 9); /* what was asked for stands */
	assert_int_equal(j.limits.disk_bytes, 1 << 20);
	assert_int_equal(j.mode, JOB_MODE_COLD);
	job_done(&j);
	takes("{\"script_content\": \"a\", \"environment\": \"sci\", \"mode\": \"warm\"}", &j);
	assert_int_equal(j.mode, JOB_MODE_WARM);
	job_done(&j);
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
	refuses_many("{\"args\": [", "{}", 200000, "]}", "request: a flood of values is not allowed: at most 262144 values");
	refuses_many("{\"script_content\": \"a\", \"files\": {", "\"f#\": \"\"", 257, "}}",
		     "files: one more file is not allowed: at most 256 files");
	refuses_many("{\"script_content\": \"a\", \"artifacts\": [", "\"f#\"", 65, "]}",
		     "artifacts: one more pattern is not allowed: at most 64 patterns");
	refuses_many("{\"script_content\": \"a\", \"args\": [", "\"\"", 116509, "]}",
		     "args and env: 1048581 bytes is not allowed: together at most 1048576 bytes, 9 for each string included");
	refuses_many("{\"script_content\": \"a\", \"limits\": {\"disk_files\": 16}, \"files\": {", "\"f/#\": \"\"", 14, "}}",
		     "files: 17 files and folders is not allowed: at most 16 (limits.disk_files), script and its folder included");
	refuses_many("{\"script_content\": \"a\", \"limits\": {\"disk_bytes\": 65536}, \"files\": {", "\"f#\": \"x\"", 16, "}}",
		     "files: 69632 bytes is not allowed: with the script at most 65536 bytes (limits.disk_bytes), in whole pages "
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
		cmocka_unit_test_setup(test_script, setup),
		cmocka_unit_test_setup(test_script_name, setup),
		cmocka_unit_test_setup(test_timeout, setup),
		cmocka_unit_test_setup(test_bytes, setup),
		cmocka_unit_test_setup(test_args_and_env, setup),
		cmocka_unit_test_setup(test_files, setup),
		cmocka_unit_test_setup(test_artifacts, setup),
		cmocka_unit_test_setup(test_choices, setup),
		cmocka_unit_test_setup(test_limits, setup),
		cmocka_unit_test_setup(test_profiles, setup),
		cmocka_unit_test_setup(test_floods, setup),
		cmocka_unit_test_setup(test_brackets_in_strings_are_no_nesting, setup),
		cmocka_unit_test_setup(test_full_size, setup),
	};

	return cmocka_run_group_tests_name("job/request_json", tests, NULL, NULL);
}
