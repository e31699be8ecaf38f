/* SPDX-License-Identifier: Apache-2.0 */
/* What the HTTP door answers by itself: what there is no memory for is no success, and errors keep their shape. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fd.h"
#include "doors/door.h"
#include "doors/http_status.h"

static int status;
static char type[64];
static char headers[64];
static json_t *body;

const char *http_status_reason(int number)
{
	return number == 503 ? "Service Unavailable" : "Unprocessable Content";
}

void http_reply(struct http_conn *c, const struct http_answer *a)
{
	assert_null(c);
	status = a->status;
	(void)snprintf(type, sizeof(type), "%s", a->type);
	(void)snprintf(headers, sizeof(headers), "%s", a->headers ? a->headers : "");
	json_decref(body);
	body = json_loadb(a->body, a->len, JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(body);
	assert_true(a->frees_body);
	free((char *)(uintptr_t)a->body);
}

static const char *said(const char *name)
{
	return json_string_value(json_object_get(body, name));
}

static void test_answer(void **state)
{
	(void)state;
	answer_json(NULL, 202, strdup("{\"a\": \"b\"}"));
	assert_int_equal(status, 202);
	assert_string_equal(type, "application/json");
	assert_string_equal(said("a"), "b");
	answer_json(NULL, 200, NULL);
	assert_int_equal(status, 503);
	assert_string_equal(type, "application/problem+json");
	assert_string_equal(headers, RETRY_SOON);
	assert_string_equal(said("detail"), "no memory");
}

static void test_error(void **state)
{
	static const char error[] = "{\"error\": {\"field\": \"}{\\u00e4\", \"message\": \"m\"}}";
	struct problem p = { .status = 422, .type = "request-refused", .detail = "\xff\"", .error = error };
	struct buf b;
	json_t *o;

	(void)state;
	problem_reply(NULL, &p);
	assert_int_equal(json_integer_value(json_object_get(body, "status")), 422);
	assert_string_equal(said("detail"), "\xef\xbf\xbd\"");
	assert_string_equal(json_string_value(json_object_get(json_object_get(body, "error"), "field")), "}{\xc3\xa4");
	p.error = "{}";
	problem_reply(NULL, &p);
	assert_null(json_object_get(body, "error"));

	buf_init(&b, 200);
	assert_int_equal(buf_add(&b, "{\"n\": 1", 7), 0);
	assert_int_equal(problem_add_error(&b, error, strlen(error)), 0);
	assert_int_equal(problem_add_error(&b, "", 0), 0);
	assert_int_equal(problem_add_error(&b, "}{", 2), 0);
	assert_int_equal(buf_add(&b, "}", 1), 0);
	o = json_loadb(b.data, b.len, JSON_REJECT_DUPLICATES, NULL);
	assert_int_equal(json_object_size(o), 2);
	assert_string_equal(json_string_value(json_object_get(json_object_get(o, "error"), "message")), "m");
	json_decref(o);
	buf_done(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_answer), cmocka_unit_test(test_error) };
	int r = cmocka_run_group_tests(tests, NULL, NULL);

	json_decref(body);
	return r;
}
