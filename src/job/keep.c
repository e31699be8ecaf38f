/* SPDX-License-Identifier: Apache-2.0 */
#include "job/keep.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/parse.h"

#define FIRST_SIZE 4096

/* The odd byte of @max belongs to the head. */
static size_t tail_size(const struct keep *k)
{
	return (size_t)(k->max / 2);
}

static size_t head_size(const struct keep *k)
{
	return (size_t)(k->max - k->max / 2);
}

void keep_init(struct keep *k, uint64_t max)
{
	*k = (struct keep) { .max = max < SIZE_MAX / 4 ? max : SIZE_MAX / 4 };
}

void keep_done(struct keep *k)
{
	free(k->head);
	free(k->tail);
	*k = (struct keep) { .max = k->max };
}

bool keep_is_truncated(const struct keep *k)
{
	return k->total > k->max;
}

/* head_grow() - room for @need <= max bytes */
static int head_grow(struct keep *k, size_t need)
{
	size_t size = k->head_size ? k->head_size : FIRST_SIZE;
	char *head;

	if (need <= k->head_size)
		return 0;
	while (size < need)
		size *= 2;
	if (size > k->max)
		size = (size_t)k->max;
	head = realloc(k->head, size);
	if (!head)
		return -ENOMEM;
	k->head = head;
	k->head_size = size;
	return 0;
}

static void tail_add(struct keep *k, const char *data, size_t len)
{
	size_t size = tail_size(k);
	size_t first;

	if (len > size) {
		data += len - size;
		len = size;
	}
	if (len == 0)
		return;
	first = size - k->tail_pos < len ? size - k->tail_pos : len;
	memcpy(k->tail + k->tail_pos, data, first);
	memcpy(k->tail, data + first, len - first);
	k->tail_pos = (k->tail_pos + len) % size;
	k->tail_len = k->tail_len + len < size ? k->tail_len + len : size;
}

/* overflow() - from one block to head and tail: the second half of what is there moves into the ring */
static int overflow(struct keep *k)
{
	char *smaller;

	if (tail_size(k) > 0) {
		k->tail = malloc(tail_size(k));
		if (!k->tail)
			return -ENOMEM;
	}
	if (k->head_len > head_size(k)) {
		tail_add(k, k->head + head_size(k), k->head_len - head_size(k));
		k->head_len = head_size(k);
	}
	smaller = head_size(k) > 0 ? realloc(k->head, head_size(k)) : NULL;
	if (smaller) {
		k->head = smaller;
		k->head_size = head_size(k);
	}
	return 0;
}

int keep_add(struct keep *k, const void *data, size_t len)
{
	const char *p = data;
	size_t room = keep_is_truncated(k) ? 0 : (size_t)(k->max - k->total);
	size_t n = len < room ? len : room;
	int r;

	if (n > 0) {
		r = head_grow(k, k->head_len + n);
		if (r < 0)
			return r;
		memcpy(k->head + k->head_len, p, n);
		k->head_len += n;
		k->total += n;
	}
	if (n == len)
		return 0;
	if (!keep_is_truncated(k)) {
		r = overflow(k);
		if (r < 0)
			return r;
	}
	tail_add(k, p + n, len - n);
	k->total += len - n;
	return 0;
}

/* head_edge() - length of the head without a character that its end cuts in two */
static size_t head_edge(const struct keep *k)
{
	enum utf8_part part;

	for (size_t back = 1; back <= 3 && back <= k->head_len; back++) {
		size_t at = k->head_len - back;

		if (((unsigned char)k->head[at] & 0xc0) == 0x80)
			continue; /* a continuation byte: its lead byte is further to the left */
		return utf8_next(k->head + at, back, &part) == back && part == UTF8_CUT ? at : k->head_len;
	}
	return k->head_len;
}

static char tail_byte(const struct keep *k, size_t i)
{
	return k->tail[(k->tail_pos + tail_size(k) - k->tail_len + i) % tail_size(k)];
}

/* tail_edge() - continuation bytes at the tail's beginning that belong to a character left out */
static size_t tail_edge(const struct keep *k)
{
	size_t n = 0;

	while (n < 3 && n < k->tail_len && ((unsigned char)tail_byte(k, n) & 0xc0) == 0x80)
		n++;
	return n;
}

static int add_tail(const struct keep *k, size_t skip, struct buf *b)
{
	size_t len = k->tail_len - skip;
	size_t from;
	size_t first;
	int r;

	if (len == 0)
		return 0;
	from = (k->tail_pos + tail_size(k) - len) % tail_size(k);
	first = tail_size(k) - from < len ? tail_size(k) - from : len;
	r = buf_add(b, k->tail + from, first);
	return r < 0 ? r : buf_add(b, k->tail, len - first);
}

int keep_bytes(const struct keep *k, char **ret, size_t *ret_len)
{
	bool is_cut = keep_is_truncated(k);
	size_t head = is_cut ? head_edge(k) : k->head_len;
	size_t skip = is_cut ? tail_edge(k) : 0;
	struct buf b;
	int r;

	buf_init(&b, SIZE_MAX / 2);
	r = buf_add(&b, k->head ? k->head : "", head);
	if (r == 0 && is_cut)
		r = buf_printf(&b, "[... %" PRIu64 " bytes left out ...]", k->total - head - (k->tail_len - skip));
	if (r == 0 && is_cut)
		r = add_tail(k, skip, &b);
	if (r < 0) {
		buf_done(&b);
		return -ENOMEM;
	}
	*ret = b.data;
	*ret_len = b.len;
	return 0;
}
