/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp: what a message asks for.
 *
 * The tool's arguments, where a script of megabytes is, are cut out by the outline alone and go on as they came:
 * whoever runs them parses them.  What is left, the envelope, is small and parsed here.
 *
 *	mcp_json.c     the outline, and what goes out as it came
 *	mcp_reply.c    what is said without running anything
 *	mcp_tool.c     the tool: its description, a request of its arguments
 *	mcp_result.c   what a run came to, as a reply; mcp_text.c: in words; mcp_image.c: which pictures are shown
 *	mcp_call.c     calls under way, on an event loop
 *	mcp_stdio.c    on standard input and output; mcp_http.c: at the HTTP server; mcp_main.c: the program
 */
#include "doors/mcp.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "doors/mcp_reply.h"
#include "job/json.h"
#include "job/text.h"

#define META_VERSION      "io.modelcontextprotocol/protocolVersion"
#define META_CAPABILITIES "io.modelcontextprotocol/clientCapabilities"
#define ID_MAX            256 /* bytes of an id as JSON */

/* One message on its way through. */
struct reading {
	const struct mcp_terms *terms;
	const struct mcp_headers *headers; /* NULL: not HTTP */
	struct mcp_span arguments;         /* at: NULL: none were cut out */
	json_t *root;                      /* owned; the envelope */
	json_t *params;                    /* NULL: none */
	json_t *meta;                      /* NULL: none */
	const char *method;
	struct mcp_message *m;
	struct buf b; /* the reply */
};

/* Every way of saying no ends here.  Return: as buf_add() */
static int refuse(struct reading *q, int status, int code, const char *message, const char *data)
{
	q->m->what = MCP_ANSWERED;
	q->m->http_status = status;
	return mcp_reply_error(&q->b, q->m->id, code, message, data);
}

static const char *string_of(const json_t *object, const char *name)
{
	return json_string_value(json_object_get(object, name));
}

static bool is_same(const char *a, const char *b)
{
	return a && b && strcmp(a, b) == 0;
}

/* Mcp-Name says it in ASCII, or as =?base64?...?=. */
static bool is_header_value(const char *header, const char *value)
{
	static const char before[] = "=?base64?";
	size_t len = header ? strlen(header) : 0;
	auto_free char *plain = NULL;
	size_t n = 0;

	if (len < sizeof(before) + 1 || strncmp(header, before, sizeof(before) - 1) != 0 ||
	    strcmp(header + len - 2, "?=") != 0)
		return is_same(header, value);
	if (base64_decode(header + sizeof(before) - 1, len - sizeof(before) - 1, &plain, &n) < 0)
		return false;
	return value && n == strlen(value) && memcmp(plain, value, n) == 0;
}

/* What Mcp-Name has to repeat; NULL: this method has no such header */
static const char *name_of(const struct reading *q)
{
	if (is_same(q->method, "tools/call") || is_same(q->method, "prompts/get"))
		return string_of(q->params, "name");
	if (is_same(q->method, "resources/read"))
		return string_of(q->params, "uri");
	return NULL;
}

/* What the headers say must be what the body says.  Return: 1 it is; else as refuse() */
static int check_headers(struct reading *q, const char *version)
{
	const struct mcp_headers *h = q->headers;
	const char *name = name_of(q);
	const char *wrong = NULL;

	if (!h)
		return 1;
	if (!is_same(h->version, version))
		wrong = "MCP-Protocol-Version must be there and say what _meta says";
	else if (!is_same(h->method, q->method))
		wrong = "Mcp-Method must be there and say what method says";
	else if (name && !is_header_value(h->name, name))
		wrong = "Mcp-Name must be there and say what the parameters say";
	return wrong ? refuse(q, 400, MCP_HEADER_MISMATCH, wrong, NULL) : 1;
}

static int refuse_version(struct reading *q, const char *version)
{
	struct buf data;
	int r;

	buf_init(&data, MCP_REPLY_MAX);
	r = buf_printf(&data, "{\"supported\": [\"" MCP_MODERN_VERSION "\"], \"requested\": ");
	if (r == 0)
		r = job_json_add_text(&data, version, strlen(version));
	if (r == 0)
		r = buf_add(&data, "}", 1);
	if (r == 0)
		r = refuse(q, 400, MCP_UNSUPPORTED_VERSION, "this version of the protocol is not spoken here",
			   data.data);
	buf_done(&data);
	return r;
}

/* Who asks, in which version.  Return: 1 go on; else as refuse() */
static int find_era(struct reading *q)
{
	const char *header = q->headers ? q->headers->version : NULL;
	const json_t *version = json_object_get(q->meta, META_VERSION);
	const json_t *capabilities = json_object_get(q->meta, META_CAPABILITIES);
	int r;

	if (!version && !capabilities && !is_same(q->method, "server/discover") &&
	    !is_same(header, MCP_MODERN_VERSION)) {
		if (header && !mcp_version_is_legacy(header))
			return refuse(q, 400, MCP_INVALID_REQUEST, "MCP-Protocol-Version: not spoken here", NULL);
		return 1;
	}
	q->m->era = MCP_MODERN;
	if (!json_is_string(version) || !json_is_object(capabilities))
		return refuse(q, 400, MCP_INVALID_PARAMS,
			      "params._meta needs " META_VERSION " (a string) and " META_CAPABILITIES " (an object)",
			      NULL);
	r = check_headers(q, json_string_value(version));
	if (r == 1 && !is_same(json_string_value(version), MCP_MODERN_VERSION))
		return refuse_version(q, json_string_value(version));
	return r;
}

static int on_initialize(struct reading *q)
{
	q->m->is_initialize = true;
	return mcp_reply_hello(&q->b, q->m->id, string_of(q->params, "protocolVersion"));
}

static int on_discover(struct reading *q)
{
	return mcp_reply_discover(&q->b, q->m->id);
}

static int on_ping(struct reading *q)
{
	int r = mcp_reply_begin(&q->b, q->m->id, MCP_LEGACY);

	return r < 0 ? r : mcp_reply_end(&q->b);
}

static int on_tools_list(struct reading *q)
{
	auto_free char *tool = mcp_tool_describe(q->terms);

	q->m->is_serious = true;
	return tool ? mcp_reply_list(&q->b, q->m->id, q->m->era, "tools", tool) : -ENOMEM;
}

static int on_resources_list(struct reading *q)
{
	return mcp_reply_list(&q->b, q->m->id, q->m->era, "resources", "");
}

static int on_templates_list(struct reading *q)
{
	return mcp_reply_list(&q->b, q->m->id, q->m->era, "resourceTemplates", "");
}

static int on_prompts_list(struct reading *q)
{
	return mcp_reply_list(&q->b, q->m->id, q->m->era, "prompts", "");
}

static int on_resources_read(struct reading *q)
{
	const char *uri = string_of(q->params, "uri");
	struct buf data;
	int r;

	if (!uri)
		return refuse(q, 200, MCP_INVALID_PARAMS, "uri: a string is needed", NULL);
	buf_init(&data, MCP_REPLY_MAX);
	r = buf_printf(&data, "{\"uri\": ");
	if (r == 0)
		r = job_json_add_text(&data, uri, strlen(uri));
	if (r == 0)
		r = buf_add(&data, "}", 1);
	if (r == 0) /* the older era has a number of its own for this */
		r = refuse(q, 200, q->m->era == MCP_MODERN ? MCP_INVALID_PARAMS : -32002, "there is no such resource",
			   data.data);
	buf_done(&data);
	return r;
}

static int on_tools_call(struct reading *q)
{
	static const struct mcp_span nothing = { .at = "{}", .len = 2 };
	struct mcp_message *m = q->m;
	const char *name = string_of(q->params, "name");
	const json_t *arguments = json_object_get(q->params, "arguments");
	const json_t *token = json_object_get(q->meta, "progressToken");
	char text[160];

	if (!is_same(name, mcp_tool_name)) {
		(void)snprintf(text, sizeof(text), "%s; there is one: %s",
			       name ? "there is no such tool" : "name: a string is needed", mcp_tool_name);
		return refuse(q, 200, MCP_INVALID_PARAMS, text, NULL);
	}
	if (arguments && !json_is_object(arguments))
		return refuse(q, 200, MCP_INVALID_PARAMS, "arguments: an object is needed", NULL);
	if (json_is_string(token) || json_is_integer(token)) {
		m->progress = json_dumps(token, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
		if (!m->progress)
			return -ENOMEM;
	}
	m->what = MCP_CALL;
	m->is_serious = true;
	return mcp_tool_request(q->terms, q->arguments.at ? q->arguments : nothing, &m->request, &m->request_len,
				&m->timeout_ns);
}

static const struct method {
	const char *name;
	int (*on)(struct reading *q);
	bool in_legacy;
	bool in_modern;
} methods[] = {
	{ "initialize", on_initialize, true, false },
	{ "ping", on_ping, true, false },
	{ "server/discover", on_discover, false, true },
	{ "tools/list", on_tools_list, true, true },
	{ "tools/call", on_tools_call, true, true },
	{ "resources/list", on_resources_list, true, true },
	{ "resources/templates/list", on_templates_list, true, true },
	{ "resources/read", on_resources_read, true, true },
	{ "prompts/list", on_prompts_list, true, true },
};

static int on_request(struct reading *q)
{
	bool is_modern;
	int r = find_era(q);

	if (r != 1)
		return r;
	is_modern = q->m->era == MCP_MODERN;
	for (size_t i = 0; i < ARRAY_LEN(methods); i++) {
		if (strcmp(methods[i].name, q->method) == 0 &&
		    (is_modern ? methods[i].in_modern : methods[i].in_legacy)) {
			q->m->what = MCP_ANSWERED;
			q->m->http_status = 200;
			return methods[i].on(q);
		}
	}
	return refuse(q, is_modern ? 404 : 200, MCP_METHOD_NOT_FOUND, "there is no such method", NULL);
}

/* An id as it is repeated in replies.  Return: 0; -EINVAL: no id; -ENOMEM */
static int write_id(const json_t *id, char **ret)
{
	char *text;

	if (!json_is_string(id) && !json_is_integer(id))
		return -EINVAL;
	text = json_dumps(id, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
	if (!text)
		return -ENOMEM;
	if (strlen(text) > ID_MAX) {
		free(text);
		return -EINVAL;
	}
	*ret = text;
	return 0;
}

static int on_notification(struct reading *q)
{
	struct mcp_message *m = q->m;
	int r;

	m->is_serious = strcmp(q->method, "notifications/initialized") == 0;
	if (strcmp(q->method, "notifications/cancelled") != 0)
		return 0;
	r = write_id(json_object_get(q->params, "requestId"), &m->id);
	if (r == 0)
		m->what = MCP_CANCEL;
	return r == -ENOMEM ? r : 0;
}

static int on_message(struct reading *q)
{
	const json_t *id = json_object_get(q->root, "id");
	json_t *params = json_object_get(q->root, "params");
	int r = id ? write_id(id, &q->m->id) : 0;

	if (r == -ENOMEM)
		return r;
	q->method = string_of(q->root, "method");
	if (!q->method && (json_object_get(q->root, "result") || json_object_get(q->root, "error")))
		return 0; /* an answer to what was never asked */
	if (r < 0)
		return refuse(q, 400, MCP_INVALID_REQUEST,
			      "id: a string or a whole number is needed, of at most 256 bytes", NULL);
	if (!is_same(string_of(q->root, "jsonrpc"), "2.0") || !q->method)
		return refuse(q, 400, MCP_INVALID_REQUEST, "a message needs \"jsonrpc\": \"2.0\" and a method", NULL);
	if (params && !json_is_object(params))
		return id ? refuse(q, 400, MCP_INVALID_PARAMS, "params: an object is needed", NULL) : 0;
	q->params = params;
	q->meta = json_object_get(params, "_meta");
	return id ? on_request(q) : on_notification(q);
}

/* The message without the tool's arguments.  Return: as buf_add() */
static int cut(struct reading *q, const char *json, size_t len, struct buf *ret)
{
	struct mcp_span message = { .at = json, .len = len };
	struct mcp_span params;
	struct mcp_span arguments;
	size_t before;
	int r;

	if (mcp_json_member(message, "params", &params) != 1 || mcp_json_member(params, "arguments", &arguments) != 1 ||
	    *arguments.at != '{')
		return buf_add(ret, json, len);
	q->arguments = arguments;
	before = (size_t)(arguments.at - json);
	r = buf_add(ret, json, before);
	if (r == 0)
		r = buf_add(ret, "{}", 2);
	return r < 0 ? r : buf_add(ret, arguments.at + arguments.len, len - before - arguments.len);
}

static int read_envelope(struct reading *q, const char *json, size_t len)
{
	struct buf envelope;
	int r;

	buf_init(&envelope, MCP_ENVELOPE_MAX);
	r = cut(q, json, len, &envelope);
	if (r == 0)
		q->root = json_loadb(envelope.data ? envelope.data : "", envelope.len, JSON_REJECT_DUPLICATES, NULL);
	buf_done(&envelope);
	if (r == -EFBIG)
		return refuse(q, 413, MCP_INVALID_REQUEST, "the message, without its arguments, is longer than 64 KiB",
			      NULL);
	if (r < 0)
		return r;
	if (!q->root)
		return refuse(q, 400, MCP_PARSE_ERROR, "this is no JSON that could be understood", NULL);
	if (!json_is_object(q->root))
		return refuse(q, 400, MCP_INVALID_REQUEST, "one message, an object, is needed: there are no batches",
			      NULL);
	return on_message(q);
}

int mcp_read(const struct mcp_terms *t, const struct mcp_headers *h, const char *json, size_t len,
	     struct mcp_message *ret)
{
	struct mcp_message m = { .what = MCP_NOTHING, .http_status = 202 };
	struct reading q = { .terms = t, .headers = h, .m = &m };
	int r;

	buf_init(&q.b, MCP_REPLY_MAX);
	r = read_envelope(&q, json, len);
	json_decref(q.root);
	m.reply = q.b.data;
	m.reply_len = q.b.len;
	if (r < 0) {
		mcp_message_done(&m);
		return -ENOMEM;
	}
	*ret = m;
	return 0;
}

void mcp_message_done(struct mcp_message *m)
{
	free(m->reply);
	free(m->id);
	free(m->progress);
	free(m->request);
	*m = (struct mcp_message) { .what = MCP_NOTHING };
}
