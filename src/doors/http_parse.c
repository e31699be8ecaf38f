/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/http_parse.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/parse.h"

#define CHUNK_DIGITS 8    /* of a chunk's size */
#define EXTRA_MAX    4096 /* extensions and trailers of a body */

static bool is_token_char(unsigned char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_token(const char *s)
{
	const char *p = s;

	while (is_token_char((unsigned char)*p))
		p++;
	return p > s && !*p;
}

static enum http_method method_of(const char *name)
{
	static const struct {
		const char *name;
		enum http_method method;
	} methods[] = {
		{ "GET", HTTP_GET },       { "HEAD", HTTP_HEAD },       { "POST", HTTP_POST },
		{ "DELETE", HTTP_DELETE }, { "OPTIONS", HTTP_OPTIONS },
	};

	for (size_t i = 0; i < ARRAY_LEN(methods); i++)
		if (strcmp(methods[i].name, name) == 0)
			return methods[i].method;
	return HTTP_OTHER;
}

/* The line at *@at, NUL-terminated, and *@at behind it; NULL: a line that does not end with CR LF, or has one of them
 */
static char *next_line(char **at, const char *end)
{
	char *line = *at;
	char *lf = memchr(line, '\n', (size_t)(end - line));

	if (!lf || lf == line || lf[-1] != '\r' || memchr(line, '\r', (size_t)(lf - 1 - line)))
		return NULL;
	lf[-1] = '\0';
	*at = lf + 1;
	return line;
}

/* "http://host/path": that host counts, whatever the header says */
static int cut_target(char *target, struct http_head *h, const char **why)
{
	char *query;

	*why = "a request's target is a path";
	if (strncasecmp(target, "http://", 7) == 0) {
		char *slash = strchr(target + 7, '/');

		if (!slash || slash == target + 7)
			return 400;
		memmove(target, target + 7, (size_t)(slash - target - 7));
		slash[-7] = '\0';
		h->authority = target;
		target = slash;
	}
	for (const char *p = target; *p; p++)
		if ((unsigned char)*p <= ' ' || (unsigned char)*p >= 0x7f)
			return 400;
	if (*target != '/' && !(h->method == HTTP_OPTIONS && strcmp(target, "*") == 0))
		return 400;
	query = strchr(target, '?');
	if (query)
		*query++ = '\0';
	h->path = target;
	h->query = query ? query : "";
	return 0;
}

static int cut_request_line(char *line, struct http_head *h, const char **why)
{
	char *target = strchr(line, ' ');
	char *version = target ? strchr(target + 1, ' ') : NULL;

	*why = "a request line is METHOD TARGET HTTP/1.1";
	if (!version)
		return 400;
	*target++ = '\0';
	*version++ = '\0';
	if (!is_token(line) || strncmp(version, "HTTP/", 5) != 0)
		return 400;
	if (strcmp(version, "HTTP/1.1") != 0 && strcmp(version, "HTTP/1.0") != 0) {
		*why = "HTTP/1.1 is spoken here";
		return 505;
	}
	h->method = method_of(line);
	h->is_1_0 = version[7] == '0';
	h->keeps_alive = !h->is_1_0;
	return cut_target(target, h, why);
}

/* Whether the comma-separated @list has @word. */
static bool has_word(const char *list, const char *word)
{
	size_t len = strlen(word);

	for (const char *p = list; *p; p += strcspn(p, ",")) {
		p += strspn(p, ", \t");
		if (strncasecmp(p, word, len) == 0 && strchr(", \t", p[len]))
			return true;
	}
	return false;
}

/* What of a header the connection itself must know.  Return: 0 or a status */
static int note(struct http_head *h, const struct http_header *f, const char **why)
{
	const struct {
		const char *name;
		const char **to;
	} once[] = {
		{ "host", &h->host },
		{ "origin", &h->origin },
		{ "authorization", &h->authorization },
		{ "content-type", &h->content_type },
	};

	for (size_t i = 0; i < ARRAY_LEN(once); i++) {
		if (strcmp(f->name, once[i].name) != 0)
			continue;
		*why = "a header that may be given once is given twice";
		if (*once[i].to)
			return 400;
		*once[i].to = f->value;
	}
	if (strcmp(f->name, "accept") == 0 && !h->accept)
		h->accept = f->value;
	if (strcmp(f->name, "connection") == 0) {
		if (has_word(f->value, "close"))
			h->keeps_alive = false;
		else if (h->is_1_0 && has_word(f->value, "keep-alive"))
			h->keeps_alive = true;
	}
	return 0;
}

static int cut_header(char *line, struct http_head *h, const char **why)
{
	struct http_header *f = &h->headers[h->n_headers];
	char *colon = strchr(line, ':');
	char *end;

	*why = "too many headers";
	if (h->n_headers == HTTP_HEADERS_MAX)
		return 431;
	*why = "a header is NAME: VALUE on one line";
	if (!colon)
		return 400;
	*colon++ = '\0';
	if (!is_token(line))
		return 400;
	for (char *p = line; *p; p++)
		if (*p >= 'A' && *p <= 'Z')
			*p = (char)(*p + ('a' - 'A'));
	colon += strspn(colon, " \t");
	for (const char *p = colon; *p; p++)
		if (((unsigned char)*p < ' ' && *p != '\t') || *p == 0x7f)
			return 400;
	end = colon + strlen(colon);
	while (end > colon && (end[-1] == ' ' || end[-1] == '\t'))
		*--end = '\0';
	f->name = line;
	f->value = colon;
	h->n_headers++;
	return note(h, f, why);
}

const char *http_header(const struct http_head *h, const char *name)
{
	for (size_t i = 0; i < h->n_headers; i++)
		if (strcmp(h->headers[i].name, name) == 0)
			return h->headers[i].value;
	return NULL;
}

static unsigned count(const struct http_head *h, const char *name)
{
	unsigned n = 0;

	for (size_t i = 0; i < h->n_headers; i++)
		n += strcmp(h->headers[i].name, name) == 0;
	return n;
}

/* How its body comes.  Return: 0 or a status */
static int settle_body(struct http_head *h, const char **why)
{
	const char *coding = http_header(h, "transfer-encoding");
	const char *length = http_header(h, "content-length");
	const char *expect = http_header(h, "expect");

	*why = "a body's length is said once, in one way";
	if (count(h, "transfer-encoding") > 1 || count(h, "content-length") > 1 || (coding && (length || h->is_1_0)))
		return 400;
	*why = "a body comes as it is or in chunks";
	if (coding && strcasecmp(coding, "chunked") != 0)
		return 501;
	h->is_chunked = coding != NULL;
	*why = "Content-Length is a number";
	if (length && parse_u64(length, 0, UINT64_MAX / 2, &h->length) < 0)
		return 400;
	*why = "nothing else than 100-continue can be expected";
	if (expect && strcasecmp(expect, "100-continue") != 0)
		return 417;
	h->expects_continue = expect && !h->is_1_0;
	return 0;
}

int http_head_parse(char *text, size_t len, struct http_head *ret, const char **ret_why)
{
	const char *end = text + len;
	char *line;
	int r;

	*ret = (struct http_head) { .method = HTTP_OTHER };
	*ret_why = "a request is lines that end with CR LF, without NUL";
	if (memchr(text, '\0', len))
		return 400;
	line = next_line(&text, end);
	if (!line)
		return 400;
	r = cut_request_line(line, ret, ret_why);
	while (r == 0) {
		*ret_why = "a request is lines that end with CR LF, without NUL";
		line = text < end ? next_line(&text, end) : NULL;
		if (!line)
			return 400;
		if (!*line)
			break;
		r = cut_header(line, ret, ret_why);
	}
	if (r == 0)
		r = settle_body(ret, ret_why);
	if (r == 0 && !ret->host && !ret->is_1_0) {
		*ret_why = "Host is missing";
		r = 400;
	}
	if (ret->authority)
		ret->host = ret->authority;
	return r;
}

enum { SIZE, EXTENSION, SIZE_LF, DATA, DATA_CR, DATA_LF, LINE, TRAILER, TRAILER_LF, LAST_LF };

static int hex(char c)
{
	const char *digits = "0123456789abcdef";
	const char *at = c ? strchr(digits, c >= 'A' && c <= 'F' ? c + ('a' - 'A') : c) : NULL;

	return at ? (int)(at - digits) : -1;
}

static int take_size(struct http_chunked *c, char ch)
{
	int digit = hex(ch);

	if (digit >= 0) {
		c->left = c->left * 16 + (unsigned)digit;
		return ++c->n_digits <= CHUNK_DIGITS ? SIZE : -EINVAL;
	}
	if (!c->n_digits)
		return -EINVAL;
	if (ch == '\r')
		return SIZE_LF;
	return ch == ';' || ch == ' ' || ch == '\t' ? EXTENSION : -EINVAL;
}

/* Everything but contents.  Return: the next state, or -EINVAL */
static int take_one(struct http_chunked *c, char ch)
{
	bool is_extra = c->state == EXTENSION || c->state == LINE || c->state == TRAILER;
	bool is_ours = ch != '\n' && (!is_extra || ++c->n_extra <= EXTRA_MAX);

	switch (c->state) {
	case SIZE:
		return take_size(c, ch);
	case EXTENSION:
		return ch == '\r' ? SIZE_LF : is_ours ? EXTENSION : -EINVAL;
	case SIZE_LF:
		c->n_digits = 0;
		return ch == '\n' ? c->left ? DATA : LINE : -EINVAL;
	case DATA_CR:
		return ch == '\r' ? DATA_LF : -EINVAL;
	case DATA_LF:
		return ch == '\n' ? SIZE : -EINVAL;
	case LINE:
		return ch == '\r' ? LAST_LF : is_ours ? TRAILER : -EINVAL;
	case TRAILER:
		return ch == '\r' ? TRAILER_LF : is_ours ? TRAILER : -EINVAL;
	case TRAILER_LF:
		return ch == '\n' ? LINE : -EINVAL;
	default:
		return -EINVAL;
	}
}

int http_chunked_feed(struct http_chunked *c, const char *data, size_t len, size_t *ret_used, struct buf *body)
{
	size_t i = 0;

	while (i < len) {
		if (c->state == DATA) {
			size_t n = len - i < c->left ? len - i : (size_t)c->left;
			int r = buf_add(body, data + i, n);

			if (r < 0)
				return r;
			i += n;
			c->left -= n;
			if (!c->left)
				c->state = DATA_CR;
			continue;
		}
		if (c->state == LAST_LF) {
			*ret_used = i + 1;
			return data[i] == '\n' ? 1 : -EINVAL;
		}
		c->state = take_one(c, data[i++]);
		if (c->state < 0)
			return c->state;
	}
	*ret_used = len;
	return 0;
}

/* @len bytes at @s, decoded.  Return: 0 or -EINVAL */
static int decode(const char *s, size_t len, char *buf, size_t size)
{
	size_t used = 0;

	for (size_t i = 0; i < len; i++) {
		int c = s[i] == '+' ? ' ' : (unsigned char)s[i];

		if (c == '%') {
			int high = i + 2 < len ? hex(s[i + 1]) : -1;
			int low = i + 2 < len ? hex(s[i + 2]) : -1;

			c = high * 16 + low;
			if (high < 0 || low < 0 || c == 0)
				return -EINVAL;
			i += 2;
		}
		if (used + 1 >= size)
			return -EINVAL;
		buf[used++] = (char)c;
	}
	buf[used] = '\0';
	return 0;
}

int http_query(const char *query, const char *name, char *buf, size_t size)
{
	size_t len = strlen(name);

	for (const char *p = query; *p; p += *p == '&') {
		size_t n = strcspn(p, "&");

		if (strncmp(p, name, len) == 0 && (p[len] == '=' || len == n))
			return decode(p + len + (len < n), n - len - (len < n), buf, size) < 0 ? -EINVAL : 1;
		p += n;
	}
	return 0;
}

bool http_query_unknown(const char *query, const char *const *known, char *buf, size_t size)
{
	for (const char *p = query; *p; p += *p == '&') {
		size_t n = strcspn(p, "=&");
		const char *const *k = known;

		while (*k && (strlen(*k) != n || strncmp(*k, p, n) != 0))
			k++;
		if (!*k && n) {
			(void)snprintf(buf, size, "%.*s", (int)n, p);
			return true;
		}
		p += strcspn(p, "&");
	}
	return false;
}

bool http_is_media(const char *content_type, const char *type)
{
	size_t len = strlen(type);

	return content_type && strncasecmp(content_type, type, len) == 0 && strchr("; \t", content_type[len]);
}

enum http_form http_accept(const char *accept)
{
	static const struct {
		const char *type;
		enum http_form form;
	} forms[] = {
		{ "application/json", HTTP_FORM_JSON },
		{ "text/event-stream", HTTP_FORM_EVENTS },
		{ "application/x-ndjson", HTTP_FORM_LINES },
		{ "application/ndjson", HTTP_FORM_LINES },
		{ "application/jsonl", HTTP_FORM_LINES },
		{ "application/*", HTTP_FORM_JSON },
		{ "*/*", HTTP_FORM_JSON },
	};

	for (const char *p = accept ? accept : ""; *p; p += strcspn(p, ",")) {
		p += strspn(p, ", \t");
		for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
			size_t len = strlen(forms[i].type);

			if (strncasecmp(p, forms[i].type, len) == 0 && strchr(",; \t", p[len]))
				return forms[i].form;
		}
	}
	return HTTP_FORM_JSON;
}
