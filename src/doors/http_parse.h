/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/macro.h"

/*
 * HTTP/1.1 (RFC 9112) as bytes: no system calls, nothing kept.  What two parties could read in two ways is refused, not
 * repaired: bare line feeds, folded lines, white space before a colon, a length said twice.
 */
#define HTTP_HEAD_MAX    16384 /* bytes of request line and headers */
#define HTTP_HEADERS_MAX 64

enum http_method {
	HTTP_GET = 1 << 0,
	HTTP_HEAD = 1 << 1,
	HTTP_POST = 1 << 2,
	HTTP_DELETE = 1 << 3,
	HTTP_OPTIONS = 1 << 4,
	HTTP_OTHER = 1 << 5,
};

struct http_header {
	const char *name; /* lower case */
	const char *value;
};

/* A request without its body; all texts are borrowed from what was parsed.  NULL: not given */
struct http_head {
	enum http_method method;
	const char *path;  /* begins with '/', or is "*" */
	const char *query; /* "" if none */
	const char *host;
	const char *authority; /* of "http://host/path" */
	const char *origin;
	const char *authorization;
	const char *content_type;
	const char *accept;
	bool is_1_0;
	bool keeps_alive;
	bool is_chunked;
	bool expects_continue;
	uint64_t length; /* of the body, if it is not chunked */
	struct http_header headers[HTTP_HEADERS_MAX];
	size_t n_headers;
};

/*
 * http_head_parse() - @text is everything up to and with the empty line; it is cut into pieces in place
 *
 * Return: 0; or the HTTP status to refuse it with, *@ret_why saying why.
 */
int http_head_parse(char *text, size_t len, struct http_head *ret, const char **ret_why) MUST_CHECK;

/* http_header() - the value of @name (lower case); NULL: not given */
const char *http_header(const struct http_head *h, const char *name);

/* A body in chunks, as far as it came; begins as all zeros. */
struct http_chunked {
	int state;
	unsigned n_digits;
	unsigned n_extra; /* bytes of extensions and trailers, which nobody reads */
	uint64_t left;    /* of the chunk */
};

/*
 * http_chunked_feed() - take @len bytes more, the chunks' contents to @body
 * @ret_used: how many of them belong to this body
 *
 * Return: 1 that was its end; 0 there is more to come; -EINVAL malformed; -EFBIG more than @body takes; -ENOMEM.
 */
int http_chunked_feed(struct http_chunked *c, const char *data, size_t len, size_t *ret_used,
		      struct buf *body) MUST_CHECK;

/* http_query() - the value of @name in a query, decoded.  Return: 1; 0 not there; -EINVAL malformed, or too long for
 * @buf */
int http_query(const char *query, const char *name, char *buf, size_t size) MUST_CHECK;

/* http_query_unknown() - the first name in a query that is none of @known (NULL-terminated).  Return: whether there is
 * one */
bool http_query_unknown(const char *query, const char *const *known, char *buf, size_t size);

/* http_is_media() - whether a Content-Type is @type, whatever its parameters */
bool http_is_media(const char *content_type, const char *type);

enum http_form { HTTP_FORM_JSON, HTTP_FORM_EVENTS, HTTP_FORM_LINES };

/* http_accept() - the first of an Accept header's forms that we can give; JSON if there is none */
enum http_form http_accept(const char *accept);
