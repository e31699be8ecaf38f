/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "base/macro.h"

/* A growing byte buffer with a ceiling: nothing that a client or script sends makes it larger than @max. */
struct buf {
	char *data; /* owned; NUL-terminated once anything was added */
	size_t len;
	size_t size;
	size_t max;
};

void buf_init(struct buf *b, size_t max);
void buf_done(struct buf *b);

/* buf_add() - append @len bytes.  Return: 0, -ENOMEM, or -EFBIG when it would pass max (nothing is added then) */
int buf_add(struct buf *b, const void *data, size_t len) MUST_CHECK;

/* buf_printf() - append formatted text.  Return: as buf_add() */
int buf_printf(struct buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3) MUST_CHECK;
