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

#include "doors/http_parse.h"

/* Parsed in a block of its very size, so that a sanitizer sees each step beside it; the caller frees *@text. */
static int parse(const char *request, char **text, struct http_head *h)
{
	size_t len = strlen(request);
	const char *why = NULL;
	int r;

	*text = malloc(len);
	assert_non_null(*text);
	memcpy(*text, request, len);
	r = http_head_parse(*text, len, h, &why);
	assert_true(r == 0 || (why && *why));
	return r;
}

static int status_of(const char *request)
{
	struct http_head h;
	char *text;
	int r = parse(request, &text, &h);

	free(text);
	return r;
}

static void test_a_request(void **state)
{
	struct http_head h;
	char *text;

	(void)state;
	assert_int_equal(
		parse("POST /v1/runs?a=1&b HTTP/1.1\r\nHost: x:1\r\nCONTENT-type: \t a/b \r\nContent-Length: 12\r\n"
		      "X-Empty:\r\nExpect: 100-Continue\r\n\r\n",
		      &text, &h),
		0);
	assert_int_equal(h.method, HTTP_POST);
	assert_string_equal(h.path, "/v1/runs");
	assert_string_equal(h.query, "a=1&b");
	assert_string_equal(h.host, "x:1");
	assert_string_equal(h.content_type, "a/b");
	assert_string_equal(http_header(&h, "x-empty"), "");
	assert_null(http_header(&h, "x-other"));
	assert_int_equal(h.length, 12);
	assert_true(h.keeps_alive && h.expects_continue && !h.is_chunked && !h.is_1_0);
	free(text);
}

static void test_connection_and_version(void **state)
{
	static const struct {
		const char *request;
		bool keeps_alive;
	} cases[] = {
		{ "GET / HTTP/1.1\r\nHost: a\r\n\r\n", true },
		{ "GET / HTTP/1.1\r\nHost: a\r\nConnection: te, Close\r\n\r\n", false },
		{ "GET / HTTP/1.1\r\nHost: a\r\nConnection: closed\r\n\r\n", true },
		{ "GET / HTTP/1.0\r\n\r\n", false },
		{ "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", true },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct http_head h;
		char *text;

		assert_int_equal(parse(cases[i].request, &text, &h), 0);
		assert_int_equal(h.keeps_alive, cases[i].keeps_alive);
		free(text);
	}
}

static void test_absolute_target(void **state)
{
	struct http_head h;
	char *text;

	(void)state;
	assert_int_equal(parse("GET HTTP://right:80/a?b HTTP/1.1\r\nHost: wrong\r\n\r\n", &text, &h), 0);
	assert_string_equal(h.host, "right:80");
	assert_string_equal(h.path, "/a");
	assert_string_equal(h.query, "b");
	free(text);
	assert_int_equal(status_of("GET http:///a HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
	assert_int_equal(status_of("GET http://a HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
	assert_int_equal(status_of("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"), 0);
	assert_int_equal(status_of("GET * HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
}

static void test_refusals(void **state)
{
	(void)state;
	assert_int_equal(status_of("\r\n\r\n"), 400);
	assert_int_equal(status_of("GET / HTTP/1.1\r\n"), 400);
	assert_int_equal(status_of("GET / HTTP/1.1\r\n\r\n"), 400);
	assert_int_equal(status_of("GET / HTTP/1.1\r\nHost: a\n\r\n"), 400);
	assert_int_equal(
		status_of("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n"), 400);
	assert_int_equal(status_of("GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
	assert_int_equal(status_of("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n"), 501);
	assert_int_equal(status_of("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n"), 400);
	assert_int_equal(status_of("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1,1\r\n\r\n"), 400);
	assert_int_equal(status_of("GET / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n"), 400);
	assert_int_equal(status_of("GET / HTTP/1.1\r\nHost: a\r\nAuthorization: a\r\nAuthorization: b\r\n\r\n"), 400);
	assert_int_equal(status_of("GET / HTTP/3\r\nHost: a\r\n\r\n"), 505);
}

/* @text in pieces of @step bytes.  Return: what the last piece gave, the rest that does not belong to it in *@rest */
static int feed(const char *text, size_t step, struct buf *body, size_t *rest)
{
	struct http_chunked c = { .state = 0 };
	size_t len = strlen(text);
	size_t at = 0;
	int r = 0;

	while (r == 0 && at < len) {
		size_t used = 0;

		r = http_chunked_feed(&c, text + at, len - at < step ? len - at : step, &used, body);
		at += used;
	}
	*rest = len - at;
	return r;
}

static void test_chunks(void **state)
{
	static const char text[] = "3\r\nabc\r\n00A;x=\"y\"\r\n0123456789\r\n0\r\nTrailer: 1\r\nOther: 2\r\n\r\nNEXT";

	(void)state;
	for (size_t step = 1; step < sizeof(text); step++) {
		struct buf body;
		size_t rest;

		buf_init(&body, 13);
		assert_int_equal(feed(text, step, &body, &rest), 1);
		assert_string_equal(body.data, "abc0123456789");
		assert_int_equal(rest, 4);
		buf_done(&body);
	}
}

static void test_bad_chunks(void **state)
{
	static const struct {
		const char *text;
		int wanted;
	} cases[] = {
		{ "\r\n", -EINVAL },
		{ "g\r\n", -EINVAL },
		{ "-1\r\n", -EINVAL },
		{ "1\n", -EINVAL },
		{ "1\r\nab", -EINVAL },
		{ "1\r\na\n", -EINVAL },
		{ "0x1\r\n", -EINVAL },
		{ "123456789\r\n", -EINVAL },
		{ "1;a\nb\r\n", -EINVAL },
		{ "0\r\n\n", -EINVAL },
		{ "0\r\nA\nB", -EINVAL },
		{ "4\r\nabcd\r\n", -EFBIG },
		{ "2\r\nab\r\n2\r\ncd", -EFBIG },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		for (size_t step = 1; step < 4; step++) {
			struct buf body;
			size_t rest;
			int r;

			buf_init(&body, 3);
			r = feed(cases[i].text, step, &body, &rest);
			if (r == 0) /* a ceiling is told with the byte that passes it */
				fail_msg("%s", cases[i].text);
			assert_int_equal(r, cases[i].wanted);
			buf_done(&body);
		}
	}
}

static void test_query(void **state)
{
	static const char *const known[] = { "a", "bc", NULL };
	char buf[8];

	(void)state;
	assert_int_equal(http_query("a=1&bc=%41+%2b&d", "bc", buf, sizeof(buf)), 1);
	assert_string_equal(buf, "A +");
	assert_int_equal(http_query("a=1&bc", "bc", buf, sizeof(buf)), 1);
	assert_string_equal(buf, "");
	assert_int_equal(http_query("ab=1", "a", buf, sizeof(buf)), 0);
	assert_int_equal(http_query("", "a", buf, sizeof(buf)), 0);
	assert_int_equal(http_query("a=%4", "a", buf, sizeof(buf)), -EINVAL);
	assert_int_equal(http_query("a=%zz", "a", buf, sizeof(buf)), -EINVAL);
	assert_int_equal(http_query("a=%00", "a", buf, sizeof(buf)), -EINVAL);
	assert_int_equal(http_query("a=12345678", "a", buf, sizeof(buf)), -EINVAL);
	assert_false(http_query_unknown("a=1&bc&&a", known, buf, sizeof(buf)));
	assert_true(http_query_unknown("a=1&b=2", known, buf, sizeof(buf)));
	assert_string_equal(buf, "b");
}

static void test_media(void **state)
{
	(void)state;
	assert_true(http_is_media("Application/JSON", "application/json"));
	assert_true(http_is_media("application/json; charset=utf-8", "application/json"));
	assert_false(http_is_media("application/jsonp", "application/json"));
	assert_false(http_is_media(NULL, "application/json"));
	assert_int_equal(http_accept(NULL), HTTP_FORM_JSON);
	assert_int_equal(http_accept("text/html, */*"), HTTP_FORM_JSON);
	assert_int_equal(http_accept("text/event-stream"), HTTP_FORM_EVENTS);
	assert_int_equal(http_accept("application/json, text/event-stream"), HTTP_FORM_JSON);
	assert_int_equal(http_accept("text/html;q=1 , application/x-ndjson;q=0.5"), HTTP_FORM_LINES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_request),       cmocka_unit_test(test_connection_and_version),
		cmocka_unit_test(test_absolute_target), cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_chunks),          cmocka_unit_test(test_bad_chunks),
		cmocka_unit_test(test_query),           cmocka_unit_test(test_media),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
