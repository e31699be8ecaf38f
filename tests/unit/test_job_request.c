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

#include <jansson.h>

#include "base/clock.h"
#include "job/request.h"

struct fixture {
	struct job_rules rules;
	struct job j;
	struct job_error e;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	if (!f)
		return -1;
	job_rules_init(&f->rules);
	*state = f;
	return job_init(&f->j, &f->rules);
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	job_done(&f->j);
	free(f);
	return 0;
}

static void test_script_bytes(void **state)
{
	struct fixture *f = *state;
	struct job_error *e = &f->e;

	assert_int_equal(job_set_script(&f->j, &f->rules, "\xef\xbb\xbfprint()\r\n", 12, e), 0);
	assert_int_equal(f->j.script.len, 12); /* byte for byte, a byte order mark too */
	assert_int_equal(job_set_script(&f->j, &f->rules, "ab\xff", 3, e), -EINVAL);
	assert_string_equal(e->message, "script_content: byte 0xff at offset 2 is not allowed: UTF-8 text without NUL");
	assert_int_equal(job_set_script(&f->j, &f->rules, "ab\xe2\x82", 4, e), -EINVAL);
	assert_string_equal(e->given, "byte 0xe2 at offset 2");
	assert_int_equal(job_set_script(&f->j, &f->rules, "", 0, e), -EINVAL);
	assert_string_equal(e->field, "script_content");
	assert_string_equal(e->given, "an empty script");
	assert_string_equal(e->allowed, "1 to 1048576 bytes");
	assert_int_equal(f->j.script.len, 12); /* refusals change nothing */
	assert_int_equal(job_set_script(&f->j, &f->rules, "x", 1, e), 0);
	assert_string_equal(f->j.script.data, "x");
}

static void test_script_name_not_utf8(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(job_set_script_name(&f->j, "a\xff", &f->e), -EINVAL);
	assert_string_equal(f->e.message,
			    "script_name: \"a\\xff\" is not allowed: a file name in UTF-8 without control characters");
	assert_string_equal(f->j.script_name, "unnamed_script.py");
	assert_int_equal(job_set_script_name(&f->j, "-c", &f->e), 0);
}

static void test_timeout_ns(void **state)
{
	struct fixture *f = *state;

	f->rules.max_timeout_ns = 2500 * NS_PER_MS;
	assert_int_equal(job_set_timeout_ns(&f->j, &f->rules, 0, &f->e), -EINVAL);
	assert_string_equal(f->e.message, "timeout: 0 is not allowed: more than 0, at most 2.5 seconds");
	assert_int_equal(job_set_timeout_ns(&f->j, &f->rules, 2501 * NS_PER_MS, &f->e), -EINVAL);
	assert_string_equal(f->e.message, "timeout: 2.501 is not allowed: more than 0, at most 2.5 seconds");
	assert_int_equal(job_set_timeout_ns(&f->j, &f->rules, 2500 * NS_PER_MS, &f->e), 0);
	assert_int_equal(f->j.timeout_ns, 2500 * NS_PER_MS);
}

static void test_input_size(void **state)
{
	struct fixture *f = *state;
	char *big = calloc(1, JOB_STDIN_MAX + 1);

	assert_non_null(big);
	assert_int_equal(job_set_input(&f->j, big, JOB_STDIN_MAX, &f->e), 0);
	assert_int_equal(f->j.input.len, JOB_STDIN_MAX);
	assert_int_equal(job_set_input(&f->j, big, JOB_STDIN_MAX + 1, &f->e), -EINVAL);
	assert_string_equal(f->e.message, "stdin: 16777217 bytes is not allowed: at most 16777216 bytes");
	assert_int_equal(f->j.input.len, JOB_STDIN_MAX);
	free(big);
}

static void test_long_strings(void **state)
{
	struct fixture *f = *state;
	char *s = malloc(JOB_ARG_MAX + 1);

	assert_non_null(s);
	memset(s, 'a', JOB_ARG_MAX);
	s[JOB_ARG_MAX] = '\0';
	assert_int_equal(job_add_arg(&f->j, "x", &f->e), 0);
	assert_int_equal(job_add_arg(&f->j, s, &f->e), -EINVAL);
	assert_string_equal(f->e.message, "args[1]: 131072 bytes is not allowed: at most 131071 bytes each");
	assert_int_equal(job_add_arg(&f->j, s + 1, &f->e), 0);
	assert_int_equal(job_add_env(&f->j, "AB", s + 3, &f->e), -EINVAL); /* "AB=" counts */
	assert_string_equal(f->e.message, "env[\"AB\"]: 131072 bytes is not allowed: at most 131071 bytes each");
	assert_int_equal(job_add_env(&f->j, "AB", s + 4, &f->e), 0);
	assert_int_equal(f->j.args.n, 2);
	assert_int_equal(f->j.env.n, 1);
	free(s);
}

static void test_names_once(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(job_add_env(&f->j, "A", "1", &f->e), 0);
	assert_int_equal(job_add_env(&f->j, "A", "2", &f->e), -EINVAL);
	assert_string_equal(f->e.message, "env[\"A\"]: a second value is not allowed: each name once");
	assert_int_equal(job_add_file(&f->j, "a", "", 0, &f->e), 0);
	assert_int_equal(job_add_file(&f->j, "a", "", 0, &f->e), -EINVAL);
	assert_string_equal(f->e.message, "files[\"a\"]: a second file is not allowed: each name once");
}

static void test_path_lengths(void **state)
{
	struct fixture *f = *state;
	char name[1100];

	memset(name, 'n', sizeof(name));
	name[256] = '\0';
	assert_int_equal(job_add_file(&f->j, name, "", 0, &f->e), -EINVAL);
	assert_non_null(strstr(f->e.allowed, "parts of at most 255 bytes"));
	assert_true(strlen(f->e.field) < sizeof(f->e.field));
	name[255] = '\0';
	assert_int_equal(job_add_file(&f->j, name, "", 0, &f->e), 0);
	memset(name, 'n', sizeof(name));
	for (size_t i = 200; i < sizeof(name); i += 200)
		name[i] = '/';
	name[1025] = '\0';
	assert_int_equal(job_add_artifact(&f->j, name, &f->e), -EINVAL);
	assert_string_equal(f->e.allowed, "a relative path of 1 to 1024 bytes");
	name[1024] = '\0';
	assert_int_equal(job_add_artifact(&f->j, name, &f->e), 0);
}

static void test_limit_by_name(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(job_set_limit(&f->j, &f->rules, "cpus", 0.5, &f->e), 0);
	assert_int_equal(f->j.limits.cpu_milli, 500);
	assert_int_equal(job_set_limit(&f->j, &f->rules, "cpu_seconds", 0.1, &f->e), 0);
	assert_int_equal(f->j.limits.cpu_ns, 100000000); /* no trace of how a double holds 0.1 */
	assert_int_equal(job_set_limit(&f->j, &f->rules, "proceses", 1, &f->e), -EINVAL);
	assert_string_equal(
		f->e.message,
		"limits[\"proceses\"]: an unknown limit is not allowed: the nearest known one is processes");
	assert_int_equal(job_set_limit(&f->j, &f->rules, "processes", 0.0 / 1.0, &f->e), -EINVAL);
	assert_int_equal(job_set_limit(&f->j, &f->rules, "processes", strtod("nan", NULL), &f->e), -EINVAL);
	assert_int_equal(job_set_limit(&f->j, &f->rules, "processes", strtod("inf", NULL), &f->e), -EINVAL);
	assert_int_equal(f->j.limits.processes, 64);
}

static void test_choices(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(job_set_mode(&f->j, "warm", &f->e), 0);
	assert_string_equal(job_mode_name(f->j.mode), "warm");
	assert_int_equal(job_set_network(&f->j, "none", &f->e), 0);
	assert_string_equal(job_network_name(f->j.network), "none");
	assert_int_equal(job_set_output(&f->j, "base64", &f->e), 0);
	assert_int_equal(f->j.output, JOB_OUTPUT_BASE64);
	assert_int_equal(job_set_mode(&f->j, "", &f->e), -EINVAL);
	assert_string_equal(f->e.message, "mode: \"\" is not allowed: one of auto, warm, cold");
}

static void test_check_needs_a_script(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(job_check(&f->j, &f->rules, &f->e), -EINVAL);
	assert_string_equal(f->e.message, "script_content is missing: a string of 1 to 1048576 bytes");
	assert_int_equal(job_set_script(&f->j, &f->rules, "x", 1, &f->e), 0);
	assert_int_equal(job_check(&f->j, &f->rules, &f->e), 0);
}

static void test_check_tree(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(job_set_script(&f->j, &f->rules, "x", 1, &f->e), 0);
	assert_int_equal(job_set_script_name(&f->j, "m", &f->e), 0);
	assert_int_equal(job_add_file(&f->j, "a/x", "", 0, &f->e), 0);
	assert_int_equal(job_add_file(&f->j, "a b", "", 0, &f->e), 0); /* sorts between a and a/x by plain bytes */
	assert_int_equal(job_add_file(&f->j, "a.b/c/d", "", 0, &f->e), 0);
	assert_int_equal(job_add_file(&f->j, "a/y/z", "", 0, &f->e), 0);
	assert_int_equal(job_check(&f->j, &f->rules, &f->e), 0);
	/* folder, script, four files, folders a, a/y, a.b, a.b/c */
	f->j.limits.disk_files = 10;
	assert_int_equal(job_check(&f->j, &f->rules, &f->e), 0);
	f->j.limits.disk_files = 9;
	assert_int_equal(job_check(&f->j, &f->rules, &f->e), -EINVAL);
	assert_string_equal(f->e.given, "10 files and folders");
	f->j.limits.disk_files = 100;
	assert_int_equal(job_add_file(&f->j, "a", "", 0, &f->e), 0);
	assert_int_equal(job_check(&f->j, &f->rules, &f->e), -EINVAL);
	assert_non_null(strstr(f->e.message, "no file below a name that is itself a file"));
}

/* job_error_write() is JSON that says the same, whatever bytes a command line gave. */
static void test_error_object(void **state)
{
	struct fixture *f = *state;
	char *text;
	json_t *root;
	json_t *o;

	assert_int_equal(job_add_file(&f->j, "\"\\\xff\xe2\x82\xac\n/../", "", 0, &f->e), -EINVAL);
	text = job_error_write(&f->e);
	assert_non_null(text);
	assert_null(strchr(text, '\n'));
	root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(root);
	assert_int_equal(json_object_size(root), 1);
	o = json_object_get(root, "error");
	assert_int_equal(json_object_size(o), 4);
	assert_string_equal(json_string_value(json_object_get(o, "field")), f->e.field);
	assert_string_equal(json_string_value(json_object_get(o, "given")), "\"\\\"\\\\\\xff\xe2\x82\xac\\n/../\"");
	assert_string_equal(json_string_value(json_object_get(o, "allowed")), f->e.allowed);
	assert_string_equal(json_string_value(json_object_get(o, "message")), f->e.message);
	json_decref(root);
	free(text);
}

/* A name of wide characters is cut at one of them, in each member. */
static void test_cut_at_characters(void **state)
{
	struct fixture *f = *state;
	char name[900];
	char *text;

	for (size_t shift = 0; shift < 4; shift++) {
		memset(name, 'x', shift);
		for (size_t i = shift; i + 4 < sizeof(name); i += 4)
			memcpy(name + i, "\xf0\x9f\x98\x80", 5);
		assert_int_equal(job_add_file(&f->j, name, "", 0, &f->e), -EINVAL);
		text = job_error_write(&f->e); /* NULL when a member is no UTF-8 */
		assert_non_null(text);
		free(text);
	}
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_script_bytes),      T(test_script_name_not_utf8), T(test_timeout_ns),   T(test_input_size),
		T(test_long_strings),      T(test_names_once),           T(test_path_lengths), T(test_limit_by_name),
		T(test_choices),           T(test_check_needs_a_script), T(test_check_tree),   T(test_error_object),
		T(test_cut_at_characters),
	};

	return cmocka_run_group_tests_name("job/request", tests, NULL, NULL);
}
