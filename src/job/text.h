/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/macro.h"
#include "base/parse.h"

/*
 * text_from_bytes() - bytes to valid UTF-8: each maximal invalid part becomes U+FFFD (as Python's errors="replace")
 * @ret_errors: whether anything was replaced
 *
 * Return: 0 or -ENOMEM; *@ret is heap, the caller frees.
 */
int text_from_bytes(const char *data, size_t len, char **ret, size_t *ret_len, bool *ret_errors) MUST_CHECK;

/*
 * text_visible() - a text from a script or a request as it may be shown on a terminal: nothing in it is obeyed
 * @keeps_lines: newline and tab stay as they are; else they are shown, too, and what comes is one line
 *
 * Control characters (C0, DEL, C1), what turns the direction of writing or can't be seen, and bytes that are not UTF-8
 * become \n, \t, \r, \x1b, \u202e, \U000e0041; everything else is itself, a backslash, too.
 * Return: heap, NUL-terminated, the caller frees; NULL: no memory.
 */
char *text_visible(const char *text, size_t len, bool keeps_lines) MUST_CHECK;

/* text_visible_in() - the same as one line in @buf, cut at a character with "..." if need be.  Return: @buf */
const char *text_visible_in(char *buf, size_t size, const char *text, size_t len);

/* text_visible_char() - for one part as utf8_next() finds it, newline and tab shown.  Return: bytes in @out, not 0 */
#define TEXT_VISIBLE_CHAR 16
size_t text_visible_char(const char *s, size_t len, enum utf8_part part, char out[TEXT_VISIBLE_CHAR]);

/* base64_encode() - heap, NUL-terminated; NULL: no memory */
char *base64_encode(const void *data, size_t len) MUST_CHECK;

/* base64_decode() - strict RFC 4648 with padding, no white space.  Return: 0, -EINVAL or -ENOMEM */
int base64_decode(const char *text, size_t len, char **ret, size_t *ret_len) MUST_CHECK;
