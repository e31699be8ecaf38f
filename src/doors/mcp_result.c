/* SPDX-License-Identifier: Apache-2.0 */
/* What a call came to, as its reply: words first, pictures, and the result itself as it came. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "doors/mcp_image.h"
#include "doors/mcp_reply.h"
#include "doors/mcp_text.h"
#include "job/json.h"
#include "job/text.h"

#define IMAGES_MAX      8
#define IMAGE_BYTES     ((size_t)3750000) /* 5 MB as base64: what models' hosts take */
#define IMAGE_BYTES_ALL ((size_t)8 << 20)

/* The call did not come to its end; a script that failed by itself did. */
static bool is_failure(const json_t *run)
{
	static const char *const ends[] = { "ok", "error", "signaled" };
	const char *status = json_string_value(json_object_get(run, "status"));

	for (size_t i = 0; status && i < ARRAY_LEN(ends); i++) {
		if (strcmp(ends[i], status) == 0)
			return false;
	}
	return true;
}

/* Images that are shown, in the order of the artifacts. */
struct images {
	const json_t *items[IMAGES_MAX]; /* borrowed; artifacts */
	unsigned n;
	size_t bytes;
};

static void consider(struct images *im, const json_t *artifact)
{
	const json_t *base64 = json_object_get(artifact, "base64");
	const char *type = json_string_value(json_object_get(artifact, "media_type"));
	auto_free char *data = NULL;
	size_t len = 0;

	if (!type || strncmp(type, "image/", 6) != 0 || !json_is_string(base64) || im->n == IMAGES_MAX ||
	    json_string_length(base64) / 4 * 3 > IMAGE_BYTES)
		return;
	if (base64_decode(json_string_value(base64), json_string_length(base64), &data, &len) < 0 ||
	    im->bytes + len > IMAGE_BYTES_ALL || !mcp_image_is_whole(type, data, len))
		return;
	im->items[im->n++] = artifact;
	im->bytes += len;
}

static int put_text(struct buf *b, const json_t *root, const struct images *im)
{
	const json_t *error = json_object_get(root, "error");
	struct buf text;
	int r;

	buf_init(&text, MCP_REPLY_MAX);
	r = error ? mcp_text_refusal(&text, error) : mcp_text_result(&text, root, is_failure(root), im->n);
	if (r == 0)
		r = buf_printf(b, "{\"type\": \"text\", \"text\": ");
	if (r == 0)
		r = job_json_add_text(b, text.data, text.len);
	buf_done(&text);
	return r < 0 ? r : buf_add(b, "}", 1);
}

static int put_images(struct buf *b, const struct images *im)
{
	int r = 0;

	for (unsigned i = 0; i < im->n && r == 0; i++) {
		const json_t *base64 = json_object_get(im->items[i], "base64");

		r = buf_printf(b, ", {\"type\": \"image\", \"mimeType\": \"%s\", \"data\": \"",
			       json_string_value(json_object_get(im->items[i], "media_type")));
		if (r == 0)
			r = buf_add(b, json_string_value(base64), json_string_length(base64));
		if (r == 0)
			r = buf_add(b, "\"}", 2);
	}
	return r;
}

static int put_result(struct buf *b, const json_t *root, const char *json, size_t len)
{
	struct images im = { .n = 0 };
	const json_t *artifact;
	size_t i;
	int r;

	json_array_foreach(json_object_get(root, "artifacts"), i, artifact)
	{
		consider(&im, artifact);
	}
	r = buf_printf(b, "\"content\": [");
	if (r == 0)
		r = put_text(b, root, &im);
	if (r == 0)
		r = put_images(b, &im);
	if (r == 0)
		r = buf_printf(b, "], \"isError\": %s, \"structuredContent\": ", is_failure(root) ? "true" : "false");
	return r < 0 ? r : mcp_json_put_line(b, json, len);
}

char *mcp_result_write(const char *id, enum mcp_era era, const char *json, size_t len, size_t *ret_len)
{
	json_t *root = json_loadb(json, len, JSON_ALLOW_NUL, NULL);
	struct buf b;
	int r;

	buf_init(&b, MCP_REPLY_MAX);
	if (json_is_object(root)) {
		r = mcp_reply_begin(&b, id, era);
		if (r == 0)
			r = put_result(&b, root, json, len);
		if (r == 0)
			r = mcp_reply_end(&b);
	} else {
		r = mcp_reply_error(&b, id, MCP_INTERNAL_ERROR, "what came of the run could not be read", NULL);
	}
	json_decref(root);
	if (r < 0)
		buf_done(&b);
	*ret_len = b.len;
	return b.data;
}
