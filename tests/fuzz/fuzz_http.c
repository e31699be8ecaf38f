/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a request over HTTP: its head, then its body in pieces whose size the first byte tells. */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "doors/http_parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define must(x)                                                                                                        \
	do {                                                                                                           \
		if (!(x))                                                                                              \
			__builtin_trap();                                                                              \
	} while (0)

#define BODY_MAX 4096

static void check_head(const struct http_head *h)
{
	char value[64];

	must(h->path && (h->path[0] == '/' || strcmp(h->path, "*") == 0) && h->query);
	must(h->host || h->is_1_0);
	must(!(h->is_chunked && h->length));
	must(h->n_headers <= HTTP_HEADERS_MAX);
	for (size_t i = 0; i < h->n_headers; i++) {
		must(h->headers[i].name[0] && !strpbrk(h->headers[i].name, " :\r\nABCXYZ"));
		must(!strpbrk(h->headers[i].value, "\r\n"));
	}
	if (http_query(h->query, "a", value, sizeof(value)) > 0)
		must(strlen(value) < sizeof(value));
	(void)http_query_unknown(h->query, (const char *const[]) { "a", NULL }, value, sizeof(value));
	must(http_accept(h->accept) <= HTTP_FORM_LINES);
	(void)http_is_media(h->content_type, "application/json");
}

/* In pieces or at once: the same. */
static void check_body(const char *data, size_t len, size_t step)
{
	struct http_chunked c = { .state = 0 };
	struct http_chunked whole = { .state = 0 };
	struct buf one;
	struct buf two;
	size_t used = 0;
	size_t at = 0;
	int r = 0;
	int w;

	buf_init(&one, BODY_MAX);
	buf_init(&two, BODY_MAX);
	while (r == 0 && at < len) {
		r = http_chunked_feed(&c, data + at, len - at < step ? len - at : step, &used, &one);
		must(used <= step);
		at += r < 0 ? 0 : used;
	}
	w = http_chunked_feed(&whole, data, len, &used, &two);
	must(w == r || (w == -EFBIG && r < 0) || (r == -EFBIG && w < 0));
	if (r > 0)
		must(used == at && one.len == two.len && (one.len == 0 || memcmp(one.data, two.data, one.len) == 0));
	must(one.len <= BODY_MAX && two.len <= BODY_MAX);
	buf_done(&one);
	buf_done(&two);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data + 1;
	const char *end;
	struct http_head h;
	const char *why = NULL;
	size_t len;
	char *head;
	int r;

	if (size < 1)
		return 0;
	end = memmem(text, size - 1, "\r\n\r\n", 4);
	len = end ? (size_t)(end - text) + 4 : size - 1;
	head = malloc(len ? len : 1);
	must(head != NULL);
	memcpy(head, text, len);
	r = http_head_parse(head, len, &h, &why);
	must(r == 0 || (r >= 400 && r < 600 && why && *why));
	if (r == 0)
		check_head(&h);
	free(head);
	check_body(text + len, size - 1 - len, (size_t)data[0] + 1);
	return 0;
}
