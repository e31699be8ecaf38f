/* SPDX-License-Identifier: Apache-2.0 */
#include "base/parse.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"

struct unit {
	const char *suffix;
	uint64_t scale;
};

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static int in_range(uint64_t v, uint64_t min, uint64_t max, uint64_t *ret)
{
	if (v < min || v > max)
		return -ERANGE;
	*ret = v;
	return 0;
}

/* digits() - a run of at least one digit; @p moves behind it.  -ERANGE: does not fit (and still moves) */
static int digits(const char **p, uint64_t *ret)
{
	uint64_t v = 0;
	bool is_over = false;

	if (!is_digit(**p))
		return -EINVAL;
	for (; is_digit(**p); (*p)++)
		if (__builtin_mul_overflow(v, UINT64_C(10), &v) || __builtin_add_overflow(v, (uint64_t)(**p - '0'), &v))
			is_over = true;
	if (is_over)
		return -ERANGE;
	*ret = v;
	return 0;
}

/*
 * fraction() - the digits behind a point, as nanos; digits past the ninth are dropped
 *
 * Integer arithmetic throughout: 0.1 of a gibibyte must not depend on how a double rounds.
 */
static int fraction(const char **p, uint64_t *ret_nano)
{
	uint64_t nano = 0;
	uint64_t place = 100000000;

	*ret_nano = 0;
	if (**p != '.')
		return 0;
	(*p)++;
	if (!is_digit(**p))
		return -EINVAL;
	for (; is_digit(**p); (*p)++) {
		nano += place * (uint64_t)(**p - '0');
		place /= 10;
	}
	*ret_nano = nano;
	return 0;
}

/* scaled() - whole + nano / 1e9, times @scale, rounded down */
static int scaled(uint64_t whole, uint64_t nano, uint64_t scale, uint64_t *ret)
{
	uint64_t part = nano * (scale / NS_PER_SEC) + nano * (scale % NS_PER_SEC) / NS_PER_SEC;
	uint64_t v;

	if (__builtin_mul_overflow(whole, scale, &v) || __builtin_add_overflow(v, part, &v))
		return -ERANGE;
	*ret = v;
	return 0;
}

static int parse_units(const char *s, const struct unit *units, uint64_t min, uint64_t max, uint64_t *ret)
{
	uint64_t whole = 0;
	uint64_t nano;
	uint64_t v;
	const struct unit *u = units;
	int too_big = digits(&s, &whole);
	int r;

	if (too_big == -EINVAL)
		return -EINVAL;
	r = fraction(&s, &nano);
	if (r < 0)
		return r;
	while (u->suffix && strcasecmp(u->suffix, s) != 0)
		u++;
	if (!u->suffix || (u->scale == 1 && nano != 0))
		return -EINVAL;
	if (too_big)
		return -ERANGE;
	r = scaled(whole, nano, u->scale, &v);
	return r < 0 ? r : in_range(v, min, max, ret);
}

int parse_u64(const char *s, uint64_t min, uint64_t max, uint64_t *ret)
{
	uint64_t v = 0;
	int r = digits(&s, &v);

	if (r == -EINVAL || *s != '\0')
		return -EINVAL;
	return r < 0 ? r : in_range(v, min, max, ret);
}

int parse_size(const char *s, uint64_t min, uint64_t max, uint64_t *ret)
{
	static const struct unit units[] = {
		{ "", 1 },
		{ "k", UINT64_C(1) << 10 },
		{ "kb", UINT64_C(1) << 10 },
		{ "kib", UINT64_C(1) << 10 },
		{ "m", UINT64_C(1) << 20 },
		{ "mb", UINT64_C(1) << 20 },
		{ "mib", UINT64_C(1) << 20 },
		{ "g", UINT64_C(1) << 30 },
		{ "gb", UINT64_C(1) << 30 },
		{ "gib", UINT64_C(1) << 30 },
		{ "t", UINT64_C(1) << 40 },
		{ "tb", UINT64_C(1) << 40 },
		{ "tib", UINT64_C(1) << 40 },
		{ NULL, 0 },
	};

	return parse_units(s, units, min, max, ret);
}

int parse_duration_ns(const char *s, uint64_t min, uint64_t max, uint64_t *ret)
{
	static const struct unit units[] = {
		{ "", NS_PER_SEC },       { "s", NS_PER_SEC },        { "ms", NS_PER_MS },
		{ "m", 60 * NS_PER_SEC }, { "h", 3600 * NS_PER_SEC }, { "d", 86400 * NS_PER_SEC },
		{ NULL, 0 },
	};

	return parse_units(s, units, min, max, ret);
}

int parse_milli(const char *s, uint64_t min, uint64_t max, uint64_t *ret)
{
	static const struct unit units[] = { { "", 1000 }, { NULL, 0 } };

	return parse_units(s, units, min, max, ret);
}

int parse_bool(const char *s, bool *ret)
{
	static const char *const yes[] = { "yes", "true", "on", "1" };
	static const char *const no[] = { "no", "false", "off", "0" };

	for (size_t i = 0; i < ARRAY_LEN(yes); i++) {
		if (strcasecmp(s, yes[i]) == 0 || strcasecmp(s, no[i]) == 0) {
			*ret = strcasecmp(s, yes[i]) == 0;
			return 0;
		}
	}
	return -EINVAL;
}

/* tail_len() - continuation bytes that @c wants, with the allowed range of the first; 0: ASCII, -1: no lead byte */
static int tail_len(unsigned char c, unsigned char *ret_low, unsigned char *ret_high)
{
	*ret_low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
	*ret_high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
	if (c < 0x80)
		return 0;
	if (c >= 0xc2 && c <= 0xdf)
		return 1;
	if (c >= 0xe0 && c <= 0xef)
		return 2;
	if (c >= 0xf0 && c <= 0xf4)
		return 3;
	return -1;
}

size_t utf8_next(const char *s, size_t len, enum utf8_part *ret)
{
	const unsigned char *p = (const unsigned char *)s;
	unsigned char low;
	unsigned char high;
	int tail = tail_len(p[0], &low, &high);
	size_t n = 1;

	for (; tail > 0; tail--, n++) {
		if (n == len) {
			*ret = UTF8_CUT;
			return n;
		}
		if (p[n] < low || p[n] > high)
			break;
		low = 0x80;
		high = 0xbf;
	}
	*ret = tail == 0 ? UTF8_CHAR : UTF8_BAD;
	return n;
}

bool utf8_valid(const char *s, size_t len)
{
	enum utf8_part part = UTF8_CHAR;

	for (size_t i = 0; i < len && part == UTF8_CHAR;)
		i += utf8_next(s + i, len - i, &part);
	return part == UTF8_CHAR;
}
