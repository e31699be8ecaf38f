/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/macro.h"

/*
 * text_from_bytes() - bytes to valid UTF-8: each maximal invalid part becomes U+FFFD (as Python's errors="replace")
 * @ret_errors: whether anything was replaced
 *
 * Return: 0 or -ENOMEM; *@ret is heap, the caller frees.
 */
int text_from_bytes(const char *data, size_t len, char **ret, size_t *ret_len, bool *ret_errors) MUST_CHECK;

/* base64_encode() - heap, NUL-terminated; NULL: no memory */
char *base64_encode(const void *data, size_t len) MUST_CHECK;

/* base64_decode() - strict RFC 4648 with padding, no white space.  Return: 0, -EINVAL or -ENOMEM */
int base64_decode(const char *text, size_t len, char **ret, size_t *ret_len) MUST_CHECK;
