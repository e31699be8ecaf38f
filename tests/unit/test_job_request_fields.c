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
#include "request_support.h"

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
	refuses_field("\"script_name\": \"a/b\"",
		      "script_name: \"a/b\" is not allowed: a plain file name without \"/\"");
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
	refuses_field("\"timeout\": true",
		      "timeout: true is not allowed: a number of seconds, more than 0, at most 3600 seconds");
	refuses_field("\"timeout\": null",
		      "timeout: null is not allowed: a number of seconds, more than 0, at most 3600 seconds");
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
	refuses_field("\"stdin\": {\"base64\": \"\", \"x\": 1}",
		      "stdin: an object is not allowed: a string or {\"base64\": \"...\"}");
	refuses_field("\"stdin\": {\"base64\": 5}",
		      "stdin: {\"base64\": 5} is not allowed: a string or {\"base64\": \"...\"}");
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
	refuses_field(
		"\"env\": {\"1A\": \"\"}",
		"env[\"1A\"]: \"1A\" is not allowed: names are letters, digits and \"_\", not beginning with a digit");
	refuses_field(
		"\"env\": {\"\": \"\"}",
		"env[\"\"]: \"\" is not allowed: names are letters, digits and \"_\", not beginning with a digit");
	refuses_field("\"env\": {\"A=B\": \"\"}", "env[\"A=B\"]: \"A=B\" is not allowed: names are letters, digits and "
						  "\"_\", not beginning with a digit");
	refuses_field("\"env\": {\"\\u00e9\": \"\"}",
		      "env[\"\xc3\xa9\"]: \"\xc3\xa9\" is not allowed: names are letters, digits and "
		      "\"_\", not beginning with a digit");
}

static void test_files(void **state)
{
	(void)state;
	refuses_field("\"files\": \"x\"",
		      "files: \"x\" is not allowed: an object of names, each with a string or {\"base64\": \"...\"}");
	refuses_field("\"files\": {\"a\": 1}", "files[\"a\"]: 1 is not allowed: a string or {\"base64\": \"...\"}");
	refuses_field(
		"\"files\": {\"a/../b\": \"\"}",
		"files[\"a/../b\"]: \"a/../b\" is not allowed: a relative path without empty parts, \".\" or \"..\"");
	refuses_field("\"files\": {\"./b\": \"\"}",
		      "files[\"./b\"]: \"./b\" is not allowed: a relative path without empty parts, \".\" or \"..\"");
	refuses_field("\"files\": {\"a/\": \"\"}",
		      "files[\"a/\"]: \"a/\" is not allowed: a relative path without empty parts, \".\" or \"..\"");
	refuses_field("\"files\": {\"a//b\": \"\"}",
		      "files[\"a//b\"]: \"a//b\" is not allowed: a relative path without empty parts, \".\" or \"..\"");
	refuses_field("\"files\": {\"/a\": \"\"}",
		      "files[\"/a\"]: \"/a\" is not allowed: a relative path (below the script's folder)");
	refuses_field("\"files\": {\"\": \"\"}",
		      "files[\"\"]: \"\" is not allowed: a relative path of 1 to 1024 bytes");
	refuses_field("\"files\": {\"a\\nb\": \"\"}",
		      "files[\"a\\nb\"]: \"a\\nb\" is not allowed: a path in UTF-8 without control characters");
	refuses_field(
		"\"files\": {\"unnamed_script.py\": \"\"}",
		"files[\"unnamed_script.py\"]: the script's own name is not allowed: any other name than script_name");
	refuses_field("\"files\": {\"unnamed_script.py/a\": \"\"}",
		      "files[\"unnamed_script.py/a\"]: \"unnamed_script.py/a\" is not "
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
	refuses_field("\"environment\": \"a/b\"",
		      "environment: \"a/b\" is not allowed: 1 to 32 of A-Z, a-z, 0-9, \".\", \"_\", \"-\", not "
		      "beginning with \".\" or \"-\"");
}

static void test_limits(void **state)
{
	struct job j;

	(void)state;
	refuses_field("\"limits\": 5", "limits: 5 is not allowed: an object of numbers");
	refuses_field("\"limits\": {\"memory_bytes\": \"1g\"}",
		      "limits.memory_bytes: \"1g\" is not allowed: a whole number, at least "
		      "16777216, at most 1125899906842624 bytes");
	refuses_field("\"limits\": {\"memory_bytes\": 16777215}",
		      "limits.memory_bytes: 16777215 is not allowed: a whole number, at "
		      "least 16777216, at most 1125899906842624 bytes");
	refuses_field("\"limits\": {\"memory_bytes\": 33554432.5}",
		      "limits.memory_bytes: 33554432.5 is not allowed: a whole number, "
		      "at least 16777216, at most 1125899906842624 bytes");
	refuses_field("\"limits\": {\"memory_bytes\": 18446744073709551617}",
		      "limits.memory_bytes: 1.8446744073709552e+19 is not allowed: a whole number, at least 16777216, "
		      "at most "
		      "1125899906842624 bytes");
	refuses_field("\"limits\": {\"processes\": 4294967297}",
		      "limits.processes: 4294967297 is not allowed: a whole number, at least "
		      "1, at most 4194304 processes");
	refuses_field("\"limits\": {\"processes\": true}",
		      "limits.processes: true is not allowed: a whole number, at least 1, at most 4194304 processes");
	refuses_field("\"limits\": {\"cpus\": 0}",
		      "limits.cpus: 0 is not allowed: a number, at least 0.01, at most 1024 CPUs");
	refuses_field("\"limits\": {\"cpu_seconds\": 0}",
		      "limits.cpu_seconds: 0 is not allowed: a number, at least 0.001, at most 100000000 seconds");
	refuses_field(
		"\"limits\": {\"cpu_seconds\": -1e300}",
		"limits.cpu_seconds: -1e+300 is not allowed: a number, at least 0.001, at most 100000000 seconds");
	refuses_field("\"limits\": {\"output_bytes\": -1}",
		      "limits.output_bytes: -1 is not allowed: a whole number, at least 0, at most 1073741824 bytes");
	rules.max.memory_bytes = UINT64_C(1) << 30;
	rules.max.cpu_ns = 5 * NS_PER_SEC;
	refuses_field("\"limits\": {\"memory_bytes\": 1073741825}",
		      "limits.memory_bytes: 1073741825 is not allowed: a whole number, at least 16777216, at most "
		      "1073741824 bytes");
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_script, setup),       cmocka_unit_test_setup(test_script_name, setup),
		cmocka_unit_test_setup(test_timeout, setup),      cmocka_unit_test_setup(test_bytes, setup),
		cmocka_unit_test_setup(test_args_and_env, setup), cmocka_unit_test_setup(test_files, setup),
		cmocka_unit_test_setup(test_artifacts, setup),    cmocka_unit_test_setup(test_choices, setup),
		cmocka_unit_test_setup(test_limits, setup),       cmocka_unit_test_setup(test_profiles, setup),
	};

	return cmocka_run_group_tests_name("job/request fields", tests, NULL, NULL);
}
