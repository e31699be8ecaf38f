/* SPDX-License-Identifier: Apache-2.0 */
#include "job/text.h"

#include <errno.h>
#include <stdint.h>
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
