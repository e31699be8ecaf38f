/* SPDX-License-Identifier: Apache-2.0 */
#include "job/text.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/parse.h"

static const char REPLACEMENT[] = "\xef\xbf\xbd";
static const char ALPHABET[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int text_from_bytes(const char *data, size_t len, char **ret, size_t *ret_len, bool *ret_errors)
{
	struct buf b;
	size_t from = 0; /* valid text that is not copied yet */
	size_t i = 0;
	bool has_errors = false;
	int r = 0;

	buf_init(&b, SIZE_MAX / 2);
	while (i < len && r == 0) {
		enum utf8_part part;
		size_t n = utf8_next(data + i, len - i, &part);

		if (part != UTF8_CHAR) {
			has_errors = true;
			r = buf_add(&b, data + from, i - from);
			if (r == 0)
				r = buf_add(&b, REPLACEMENT, sizeof(REPLACEMENT) - 1);
			from = i + n;
		}
		i += n;
	}
	if (r == 0)
		r = buf_add(&b, len ? data + from : "", len - from);
	if (r < 0) {
		buf_done(&b);
		return -ENOMEM;
	}
	*ret = b.data;
	*ret_len = b.len;
	*ret_errors = has_errors;
	return 0;
}

static uint32_t code_point(const char *s, size_t len)
{
	const unsigned char *p = (const unsigned char *)s;
	uint32_t c = len == 1 ? p[0] : p[0] & (0xffU >> (len + 1));

	for (size_t i = 1; i < len; i++)
		c = c << 6 | (p[i] & 0x3f);
	return c;
}

/* Characters that a terminal obeys, or that make a text look like another one. */
static const struct {
	uint32_t first;
	uint32_t last;
} hidden[] = {
	{ 0x00, 0x1f },     { 0x7f, 0x9f },     { 0xad, 0xad },       { 0x061c, 0x061c },
	{ 0x180e, 0x180e }, { 0x200b, 0x200f }, { 0x2028, 0x202e },   { 0x2060, 0x206f },
	{ 0xfeff, 0xfeff }, { 0xfff9, 0xfffb }, { 0xe0000, 0xe007f },
};

static bool is_hidden(uint32_t c)
{
	for (size_t i = 0; i < ARRAY_LEN(hidden); i++) {
		if (c >= hidden[i].first && c <= hidden[i].last)
			return true;
	}
	return false;
}

size_t text_visible_char(const char *s, size_t len, enum utf8_part part, char out[TEXT_VISIBLE_CHAR])
{
	uint32_t c = part == UTF8_CHAR ? code_point(s, len) : 0;
	size_t used = 0;

	if (part != UTF8_CHAR) {
		for (size_t i = 0; i < len; i++)
			used += (size_t)snprintf(out + used, TEXT_VISIBLE_CHAR - used, "\\x%02x", (unsigned char)s[i]);
		return used;
	}
	if (!is_hidden(c)) {
		memcpy(out, s, len);
		return len;
	}
	if (c == '\n' || c == '\t' || c == '\r')
		return (size_t)snprintf(out, TEXT_VISIBLE_CHAR, "\\%c", c == '\n' ? 'n' : c == '\t' ? 't' : 'r');
	return (size_t)snprintf(out, TEXT_VISIBLE_CHAR, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
}

char *text_visible(const char *text, size_t len, bool keeps_lines)
{
	struct buf b;
	size_t n;
	int r = 0;

	buf_init(&b, SIZE_MAX / 2);
	for (size_t i = 0; i < len && r == 0; i += n) {
		char out[TEXT_VISIBLE_CHAR];
		enum utf8_part part;

		n = utf8_next(text + i, len - i, &part);
		if (keeps_lines && (text[i] == '\n' || text[i] == '\t'))
			r = buf_add(&b, text + i, 1);
		else
			r = buf_add(&b, out, text_visible_char(text + i, n, part, out));
	}
	if (r == 0)
		r = buf_add(&b, "", 0);
	if (r < 0)
		buf_done(&b);
	return b.data;
}

const char *text_visible_in(char *buf, size_t size, const char *text, size_t len)
{
	size_t used = 0;
	size_t fits = 0; /* what of it leaves room for dots */
	size_t i = 0;

	while (i < len) {
		char out[TEXT_VISIBLE_CHAR];
		enum utf8_part part;
		size_t n = utf8_next(text + i, len - i, &part);
		size_t k = text_visible_char(text + i, n, part, out);

		if (used + k >= size) {
			(void)snprintf(buf + fits, size - fits, "...");
			return buf;
		}
		memcpy(buf + used, out, k);
		used += k;
		if (used + sizeof("...") <= size)
			fits = used;
		i += n;
	}
	buf[used] = '\0';
	return buf;
}

char *base64_encode(const void *data, size_t len)
{
	const unsigned char *p = data;
	char *text;
	char *q;

	if (len > SIZE_MAX / 2)
		return NULL;
	text = malloc((len + 2) / 3 * 4 + 1);
	if (!text)
		return NULL;
	q = text;
	for (; len > 0; p += 3) {
		size_t n = len < 3 ? len : 3;
		uint32_t v = (uint32_t)p[0] << 16 | (n > 1 ? (uint32_t)p[1] << 8 : 0) | (n > 2 ? p[2] : 0U);

		*q++ = ALPHABET[v >> 18];
		*q++ = ALPHABET[v >> 12 & 63];
		*q++ = n > 1 ? ALPHABET[v >> 6 & 63] : '=';
		*q++ = n > 2 ? ALPHABET[v & 63] : '=';
		len -= n;
	}
	*q = '\0';
	return text;
}

static int sextet(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* quad() - four characters to 3 - @pad bytes; bits that padding leaves over must be 0: each value has one form */
static int quad(const char *s, size_t pad, unsigned char *out)
{
	uint32_t v = 0;

	for (size_t i = 0; i < 4; i++) {
		int six = i < 4 - pad ? sextet(s[i]) : 0;

		if (six < 0)
			return -EINVAL;
		v = v << 6 | (uint32_t)six;
	}
	if (v & ((1U << 8 * pad) - 1))
		return -EINVAL;
	for (size_t i = 0; i < 3 - pad; i++)
		out[i] = (unsigned char)(v >> (16 - 8 * i));
	return 0;
}

int base64_decode(const char *text, size_t len, char **ret, size_t *ret_len)
{
	size_t pad = len > 0 && text[len - 1] == '=' ? (len > 1 && text[len - 2] == '=' ? 2 : 1) : 0;
	unsigned char *out;

	if (len % 4 != 0)
		return -EINVAL;
	out = malloc(len / 4 * 3 + 1);
	if (!out)
		return -ENOMEM;
	for (size_t i = 0; i < len; i += 4) {
		if (quad(text + i, i + 4 == len ? pad : 0, out + i / 4 * 3) < 0) {
			free(out);
			return -EINVAL;
		}
	}
	*ret_len = len / 4 * 3 - pad;
	out[*ret_len] = '\0';
	*ret = (char *)out;
	return 0;
}
