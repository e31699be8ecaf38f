/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Globs for names, in time that grows with the product of both lengths at most: patterns may come from a stranger, and
 * SQLite's own GLOB takes exponential time for some.
 */
#include <string.h>

#include "base/parse.h"
#include "history/shape.h"

static size_t char_len(const char *s)
{
	enum utf8_part part;

	return utf8_next(s, strnlen(s, 4), &part); /* no character is longer */
}

/* A character as a number that sorts as its code does. */
static unsigned long key(const char *s, size_t len)
{
	unsigned long v = 0;

	for (size_t i = 0; i < len && i < 4; i++)
		v = v << 8 | (unsigned char)s[i];
	return v;
}

/* set_fits() - "[a-z]" at @p and the character @c.  Return: the set's length; 0: it is none, "[" is itself */
static size_t set_fits(const char *p, unsigned long c, bool *ret)
{
	size_t i = 1;
	bool is_not = p[i] == '!' || p[i] == '^';
	bool is_in = false;
	size_t first;

	i += is_not;
	first = i;
	while (p[i] && (p[i] != ']' || i == first)) {
		size_t n = char_len(p + i);
		unsigned long low = key(p + i, n);
		unsigned long high = low;

		i += n;
		if (p[i] == '-' && p[i + 1] && p[i + 1] != ']') {
			n = char_len(p + i + 1);
			high = key(p + i + 1, n);
			i += 1 + n;
		}
		is_in |= c >= low && c <= high;
	}
	if (!p[i])
		return 0;
	*ret = is_in != is_not;
	return i + 1;
}

/* one_fits() - what stands at @p, which is no "*", and the character at @s.  Return: its length in the pattern; 0: no
 */
static size_t one_fits(const char *p, const char *s, size_t len)
{
	size_t n = char_len(p);
	bool fits = false;

	if (*p == '?')
		return 1;
	if (*p == '[') {
		size_t set = set_fits(p, key(s, len), &fits);

		if (set)
			return fits ? set : 0;
	}
	return n == len && memcmp(p, s, n) == 0 ? n : 0;
}

bool glob_fits(const char *p, const char *s)
{
	const char *star = NULL; /* behind the last one */
	const char *mark = s;    /* where what is behind it was tried last */

	while (*s) {
		size_t len = char_len(s);
		size_t n = 0;

		if (*p == '*') {
			star = ++p;
			mark = s;
			continue;
		}
		if (*p)
			n = one_fits(p, s, len);
		if (n) {
			p += n;
			s += len;
		} else if (star) {
			mark += char_len(mark);
			s = mark;
			p = star;
		} else {
			return false;
		}
	}
	while (*p == '*')
		p++;
	return *p == '\0';
}
