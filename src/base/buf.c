/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_SIZE 256

void buf_init(struct buf *b, size_t max)
{
	*b = (struct buf) { .max = max };
}

void buf_done(struct buf *b)
{
	free(b->data);
	b->data = NULL;
	b->len = 0;
	b->size = 0;
}

/* reserve() - room for @len more bytes and the NUL behind them; doubling keeps many small additions linear */
static int reserve(struct buf *b, size_t len)
{
	size_t need;
	size_t size = b->size ? b->size : FIRST_SIZE;
	char *data;

	if (len > b->max - b->len)
		return -EFBIG;
	if (__builtin_add_overflow(b->len, len, &need) || __builtin_add_overflow(need, (size_t)1, &need))
		return -ENOMEM;
	if (need <= b->size)
		return 0;
	while (size < need)
		size = size > SIZE_MAX / 2 ? need : size * 2;
	data = realloc(b->data, size);
	if (!data)
		return -ENOMEM;
	b->data = data;
	b->size = size;
	return 0;
}

int buf_add(struct buf *b, const void *data, size_t len)
{
	int r = reserve(b, len);

	if (r < 0)
		return r;
	if (len > 0)
		memcpy(b->data + b->len, data, len);
	b->len += len;
	b->data[b->len] = '\0';
	return 0;
}

int buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	int n;
	int r;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0)
		return -ENOMEM;
	r = reserve(b, (size_t)n);
	if (r < 0)
		return r;
	va_start(ap, fmt);
	(void)vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
	va_end(ap);
	b->len += (size_t)n;
	return 0;
}
