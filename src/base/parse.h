/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macro.h"

/* All return 0, or -EINVAL (not of that form) or -ERANGE (outside @min..@max); *@ret is written only on success. */

/* parse_u64() - plain decimal digits and nothing else */
int parse_u64(const char *s, uint64_t min, uint64_t max, uint64_t *ret) MUST_CHECK;

/*
 * parse_size() - bytes: digits with an optional fraction and an optional suffix k, m, g, t (KiB, MiB, ...): "512m",
 * "1.5g", "64MiB", "64MB"
 */
int parse_size(const char *s, uint64_t min, uint64_t max, uint64_t *ret) MUST_CHECK;

/* parse_duration_ns() - "10", "1.5", "2m", "250ms", "1h", "30d"; without a suffix: seconds */
int parse_duration_ns(const char *s, uint64_t min, uint64_t max, uint64_t *ret) MUST_CHECK;

/* parse_milli() - a decimal number times 1000 ("1.5" is 1500), for CPUs */
int parse_milli(const char *s, uint64_t min, uint64_t max, uint64_t *ret) MUST_CHECK;

/* parse_bool() - yes/no, true/false, on/off, 1/0 */
int parse_bool(const char *s, bool *ret) MUST_CHECK;

enum utf8_part {
	UTF8_CHAR, /* one whole, valid character */
	UTF8_BAD,  /* a maximal invalid part: what becomes one U+FFFD */
	UTF8_CUT,  /* the valid beginning of a character that the end of the text cuts off */
};

/* utf8_next() - what is at @s, @len > 0 bytes.  Return: its length, at least 1 */
size_t utf8_next(const char *s, size_t len, enum utf8_part *ret);

/* utf8_valid() - strict UTF-8: no overlong forms, no surrogates, at most U+10FFFF */
bool utf8_valid(const char *s, size_t len);
