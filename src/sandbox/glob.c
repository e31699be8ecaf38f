/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/glob.h"

#include <errno.h>
#include <string.h>

#define BIT(i) (UINT64_C(1) << (i))

static bool is_deep(const char *part, size_t len)
{
	return len == 2 && part[0] == '*' && part[1] == '*';
}

static int add_part(struct glob *g, const char *part, size_t len)
{
	if (is_deep(part, len) && g->n > 0 && (g->deep & BIT(g->n - 1)))
		return 0;
	if (g->n == GLOB_PARTS)
		return -E2BIG;
	if (is_deep(part, len))
		g->deep |= BIT(g->n);
	g->part[g->n] = part;
	g->len[g->n] = len;
	g->n++;
	return 0;
}

int glob_compile(const char *pattern, size_t len, struct glob *ret)
{
	struct glob g = { .n = 0 };
	const char *end = pattern + len;

	if (len == 0 || pattern[0] == '/' || pattern[len - 1] == '/')
		return -EINVAL;
	for (const char *p = pattern; p < end;) {
		const char *slash = memchr(p, '/', (size_t)(end - p));
		size_t part_len = (size_t)((slash ? slash : end) - p);
		int r = 0;

		if (part_len == 2 && memcmp(p, "..", 2) == 0)
			return -EINVAL;
		if (part_len > 1 || (part_len == 1 && p[0] != '.'))
			r = add_part(&g, p, part_len);
		if (r < 0)
			return r;
		p += part_len + 1;
	}
	if (g.n == 0)
		return -EINVAL;
	if (g.deep & BIT(g.n - 1)) {
		int r = add_part(&g, "*", 1); /* the files below, not a file of the folder's own name */

		if (r < 0)
			return r;
	}
	*ret = g;
	return 0;
}

/* "**" also stands for no folder at all. */
static uint64_t with_skips(const struct glob *g, uint64_t state)
{
	for (unsigned i = 0; i < g->n; i++) {
		if (state & g->deep & BIT(i))
			state |= BIT(i + 1);
	}
	return state;
}

uint64_t glob_start(const struct glob *g)
{
	return with_skips(g, 1);
}

bool glob_is_match(const struct glob *g, uint64_t state)
{
	return (state & BIT(g->n)) != 0;
}

bool glob_goes_on(const struct glob *g, uint64_t state)
{
	return (state & (BIT(g->n) - 1)) != 0;
}

/* One character: its code point; a byte that is no UTF-8 stands for itself, above all code points. */
static uint32_t next_char(const char **p, const char *end)
{
	const unsigned char *s = (const unsigned char *)*p;
	size_t left = (size_t)(end - *p);
	size_t more = s[0] >= 0xf0 ? 3 : s[0] >= 0xe0 ? 2 : 1;
	uint32_t c;

	(*p)++;
	if (s[0] < 0x80)
		return s[0];
	if (s[0] < 0xc2 || s[0] > 0xf4 || left <= more)
		return UINT32_C(0x200000) + s[0];
	c = s[0] & (0x3fU >> more);
	for (size_t i = 1; i <= more; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return UINT32_C(0x200000) + s[0];
		c = c << 6 | (s[i] & 0x3fU);
	}
	*p += more;
	return c;
}

/*
 * The set at *@p, behind its "[".  Return: 1 or 0 (@c is in it or not), *@p behind its "]"; -1: it has no "]", so that
 * the "[" is an ordinary character.
 */
static int match_set(const char **p, const char *end, uint32_t c)
{
	const char *s = *p;
	bool is_negated = s < end && (*s == '!' || *s == '^');
	bool is_first = true;
	bool is_in = false;

	if (is_negated)
		s++;
	while (s < end) {
		uint32_t low;
		uint32_t high;

		if (*s == ']' && !is_first) {
			*p = s + 1;
			return is_in != is_negated;
		}
		is_first = false;
		low = next_char(&s, end);
		high = low;
		if (end - s >= 2 && s[0] == '-' && s[1] != ']') {
			s++;
			high = next_char(&s, end);
		}
		if (low <= c && c <= high)
			is_in = true;
	}
	return -1;
}

/* One pattern character (not a star) at *@p against one character at *@name; both move when it matches. */
static bool match_one(const char **p, const char *p_end, const char **name, const char *name_end)
{
	const char *pat = *p;
	const char *text = *name;
	uint32_t c;
	int is_in;

	if (pat == p_end || text == name_end)
		return false;
	c = next_char(&text, name_end);
	if (*pat == '[') {
		pat++;
		is_in = match_set(&pat, p_end, c);
		if (is_in < 0)
			is_in = c == '[';
	} else if (*pat == '?') {
		pat++;
		is_in = 1;
	} else {
		is_in = next_char(&pat, p_end) == c;
	}
	if (!is_in)
		return false;
	*p = pat;
	*name = text;
	return true;
}

/* One component.  Only the last star is ever tried again: the earlier ones can't do better. */
static bool match_part(const char *p, size_t p_len, const char *name, size_t name_len)
{
	const char *p_end = p + p_len;
	const char *name_end = name + name_len;
	const char *star = NULL; /* behind the last star */
	const char *retry = NULL;

	if (name_len > 0 && name[0] == '.' && (p_len == 0 || p[0] != '.'))
		return false;
	while (name < name_end || p < p_end) {
		if (p < p_end && *p == '*') {
			star = ++p;
			retry = name;
			continue;
		}
		if (match_one(&p, p_end, &name, name_end))
			continue;
		if (!star || retry == name_end)
			return false;
		(void)next_char(&retry, name_end);
		p = star;
		name = retry;
	}
	return true;
}

uint64_t glob_step(const struct glob *g, uint64_t state, const char *name, size_t len)
{
	uint64_t next = 0;

	for (unsigned i = 0; i < g->n; i++) {
		if (!(state & BIT(i)))
			continue;
		if (g->deep & BIT(i)) {
			if (len == 0 || name[0] != '.')
				next |= BIT(i);
		} else if (match_part(g->part[i], g->len[i], name, len)) {
			next |= BIT(i + 1);
		}
	}
	return with_skips(g, next);
}
