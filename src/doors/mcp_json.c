/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/mcp_json.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* What is still to be read. */
struct cursor {
	const char *p;
	const char *end;
};

static void skip_blanks(struct cursor *c)
{
	while (c->p < c->end && (*c->p == ' ' || *c->p == '\t' || *c->p == '\n' || *c->p == '\r'))
		c->p++;
}

static bool take(struct cursor *c, char what)
{
	skip_blanks(c);
	if (c->p == c->end || *c->p != what)
		return false;
	c->p++;
	return true;
}

/* From behind its first quote to behind its last. */
static bool skip_string(struct cursor *c)
{
	while (c->p < c->end) {
		const char *quote = memchr(c->p, '"', (size_t)(c->end - c->p));
		const char *back = quote;

		if (!quote)
			break;
		while (back > c->p && back[-1] == '\\')
			back--;
		c->p = quote + 1;
		if ((quote - back) % 2 == 0)
			return true;
	}
	c->p = c->end;
	return false;
}

static bool is_end_of_word(char ch)
{
	return ch == ',' || ch == ']' || ch == '}' || ch == ' ' || ch == '\t' || ch == '\n' || ch == '\r';
}

static bool skip_value(struct cursor *c)
{
	size_t depth = 0;

	skip_blanks(c);
	while (c->p < c->end) {
		char ch = *c->p;

		if (depth == 0 && (ch == ',' || ch == ']' || ch == '}'))
			return false; /* nothing there */
		c->p++;
		if (ch == '{' || ch == '[') {
			depth++;
		} else if (ch == '}' || ch == ']') {
			depth--;
		} else if (ch == '"') {
			if (!skip_string(c))
				return false;
		} else if (depth == 0) {
			while (c->p < c->end && !is_end_of_word(*c->p))
				c->p++;
		}
		if (depth == 0)
			return true;
	}
	return false;
}

/* One character of a name, a NUL for what no name of ours has. */
static char next_char(struct cursor *c)
{
	char ch = *c->p++;
	unsigned value = 0;

	if (ch != '\\')
		return ch;
	if (c->p == c->end)
		return '\0';
	ch = *c->p++;
	if (ch != 'u')
		return ch == '/' ? ch : '\0';
	for (int i = 0; i < 4; i++, c->p++) {
		static const char digits[] = "0123456789abcdefABCDEF";
		const char *d = c->p < c->end && *c->p ? strchr(digits, *c->p) : NULL;

		if (!d)
			return '\0';
		value = value * 16 + (unsigned)(d - digits < 16 ? d - digits : d - digits - 6);
	}
	return value < 0x80 ? (char)value : '\0';
}

static bool is_name(const char *at, size_t len, const char *name)
{
	struct cursor c = { .p = at, .end = at + len };

	while (c.p < c.end) {
		char ch = next_char(&c);

		if (!ch || ch != *name++)
			return false;
	}
	return !*name;
}

int mcp_json_member(struct mcp_span object, const char *name, struct mcp_span *ret)
{
	struct cursor c = { .p = object.at, .end = object.at + object.len };
	struct mcp_span found = { .at = NULL };

	if (!take(&c, '{'))
		return -EINVAL;
	if (take(&c, '}'))
		return 0;
	do {
		const char *key;
		const char *value;
		size_t key_len;

		if (!take(&c, '"'))
			return -EINVAL;
		key = c.p;
		if (!skip_string(&c))
			return -EINVAL;
		key_len = (size_t)(c.p - key) - 1;
		if (!take(&c, ':'))
			return -EINVAL;
		skip_blanks(&c);
		value = c.p;
		if (!skip_value(&c))
			return -EINVAL;
		if (!is_name(key, key_len, name))
			continue;
		if (found.at)
			return -EINVAL;
		found = (struct mcp_span) { .at = value, .len = (size_t)(c.p - value) };
	} while (take(&c, ','));
	if (!take(&c, '}'))
		return -EINVAL;
	if (!found.at)
		return 0;
	*ret = found;
	return 1;
}

/* What some reader takes for a line's end, and what is written for it; 0: nothing. */
static size_t line_end(const char *p, size_t len, const char **ret)
{
	static const char *const marks[][2] = {
		{ "\n", " " },
		{ "\r", " " },
		{ "\xc2\x85", "\\u0085" },
		{ "\xe2\x80\xa8", "\\u2028" },
		{ "\xe2\x80\xa9", "\\u2029" },
	};

	for (size_t i = 0; i < ARRAY_LEN(marks); i++) {
		size_t n = strlen(marks[i][0]);

		if (n <= len && memcmp(p, marks[i][0], n) == 0) {
			*ret = marks[i][1];
			return n;
		}
	}
	return 0;
}

int mcp_json_put_line(struct buf *b, const char *json, size_t len)
{
	size_t from = 0;
	size_t i = 0;
	int r = 0;

	while (i < len && r == 0) {
		const char *instead = NULL;
		size_t n = 0;

		if (json[i] == '\n' || json[i] == '\r' || json[i] == '\xc2' || json[i] == '\xe2')
			n = line_end(json + i, len - i, &instead);
		if (n) {
			r = buf_add(b, json + from, i - from);
			if (r == 0)
				r = buf_add(b, instead, strlen(instead));
			from = i + n;
		}
		i += n ? n : 1;
	}
	return r < 0 ? r : buf_add(b, len ? json + from : "", len - from);
}
