/* SPDX-License-Identifier: Apache-2.0 */
/* What a message of the Model Context Protocol asks for, in both eras; whatever its bytes are. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "doors/mcp.h"

static const struct mcp_terms terms = { .timeout_ns = 25000000000, .max_timeout_ns = 3600000000000 };

#define META                                                                                                           \
	"\"_meta\": {\"io.modelcontextprotocol/protocolVersion\": \"2026-07-28\", "                                    \
	"\"io.modelcontextprotocol/clientCapabilities\": {}}"
#define MODERN(method, more)                                                                                           \
	"{\"jsonrpc\": \"2.0\", \"id\": 7, \"method\": \"" method "\", \"params\": {" META more "}}"
#define LEGACY(method, more) "{\"jsonrpc\": \"2.0\", \"id\": \"a\", \"method\": \"" method "\", \"params\": {" more "}}"

static struct mcp_message read_bytes(const struct mcp_headers *h, const char *text, size_t len)
{
	struct mcp_message m;

	assert_int_equal(mcp_read(&terms, h, text, len, &m), 0);
	return m;
}

static struct mcp_message read_text(const char *text)
{
	return read_bytes(NULL, text, strlen(text));
}

/* A reply is one line of JSON, of this protocol. */
static json_t *reply_of(const struct mcp_message *m)
{
	json_t *root;

	assert_int_equal(m->what, MCP_ANSWERED);
	assert_null(memchr(m->reply, '\n', m->reply_len));
	root = json_loadb(m->reply, m->reply_len, JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(root);
	assert_string_equal(json_string_value(json_object_get(root, "jsonrpc")), "2.0");
	return root;
}

static void is_refused(struct mcp_message m, int code, int status)
{
	json_t *root = reply_of(&m);

	assert_int_equal(json_integer_value(json_object_get(json_object_get(root, "error"), "code")), code);
	assert_int_equal(m.http_status, status);
	json_decref(root);
	mcp_message_done(&m);
}

/* The result of a request that is answered at once. */
static json_t *result_of(const char *text)
{
	struct mcp_message m = read_text(text);
	json_t *root = reply_of(&m);
	json_t *result = json_incref(json_object_get(root, "result"));

	assert_true(json_is_object(result));
	assert_int_equal(m.http_status, 200);
	json_decref(root);
	mcp_message_done(&m);
	return result;
}

static void is_call(const char *text, const char *request)
{
	struct mcp_message m = read_text(text);

	assert_int_equal(m.what, MCP_CALL);
	assert_null(m.reply);
	assert_string_equal(m.request, request);
	assert_int_equal(m.request_len, strlen(request));
	mcp_message_done(&m);
}

static void test_initialize(void **state)
{
	static const char *const asked_and_given[][2] = {
		{ "2025-11-25", "2025-11-25" }, { "2025-06-18", "2025-06-18" }, { "2024-11-05", "2024-11-05" },
		{ "2026-07-28", "2025-11-25" }, { "1999-01-01", "2025-11-25" },
	};
	char text[256];

	(void)state;
	for (size_t i = 0; i < sizeof(asked_and_given) / sizeof(*asked_and_given); i++) {
		json_t *result;

		(void)snprintf(text, sizeof(text), LEGACY("initialize", "\"protocolVersion\": \"%s\""),
			       asked_and_given[i][0]);
		result = result_of(text);
		assert_string_equal(json_string_value(json_object_get(result, "protocolVersion")),
				    asked_and_given[i][1]);
		assert_true(json_is_object(json_object_get(json_object_get(result, "capabilities"), "tools")));
		assert_null(json_object_get(result, "resultType"));
		json_decref(result);
	}
}

static void test_discover(void **state)
{
	json_t *result = result_of(MODERN("server/discover", ""));

	(void)state;
	assert_string_equal(json_string_value(json_object_get(result, "resultType")), "complete");
	assert_int_equal(json_array_size(json_object_get(result, "supportedVersions")), 1);
	assert_true(json_is_integer(json_object_get(result, "ttlMs")));
	assert_string_equal(json_string_value(json_object_get(result, "cacheScope")), "public");
	json_decref(result);
}

static void test_one_tool_in_both_eras(void **state)
{
	json_t *modern = result_of(MODERN("tools/list", ""));
	json_t *legacy = result_of(LEGACY("tools/list", ""));
	json_t *tool = json_array_get(json_object_get(modern, "tools"), 0);
	json_t *timeout =
		json_object_get(json_object_get(json_object_get(tool, "inputSchema"), "properties"), "timeout");

	(void)state;
	assert_true(json_equal(json_object_get(modern, "tools"), json_object_get(legacy, "tools")));
	assert_int_equal(json_array_size(json_object_get(modern, "tools")), 1);
	assert_string_equal(json_string_value(json_object_get(tool, "name")), "run_python");
	assert_true(strlen(json_string_value(json_object_get(tool, "description"))) < 2048);
	assert_int_equal(json_integer_value(json_object_get(timeout, "default")), 25);
	assert_int_equal(json_integer_value(json_object_get(timeout, "maximum")), 3600);
	assert_non_null(strstr(json_string_value(json_object_get(timeout, "description")), "25"));
	json_decref(modern);
	json_decref(legacy);
}

static void test_eras_do_not_mix(void **state)
{
	(void)state;
	is_refused(read_text(MODERN("initialize", "")), MCP_METHOD_NOT_FOUND, 404);
	is_refused(read_text(MODERN("ping", "")), MCP_METHOD_NOT_FOUND, 404);
	is_refused(read_text(MODERN("logging/setLevel", "")), MCP_METHOD_NOT_FOUND, 404);
	is_refused(read_text(LEGACY("logging/setLevel", "")), MCP_METHOD_NOT_FOUND, 200);
	is_refused(read_text(LEGACY("server/discover", "")), MCP_INVALID_PARAMS, 400);
	is_refused(read_text(LEGACY("tools/list",
				    "\"_meta\": {\"io.modelcontextprotocol/protocolVersion\": \"2026-07-28\"}")),
		   MCP_INVALID_PARAMS, 400);
	is_refused(read_text(LEGACY("tools/list",
				    "\"_meta\": {\"io.modelcontextprotocol/protocolVersion\": \"1900-01-01\", "
				    "\"io.modelcontextprotocol/clientCapabilities\": {}}")),
		   MCP_UNSUPPORTED_VERSION, 400);
}

static void test_arguments_pass_as_they_came(void **state)
{
	(void)state;
	is_call(LEGACY("tools/call",
		       "\"name\": \"run_python\", \"arguments\": {\"script_content\": \"1\\u0000\\ud800\", "
		       "\"timeout\" : 1e1}"),
		"{\"script_content\": \"1\\u0000\\ud800\", \"timeout\" : 1e1}");
	is_call(LEGACY("tools/call", "\"name\": \"run_python\", \"arguments\": {\"script_content\": \"}\\\\\\\"\"}"),
		"{\"timeout\": 25, \"script_content\": \"}\\\\\\\"\"}");
	is_call(MODERN("tools/call", ", \"name\": \"run_python\", \"arguments\": { }"), "{\"timeout\": 25 }");
	is_call(LEGACY("tools/call", "\"name\": \"run_python\""), "{\"timeout\": 25}");
	/* a name in escapes is that name; one given twice is for those who parse it */
	is_call(LEGACY("tools/call", "\"\\u0061rguments\": {\"\\u0074imeout\": 3}, \"name\": \"run_python\""),
		"{\"\\u0074imeout\": 3}");
	is_call(LEGACY("tools/call", "\"name\": \"run_python\", \"arguments\": {\"timeout\": 1, \"timeout\": 2}"),
		"{\"timeout\": 1, \"timeout\": 2}");
}

static void test_calls_that_are_none(void **state)
{
	(void)state;
	is_refused(read_text(LEGACY("tools/call", "\"name\": \"rm\", \"arguments\": {}")), MCP_INVALID_PARAMS, 200);
	is_refused(read_text(LEGACY("tools/call", "\"arguments\": {}")), MCP_INVALID_PARAMS, 200);
	is_refused(read_text(LEGACY("tools/call", "\"name\": \"run_python\", \"arguments\": [1]")), MCP_INVALID_PARAMS,
		   200);
	is_refused(read_text(LEGACY("tools/call", "\"name\": \"run_python\", \"arguments\": {}, \"arguments\": {}")),
		   MCP_PARSE_ERROR, 400);
	is_refused(read_text("{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"tools/call\", \"params\": []}"),
		   MCP_INVALID_PARAMS, 400);
}

static void test_call_keeps_id_and_token(void **state)
{
	struct mcp_message m =
		read_text(LEGACY("tools/call", "\"name\": \"run_python\", \"arguments\": {\"timeout\": 2.5}, "
					       "\"_meta\": {\"progressToken\": \"t\\\"\"}"));

	(void)state;
	assert_string_equal(m.id, "\"a\"");
	assert_string_equal(m.progress, "\"t\\\"\"");
	assert_int_equal(m.timeout_ns, 2500000000);
	assert_true(m.is_serious);
	mcp_message_done(&m);
}

static void test_ids(void **state)
{
	static const char *const bad[] = { "null", "1.5", "true", "[]", "{}" };
	char text[512];
	char long_id[300];

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		(void)snprintf(text, sizeof(text), "{\"jsonrpc\": \"2.0\", \"id\": %s, \"method\": \"ping\"}", bad[i]);
		is_refused(read_text(text), MCP_INVALID_REQUEST, 400);
	}
	memset(long_id, 'x', sizeof(long_id) - 1);
	long_id[sizeof(long_id) - 1] = '\0';
	(void)snprintf(text, sizeof(text), "{\"jsonrpc\": \"2.0\", \"id\": \"%s\", \"method\": \"ping\"}", long_id);
	is_refused(read_text(text), MCP_INVALID_REQUEST, 400);
}

static void test_no_messages(void **state)
{
	static const char nul[] = "{\"jsonrpc\": \"2.0\", \"id\": 1,\0 \"method\": \"ping\"}";
	char *deep = malloc(60000);

	(void)state;
	is_refused(read_text(""), MCP_PARSE_ERROR, 400);
	is_refused(read_text("{"), MCP_PARSE_ERROR, 400);
	is_refused(read_text("{\"a\": \"\xff\"}"), MCP_PARSE_ERROR, 400);
	is_refused(read_bytes(NULL, nul, sizeof(nul) - 1), MCP_PARSE_ERROR, 400);
	is_refused(read_text("[{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"ping\"}]"), MCP_INVALID_REQUEST, 400);
	is_refused(read_text("{\"id\": 1, \"method\": \"ping\"}"), MCP_INVALID_REQUEST, 400);
	is_refused(read_text("{\"jsonrpc\": \"2.0\", \"id\": 1}"), MCP_INVALID_REQUEST, 400);
	assert_non_null(deep);
	memset(deep, '[', 60000);
	is_refused(read_bytes(NULL, deep, 60000), MCP_PARSE_ERROR, 400);
	free(deep);
}

static void test_envelope_is_bounded_arguments_are_not(void **state)
{
	static const char before[] = "{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"tools/call\", \"params\": "
				     "{\"name\": \"run_python\", \"arguments\": {\"script_content\": \"";
	static const char after[] = "\"}}}";
	size_t fill = 100000;
	size_t len = sizeof(before) - 1 + fill + sizeof(after) - 1;
	char *text = malloc(len);
	struct mcp_message m;

	(void)state;
	assert_non_null(text);
	memset(text, '#', len);
	memcpy(text, before, sizeof(before) - 1);
	memcpy(text + len - (sizeof(after) - 1), after, sizeof(after) - 1);
	m = read_bytes(NULL, text, len);
	assert_int_equal(m.what, MCP_CALL);
	assert_true(m.request_len > fill);
	mcp_message_done(&m);
	memcpy(strstr(text, "arguments"), "argumentz", 9);
	is_refused(read_bytes(NULL, text, len), MCP_INVALID_REQUEST, 413);
	free(text);
}

static void test_notifications(void **state)
{
	struct mcp_message m = read_text("{\"jsonrpc\": \"2.0\", \"method\": \"notifications/initialized\"}");

	(void)state;
	assert_int_equal(m.what, MCP_NOTHING);
	assert_int_equal(m.http_status, 202);
	assert_true(m.is_serious && !m.id && !m.reply);
	m = read_text(
		"{\"jsonrpc\": \"2.0\", \"method\": \"notifications/cancelled\", \"params\": {\"requestId\": 12}}");
	assert_int_equal(m.what, MCP_CANCEL);
	assert_string_equal(m.id, "12");
	assert_null(m.reply);
	mcp_message_done(&m);
	m = read_text(
		"{\"jsonrpc\": \"2.0\", \"method\": \"notifications/cancelled\", \"params\": {\"requestId\": {}}}");
	assert_int_equal(m.what, MCP_NOTHING);
	m = read_text("{\"jsonrpc\": \"2.0\", \"id\": 4, \"result\": {}}");
	assert_int_equal(m.what, MCP_NOTHING);
	mcp_message_done(&m);
}

static void with_headers(const char *version, const char *method, const char *name, int code)
{
	static const char text[] = MODERN("tools/call", ", \"name\": \"run_python\", \"arguments\": {}");
	struct mcp_headers h = { .version = version, .method = method, .name = name };
	struct mcp_message m = read_bytes(&h, text, sizeof(text) - 1);

	if (code) {
		is_refused(m, code, 400);
		return;
	}
	assert_int_equal(m.what, MCP_CALL);
	mcp_message_done(&m);
}

static void test_headers(void **state)
{
	(void)state;
	with_headers("2026-07-28", "tools/call", "run_python", 0);
	with_headers("2026-07-28", "tools/call", "=?base64?cnVuX3B5dGhvbg==?=", 0);
	with_headers("2026-07-28", "tools/call", "=?base64?cnVuX3B5dGhvbg?=", MCP_HEADER_MISMATCH);
	with_headers("2026-07-28", "tools/call", "Run_python", MCP_HEADER_MISMATCH);
	with_headers("2026-07-28", "tools/call", NULL, MCP_HEADER_MISMATCH);
	with_headers("2026-07-28", "tools/list", "run_python", MCP_HEADER_MISMATCH);
	with_headers("2026-07-28", NULL, "run_python", MCP_HEADER_MISMATCH);
	with_headers("2025-11-25", "tools/call", "run_python", MCP_HEADER_MISMATCH);
	with_headers(NULL, "tools/call", "run_python", MCP_HEADER_MISMATCH);
}

static void test_legacy_headers(void **state)
{
	static const char text[] = LEGACY("ping", "");
	struct mcp_headers h = { .version = NULL };
	struct mcp_message m = read_bytes(&h, text, sizeof(text) - 1);

	(void)state;
	assert_int_equal(m.http_status, 200);
	mcp_message_done(&m);
	h.version = "2025-06-18";
	m = read_bytes(&h, text, sizeof(text) - 1);
	assert_int_equal(m.http_status, 200);
	mcp_message_done(&m);
	h.version = "yesterday";
	is_refused(read_bytes(&h, text, sizeof(text) - 1), MCP_INVALID_REQUEST, 400);
}

static void test_empty_lists(void **state)
{
	static const char *const names[][2] = {
		{ LEGACY("resources/list", ""), "resources" },
		{ MODERN("resources/list", ""), "resources" },
		{ MODERN("resources/templates/list", ""), "resourceTemplates" },
		{ LEGACY("prompts/list", ""), "prompts" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		json_t *result = result_of(names[i][0]);

		assert_true(json_is_array(json_object_get(result, names[i][1])));
		assert_int_equal(json_array_size(json_object_get(result, names[i][1])), 0);
		json_decref(result);
	}
	is_refused(read_text(MODERN("resources/read", ", \"uri\": \"x:y\"")), MCP_INVALID_PARAMS, 200);
	is_refused(read_text(LEGACY("resources/read", "\"uri\": \"x:y\"")), -32002, 200);
}

static void test_terms(void **state)
{
	struct job_rules rules;

	(void)state;
	job_rules_init(&rules);
	assert_int_equal(mcp_terms_of(&rules).timeout_ns, 25000000000);
	rules.timeout_ns = 10000000000;
	assert_int_equal(mcp_terms_of(&rules).timeout_ns, 10000000000);
	rules.max_timeout_ns = 5000000000;
	assert_int_equal(mcp_terms_of(&rules).timeout_ns, 5000000000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_initialize),
		cmocka_unit_test(test_discover),
		cmocka_unit_test(test_one_tool_in_both_eras),
		cmocka_unit_test(test_eras_do_not_mix),
		cmocka_unit_test(test_arguments_pass_as_they_came),
		cmocka_unit_test(test_calls_that_are_none),
		cmocka_unit_test(test_call_keeps_id_and_token),
		cmocka_unit_test(test_ids),
		cmocka_unit_test(test_no_messages),
		cmocka_unit_test(test_envelope_is_bounded_arguments_are_not),
		cmocka_unit_test(test_notifications),
		cmocka_unit_test(test_headers),
		cmocka_unit_test(test_legacy_headers),
		cmocka_unit_test(test_empty_lists),
		cmocka_unit_test(test_terms),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
