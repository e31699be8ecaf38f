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
#include <signal.h>

#include "job/result.h"

static struct job the_job(uint64_t output_bytes)
{
	struct job j = { .script_name = (char *)(uintptr_t) "s.py", .mode = JOB_MODE_COLD };

	j.limits.output_bytes = output_bytes;
	return j;
}

static json_t *written(const struct result *r)
{
	char *text = result_write(r);
	json_t *o;

	assert_non_null(text);
	assert_null(strchr(text, '\n'));
	o = json_loads(text, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
	if (!o)
		fail_msg("not JSON: %s", text);
	free(text);
	return o;
}

static const char *text_of(json_t *o, const char *key)
{
	json_t *v = json_object_get(o, key);

	if (!json_is_string(v))
		fail_msg("%s is no string", key);
	return json_string_value(v);
}

/* The whole object, letter by letter: names, order, form of numbers. */
static void test_whole_object(void **state)
{
	struct job j = the_job(1000);
	struct result r;
	char *text;

	(void)state;
	result_init(&r, &j);
	r.status = STATUS_ERROR;
	r.return_code = 1;
	r.execution_ns = 15000400;
	r.cpu_ns = 9999999999;
	r.queue_ns = 0;
	memcpy(r.run_id, "0123456789abcdef0123456789abcdef", 33);
	assert_int_equal(keep_add(&r.out, "Hello from Python!\n", 19), 0);
	assert_int_equal(result_set_message(&r, "exited with %d", 1), 0);
	text = result_write(&r);
	assert_non_null(text);
	assert_string_equal(
		text,
		"{\"stdout\": \"Hello from Python!\\n\", \"stderr\": \"\", \"return_code\": 1, \"execution_time\": "
		"0.015, "
		"\"status\": \"error\", \"message\": \"exited with 1\", \"signal\": null, \"script_name\": \"s.py\", "
		"\"run_id\": \"0123456789abcdef0123456789abcdef\", \"mode\": \"cold\", \"cpu_time\": 10.0, "
		"\"peak_memory_bytes\": null, \"queue_time\": 0.0, \"stdout_bytes\": 19, \"stderr_bytes\": 0, "
		"\"stdout_truncated\": false, \"stderr_truncated\": false, \"stdout_encoding_errors\": false, "
		"\"stderr_encoding_errors\": false, \"artifacts\": [], \"denials\": null, \"warnings\": []}");
	free(text);
	result_done(&r);
	result_done(&r); /* twice is harmless */
}

static void test_nothing_is_claimed_at_first(void **state)
{
	struct job j = the_job(10);
	struct result r;
	json_t *o;

	(void)state;
	result_init(&r, &j);
	o = written(&r);
	assert_string_equal(text_of(o, "status"), "internal_error");
	assert_int_equal(json_integer_value(json_object_get(o, "return_code")), -125);
	assert_string_equal(text_of(o, "message"), "");
	assert_null(json_object_get(o, "stdout_base64"));
	json_decref(o);
	result_done(&r);
}

static void test_seconds_have_no_noise(void **state)
{
	static const struct {
		uint64_t ns;
		const char *text;
	} cases[] = {
		{ 0, "0.0" },
		{ 499, "0.0" },
		{ 500, "0.000001" },
		{ 10000000, "0.01" },
		{ 12345678, "0.012346" },
		{ 999999500, "1.0" },
		{ 3600000000000, "3600.0" },
		{ UINT64_MAX, "18446744073.709552" },
	};
	struct job j = the_job(10);
	struct result r;
	char expected[80];

	(void)state;
	result_init(&r, &j);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		char *text;

		r.execution_ns = cases[i].ns;
		text = result_write(&r);
		assert_non_null(text);
		(void)snprintf(expected, sizeof(expected), "\"execution_time\": %s,", cases[i].text);
		if (!strstr(text, expected))
			fail_msg("%s is not in %s", expected, text);
		free(text);
	}
	result_done(&r);
}

static void test_streams(void **state)
{
	struct job j = the_job(10);
	struct result r;
	json_t *o;

	(void)state;
	j.output = JOB_OUTPUT_BASE64;
	result_init(&r, &j);
	assert_int_equal(keep_add(&r.out, "a\xff\0\"\\\x1f", 6), 0);
	assert_int_equal(keep_add(&r.err, "0123456789abcdef", 16), 0);
	o = written(&r);
	assert_int_equal(json_string_length(json_object_get(o, "stdout")), 8);
	assert_memory_equal(text_of(o, "stdout"), "a\xef\xbf\xbd\0\"\\\x1f", 8);
	assert_string_equal(text_of(o, "stderr"), "01234[... 6 bytes left out ...]bcdef");
	assert_true(json_is_true(json_object_get(o, "stdout_encoding_errors")));
	assert_true(json_is_false(json_object_get(o, "stderr_encoding_errors")));
	assert_true(json_is_false(json_object_get(o, "stdout_truncated")));
	assert_true(json_is_true(json_object_get(o, "stderr_truncated")));
	assert_int_equal(json_integer_value(json_object_get(o, "stdout_bytes")), 6);
	assert_int_equal(json_integer_value(json_object_get(o, "stderr_bytes")), 16);
	assert_string_equal(text_of(o, "stdout_base64"), "Yf8AIlwf");
	assert_string_equal(text_of(o, "stderr_base64"), "MDEyMzRbLi4uIDYgYnl0ZXMgbGVmdCBvdXQgLi4uXWJjZGVm");
	json_decref(o);
	result_done(&r);
}

static void add_artifact(struct result *r, const char *name, const char *data, const char *left_out)
{
	struct artifact *a = &r->artifacts[r->n_artifacts++];

	*a = (struct artifact) { .name = strdup(name), .size = strlen(data) };
	a->left_out = left_out ? strdup(left_out) : NULL;
	if (!left_out)
		a->body = (struct job_blob) { .data = strdup(data), .len = strlen(data) };
}

static void artifact_is(json_t *list, size_t i, const char *name, const char *type, const char *base64)
{
	json_t *a = json_array_get(list, i);

	assert_string_equal(text_of(a, "name"), name);
	assert_string_equal(text_of(a, "media_type"), type);
	if (base64)
		assert_string_equal(text_of(a, "base64"), base64);
	else
		assert_null(json_object_get(a, "base64"));
}

static void test_artifacts(void **state)
{
	struct job j = the_job(10);
	struct result r;
	json_t *o;
	json_t *list;

	(void)state;
	result_init(&r, &j);
	r.artifacts = calloc(6, sizeof(*r.artifacts));
	assert_non_null(r.artifacts);
	add_artifact(&r, "plot.PNG", "abc", NULL);
	add_artifact(&r, "d.csv/x", "", NULL);
	add_artifact(&r, "bad\xff.json", "{}", NULL);
	add_artifact(&r, "big.bin", "12345", "larger than 8388608 bytes");
	add_artifact(&r, "a.tar.gz", "", NULL);
	add_artifact(&r, "noext", "", NULL);
	o = written(&r);
	list = json_object_get(o, "artifacts");
	assert_int_equal(json_array_size(list), 6);
	artifact_is(list, 0, "plot.PNG", "image/png", "YWJj");
	artifact_is(list, 1, "d.csv/x", "application/octet-stream", "");
	artifact_is(list, 2, "bad\xef\xbf\xbd.json", "application/json", "e30=");
	artifact_is(list, 3, "big.bin", "application/octet-stream", NULL);
	assert_string_equal(text_of(json_array_get(list, 3), "left_out"), "larger than 8388608 bytes");
	assert_int_equal(json_integer_value(json_object_get(json_array_get(list, 3), "size")), 5);
	artifact_is(list, 4, "a.tar.gz", "application/gzip", "");
	artifact_is(list, 5, "noext", "application/octet-stream", "");
	json_decref(o);
	result_done(&r);
}

static void test_messages_and_warnings(void **state)
{
	struct job j = the_job(10);
	struct result r;
	json_t *o;

	(void)state;
	result_init(&r, &j);
	assert_int_equal(result_set_message(&r, "first"), 0);
	assert_int_equal(result_set_message(&r, "then %s", "\xff\"\n"), 0);
	assert_int_equal(result_warn(&r, "memory is held by %s", "sampling"), 0);
	assert_int_equal(result_warn(&r, "memory is held by sampling"), 0);
	assert_int_equal(result_warn(&r, "other"), 0);
	r.signal = SIGKILL;
	r.has_peak_memory = true;
	r.peak_memory_bytes = UINT64_C(9007199254740993);
	o = written(&r);
	assert_string_equal(text_of(o, "message"), "then \xef\xbf\xbd\"\n");
	assert_int_equal(json_array_size(json_object_get(o, "warnings")), 2);
	assert_string_equal(json_string_value(json_array_get(json_object_get(o, "warnings"), 1)), "other");
	assert_string_equal(text_of(o, "signal"), "SIGKILL");
	assert_int_equal(json_integer_value(json_object_get(o, "peak_memory_bytes")), UINT64_C(9007199254740993));
	assert_true(json_is_null(json_object_get(o, "denials")));
	json_decref(o);
	result_done(&r);
}

static void test_exit_statuses(void **state)
{
	static const struct {
		struct result r;
		const char *name;
		int status;
	} cases[] = {
		{ { .status = STATUS_OK }, "ok", 0 },
		{ { .status = STATUS_ERROR, .return_code = 3 }, "error", 3 },
		{ { .status = STATUS_ERROR, .return_code = 137 }, "error", 137 },
		{ { .status = STATUS_SIGNALED, .return_code = -11, .signal = SIGSEGV }, "signaled", 139 },
		{ { .status = STATUS_TIMEOUT }, "timeout", 124 },
		{ { .status = STATUS_CPU_LIMIT }, "cpu_limit", 137 },
		{ { .status = STATUS_MEMORY_LIMIT }, "memory_limit", 137 },
		{ { .status = STATUS_OUTPUT_LIMIT }, "output_limit", 137 },
		{ { .status = STATUS_CANCELLED }, "cancelled", 130 },
		{ { .status = STATUS_REJECTED }, "rejected", 125 },
		{ { .status = STATUS_INTERNAL_ERROR }, "internal_error", 125 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		assert_int_equal(result_exit_status(&cases[i].r), cases[i].status);
		assert_string_equal(status_name(cases[i].r.status), cases[i].name);
	}
}

static void test_signal_names(void **state)
{
	char buf[24];

	(void)state;
	assert_string_equal(signal_name(9, buf, sizeof(buf)), "SIGKILL");
	assert_string_equal(signal_name(11, buf, sizeof(buf)), "SIGSEGV");
	assert_string_equal(signal_name(SIGRTMIN, buf, sizeof(buf)), "SIGRTMIN");
	assert_string_equal(signal_name(SIGRTMIN + 2, buf, sizeof(buf)), "SIGRTMIN+2");
	assert_string_equal(signal_name(33, buf, sizeof(buf)), "signal 33");
	assert_string_equal(signal_name(0, buf, sizeof(buf)), "signal 0");
	assert_string_equal(signal_name(-1, buf, sizeof(buf)), "signal -1");
	assert_string_equal(signal_name(9999, buf, sizeof(buf)), "signal 9999");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole_object),
		cmocka_unit_test(test_nothing_is_claimed_at_first),
		cmocka_unit_test(test_seconds_have_no_noise),
		cmocka_unit_test(test_streams),
		cmocka_unit_test(test_artifacts),
		cmocka_unit_test(test_messages_and_warnings),
		cmocka_unit_test(test_exit_statuses),
		cmocka_unit_test(test_signal_names),
	};

	return cmocka_run_group_tests_name("job/result", tests, NULL, NULL);
}
