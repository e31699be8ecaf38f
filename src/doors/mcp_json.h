/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "base/buf.h"
#include "base/macro.h"

/*
 * JSON by its outline: where a member stands, and what goes out as it came.  A script of megabytes is found and passed
 * on without being parsed here.
 */
struct mcp_span {
	const char *at; /* borrowed */
	size_t len;
};

/*
 * mcp_json_member() - the value of @name in the object @object, escapes in names understood
 *
 * Only strings and brackets are looked at: a text that is no JSON may be taken for an object, never read beyond its
 * end. Return: 1 with @ret filled, 0 not there, -EINVAL: no object, or two members of that name.
 */
int mcp_json_member(struct mcp_span object, const char *name, struct mcp_span *ret) MUST_CHECK;

/*
 * mcp_json_put_line() - a JSON text as it is, on one line for everybody: raw line ends become blanks, and U+0085,
 * U+2028 and U+2029, where some readers break lines, become escapes (they stand in strings alone)
 *
 * Return: as buf_add().
 */
int mcp_json_put_line(struct buf *b, const char *json, size_t len) MUST_CHECK;
