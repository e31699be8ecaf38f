/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a message of the Model Context Protocol, over HTTP or not; then as what came of a run.  What goes out is
 * one line of JSON in every case.
 */
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "doors/mcp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define must(x)                                                                                                        \
	do {                                                                                                           \
		if (!(x))                                                                                              \
			__builtin_trap();                                                                              \
	} while (0)

static void check_line(const char *text, size_t len)
{
	json_t *root = json_loadb(text, len, JSON_ALLOW_NUL, NULL);

	must(json_is_object(root));
	must(!memchr(text, '\n', len) && !memchr(text, '\r', len));
	json_decref(root);
}

static void check_message(const struct mcp_message *m)
{
	must((m->what == MCP_ANSWERED) == (m->reply != NULL));
	must((m->what == MCP_CALL) == (m->request != NULL));
	must(m->http_status >= 200 && m->http_status < 500);
	if (m->reply)
		check_line(m->reply, m->reply_len);
	if (m->what == MCP_CALL)
		must(m->id && m->request_len >= 2 && m->request[0] == '{' && m->timeout_ns > 0);
	if (m->what == MCP_CANCEL)
		must(m->id && !m->reply && !m->request);
	if (m->id)
		must(strlen(m->id) <= 256);
}

static void check_result(const char *text, size_t size)
{
	json_t *root = json_loadb(text, size, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL);
	size_t len;
	char *reply;

	if (json_is_object(root)) { /* what a server of ours may say, or worse */
		reply = mcp_result_write("1", MCP_MODERN, text, size, &len);
		must(reply != NULL);
		check_line(reply, len);
		free(reply);
	}
	json_decref(root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct mcp_terms terms = { .timeout_ns = 25000000000, .max_timeout_ns = 3600000000000 };
	static const struct mcp_headers headers = { .version = MCP_MODERN_VERSION,
						    .method = "tools/call",
						    .name = "run_python" };
	const char *text = (const char *)data + 1;
	struct mcp_message m;

	if (size == 0)
		return 0;
	must(mcp_read(&terms, data[0] & 1 ? &headers : NULL, text, size - 1, &m) == 0);
	check_message(&m);
	mcp_message_done(&m);
	check_result(text, size - 1);
	return 0;
}
