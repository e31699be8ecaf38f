/* SPDX-License-Identifier: Apache-2.0 */
/* What is said without running anything. */
#include "doors/mcp_reply.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "job/json.h"

#define SERVER_INFO "{\"name\": \"cloche\", \"title\": \"cloche\", \"version\": \"" CLOCHE_VERSION "\"}"
/* Lists are the same for everybody and for as long as this program runs. */
#define CACHING "\"ttlMs\": 3600000, \"cacheScope\": \"public\""
/* Who asks for prompts and resources gets empty lists: in some clients each one would become a tool. */
#define CAPABILITIES "\"capabilities\": {\"tools\": {}, \"prompts\": {}, \"resources\": {}}"
#define INSTRUCTIONS                                                                                                   \
	"\"instructions\": \"run_python runs a Python script in a fresh sandbox without network. Each call begins "    \
	"anew: "                                                                                                       \
	"nothing persists between calls. Output is what the script prints; files come back when artifacts names "      \
	"them.\""

bool mcp_version_is_legacy(const char *version)
{
	static const char *const versions[] = { MCP_LEGACY_VERSION, "2025-06-18", "2025-03-26", "2024-11-05" };

	for (size_t i = 0; i < ARRAY_LEN(versions); i++) {
		if (strcmp(versions[i], version) == 0)
			return true;
	}
	return false;
}

int mcp_reply_begin(struct buf *b, const char *id, enum mcp_era era)
{
	int r = buf_printf(b, "{\"jsonrpc\": \"2.0\", \"id\": %s, \"result\": {", id);

	if (r == 0 && era == MCP_MODERN)
		r = buf_printf(b, "\"resultType\": \"complete\", "
				  "\"_meta\": {\"io.modelcontextprotocol/serverInfo\": " SERVER_INFO "}, ");
	return r;
}

int mcp_reply_end(struct buf *b)
{
	return buf_add(b, "}}", 2);
}

int mcp_reply_error(struct buf *b, const char *id, int code, const char *message, const char *data)
{
	int r = buf_printf(b,
			   "{\"jsonrpc\": \"2.0\", %s%s%s\"error\": {\"code\": %d, \"message\": ", id ? "\"id\": " : "",
			   id ? id : "", id ? ", " : "", code);

	if (r == 0)
		r = job_json_add_text(b, message, strlen(message));
	if (r == 0 && data)
		r = buf_printf(b, ", \"data\": ");
	if (r == 0 && data)
		r = mcp_json_put_line(b, data, strlen(data));
	return r < 0 ? r : mcp_reply_end(b);
}

int mcp_reply_hello(struct buf *b, const char *id, const char *version)
{
	int r = mcp_reply_begin(b, id, MCP_LEGACY);

	if (r == 0)
		r = buf_printf(b,
			       "\"protocolVersion\": \"%s\", " CAPABILITIES ", \"serverInfo\": " SERVER_INFO
			       ", " INSTRUCTIONS,
			       version && mcp_version_is_legacy(version) ? version : MCP_LEGACY_VERSION);
	return r < 0 ? r : mcp_reply_end(b);
}

int mcp_reply_discover(struct buf *b, const char *id)
{
	int r = mcp_reply_begin(b, id, MCP_MODERN);

	if (r == 0)
		r = buf_printf(b, "\"supportedVersions\": [\"" MCP_MODERN_VERSION "\"], " CAPABILITIES ", " INSTRUCTIONS
				  ", " CACHING);
	return r < 0 ? r : mcp_reply_end(b);
}

int mcp_reply_list(struct buf *b, const char *id, enum mcp_era era, const char *name, const char *items)
{
	int r = mcp_reply_begin(b, id, era);

	if (r == 0)
		r = buf_printf(b, "\"%s\": [", name);
	if (r == 0)
		r = buf_add(b, items, strlen(items));
	if (r == 0)
		r = buf_printf(b, "]%s", era == MCP_MODERN ? ", " CACHING : "");
	return r < 0 ? r : mcp_reply_end(b);
}

char *mcp_error_write(const char *id, int code, const char *message)
{
	struct buf b;

	buf_init(&b, MCP_REPLY_MAX);
	if (mcp_reply_error(&b, id, code, message, NULL) < 0)
		buf_done(&b);
	return b.data;
}

char *mcp_progress_write(const char *token, double progress, double total, const char *message)
{
	struct buf b;
	int r;

	buf_init(&b, MCP_REPLY_MAX);
	r = buf_printf(&b,
		       "{\"jsonrpc\": \"2.0\", \"method\": \"notifications/progress\", \"params\": "
		       "{\"progressToken\": %s, \"progress\": %g, ",
		       token, progress);
	if (r == 0 && total > 0)
		r = buf_printf(&b, "\"total\": %g, ", total);
	if (r == 0)
		r = buf_printf(&b, "\"message\": ");
	if (r == 0)
		r = job_json_add_text(&b, message, strlen(message));
	if (r == 0)
		r = mcp_reply_end(&b);
	if (r < 0)
		buf_done(&b);
	return b.data;
}
