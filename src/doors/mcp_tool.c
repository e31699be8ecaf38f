/* SPDX-License-Identifier: Apache-2.0 */
/* The one tool: what clients are told about it, and a request of its arguments. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "doors/mcp_reply.h"
#include "doors/mcp_tool_text.h"

#define USUAL_TIMEOUT_NS (25 * NS_PER_SEC)

const char mcp_tool_name[] = "run_python";

struct mcp_terms mcp_terms_of(const struct job_rules *rules)
{
	struct mcp_terms t = { .timeout_ns = USUAL_TIMEOUT_NS, .max_timeout_ns = rules->max_timeout_ns };

	if (t.timeout_ns > rules->timeout_ns)
		t.timeout_ns = rules->timeout_ns;
	if (t.timeout_ns > rules->max_timeout_ns)
		t.timeout_ns = rules->max_timeout_ns;
	return t;
}

static double seconds(uint64_t ns)
{
	return (double)ns / (double)NS_PER_SEC;
}

/* A whole number where it is one: not every reader of a schema likes 25.0. */
static json_t *number(double v)
{
	json_int_t whole = (json_int_t)v;

	return (double)whole < v ? json_real(v) : json_integer(whole);
}

/* What is true here alone: the time that a call has. */
static int describe_timeout(const struct mcp_terms *t, json_t *tool)
{
	json_t *timeout =
		json_object_get(json_object_get(json_object_get(tool, "inputSchema"), "properties"), "timeout");
	char text[240];

	(void)snprintf(text, sizeof(text),
		       "Seconds of wall clock until the script is killed (what it had printed is kept): %g unless "
		       "given. Many clients give a call up after 30 or 60 seconds and then lose its result.",
		       seconds(t->timeout_ns));
	if (!timeout || json_object_set_new(timeout, "description", json_string(text)) < 0 ||
	    json_object_set_new(timeout, "default", number(seconds(t->timeout_ns))) < 0)
		return -ENOMEM;
	if (t->max_timeout_ns && json_object_set_new(timeout, "maximum", number(seconds(t->max_timeout_ns))) < 0)
		return -ENOMEM;
	return 0;
}

char *mcp_tool_describe(const struct mcp_terms *t)
{
	json_t *tool = json_loads(mcp_tool_text, 0, NULL);
	char *text = NULL;

	if (tool && describe_timeout(t, tool) == 0)
		text = json_dumps(tool, JSON_COMPACT);
	json_decref(tool);
	return text;
}

/* For the progress that is told; whether it is allowed is decided elsewhere. */
static uint64_t timeout_of(struct mcp_span value, uint64_t usual_ns)
{
	char text[32];
	double v;

	if (value.len >= sizeof(text))
		return usual_ns;
	memcpy(text, value.at, value.len);
	text[value.len] = '\0';
	v = strtod(text, NULL);
	return v > 0 && v < 1e6 ? (uint64_t)(v * (double)NS_PER_SEC) : usual_ns;
}

static bool is_empty(struct mcp_span object)
{
	size_t i = 1;

	while (i < object.len && strchr(" \t\r\n", object.at[i]))
		i++;
	return i < object.len && object.at[i] == '}';
}

int mcp_tool_request(const struct mcp_terms *t, struct mcp_span arguments, char **ret, size_t *ret_len,
		     uint64_t *ret_timeout_ns)
{
	struct mcp_span timeout;
	struct buf b;
	char text[32];
	int r = mcp_json_member(arguments, "timeout", &timeout);

	buf_init(&b, SIZE_MAX / 2);
	*ret_timeout_ns = r > 0 ? timeout_of(timeout, t->timeout_ns) : t->timeout_ns;
	if (r == 0) {
		r = buf_printf(&b, "{\"timeout\": %s%s", scaled_text(t->timeout_ns, NS_PER_SEC, text, sizeof(text)),
			       is_empty(arguments) ? "" : ", ");
		if (r == 0)
			r = buf_add(&b, arguments.at + 1, arguments.len - 1);
	} else { /* it says so itself; or it is no object that could be understood: refused where requests are parsed */
		r = buf_add(&b, arguments.at, arguments.len);
	}
	if (r < 0) {
		buf_done(&b);
		return -ENOMEM;
	}
	*ret = b.data;
	*ret_len = b.len;
	return 0;
}
