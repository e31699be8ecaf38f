/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STEP ((size_t)64 << 10)

void lines_init(struct lines *l, int fd, size_t max)
{
	*l = (struct lines){ .fd = fd, .max = max };
}

void lines_done(struct lines *l)
{
	free(l->data);
	*l = (struct lines){ .fd = -1, .is_ended = true };
}

static int make_room(struct lines *l)
{
	size_t size;
	char *data;

	if (l->start) {
		memmove(l->data, l->data + l->start, l->len - l->start);
		l->len -= l->start;
		l->scanned -= l->start;
		l->start = 0;
	}
	if (l->size - l->len >= STEP)
		return 0;
	size = l->size < STEP ? 2 * STEP : 2 * l->size;
	data = realloc(l->data, size);
	if (!data)
		return -ENOMEM;
	l->data = data;
	l->size = size;
	return 0;
}

int lines_fill(struct lines *l)
{
	int r = make_room(l);
	ssize_t n;

	if (r == 0) {
		n = read(l->fd, l->data + l->len, STEP);
		if (n > 0)
			l->len += (size_t)n;
		if (n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN)))
			return 0;
		r = n < 0 ? -errno : 0;
	}
	l->is_ended = true;
	return r;
}

/* What has come of the line so far is not kept any longer. */
static void skip(struct lines *l)
{
	l->is_skipping = true;
	l->len = l->start;
	l->scanned = l->start;
}

bool lines_next(struct lines *l, struct line *ret)
{
	char *newline = l->scanned < l->len ? memchr(l->data + l->scanned, '\n', l->len - l->scanned) : NULL;
	size_t end = newline ? (size_t)(newline - l->data) : l->len;

	if (!newline && !l->is_ended) {
		l->scanned = l->len;
		if (l->len - l->start > l->max || l->is_skipping)
			skip(l);
		return false;
	}
	if (!newline && end == l->start && !l->is_skipping)
		return false; /* the end */
	*ret = (struct line){ .text = l->data + l->start, .len = end - l->start, .number = ++l->number };
	ret->is_too_long = l->is_skipping || ret->len > l->max;
	if (ret->is_too_long)
		ret->len = 0;
	l->is_skipping = false;
	l->start = newline ? end + 1 : end;
	l->scanned = l->start;
	return true;
}
