/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/buf.h"
#include "base/macro.h"
#include "doors/mcp.h"
#include "doors/mcp_json.h"

/* Inside mcp_*.c alone: the parts that replies are made of.  All return as buf_add(). */

#define MCP_REPLY_MAX ((size_t)1 << 30)

/* mcp_reply_begin() - a result up to its first member (modern: what every one has stands there, with a comma) */
int mcp_reply_begin(struct buf *b, const char *id, enum mcp_era era) MUST_CHECK;
int mcp_reply_end(struct buf *b) MUST_CHECK;

/* mcp_reply_error() - with @data, a JSON text, unless it is NULL; @id NULL: to what could not be read */
int mcp_reply_error(struct buf *b, const char *id, int code, const char *message, const char *data) MUST_CHECK;

/* mcp_reply_hello() - initialize (@version: the client's), mcp_reply_discover() - server/discover */
int mcp_reply_hello(struct buf *b, const char *id, const char *version) MUST_CHECK;
int mcp_reply_discover(struct buf *b, const char *id) MUST_CHECK;

/* mcp_reply_list() - a list that is the same for everybody; @items: JSON texts with commas between them */
int mcp_reply_list(struct buf *b, const char *id, enum mcp_era era, const char *name, const char *items) MUST_CHECK;

/* mcp_version_is_legacy() - one of those that begin with initialize */
bool mcp_version_is_legacy(const char *version);

/* mcp_tool_describe() - the one tool as JSON, heap; NULL: no memory */
char *mcp_tool_describe(const struct mcp_terms *t) MUST_CHECK;
extern const char mcp_tool_name[];

/*
 * mcp_tool_request() - arguments, an object, to a request
 * @ret: heap; @ret_timeout_ns: of the call, as far as it can be told
 *
 * Return: 0 or -ENOMEM.
 */
int mcp_tool_request(const struct mcp_terms *t, struct mcp_span arguments, char **ret, size_t *ret_len,
		     uint64_t *ret_timeout_ns) MUST_CHECK;
