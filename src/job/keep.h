/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macro.h"

/*
 * Keeps the first and the last half of what is written to it, in bounded memory: never more than @max bytes
 * (plus a few for character edges), whatever passes through.
 */
struct keep {
	uint64_t max;
	uint64_t total; /* bytes seen */
	char *head;     /* owned; grows on demand up to max until the first overflow */
	size_t head_len;
	size_t head_size;
	char *tail; /* owned; a ring of max / 2 bytes, allocated at the first overflow */
	size_t tail_pos;
	size_t tail_len;
};

void keep_init(struct keep *k, uint64_t max);
void keep_done(struct keep *k);

/* keep_add() - Return: 0 or -ENOMEM */
int keep_add(struct keep *k, const void *data, size_t len) MUST_CHECK;

bool keep_is_truncated(const struct keep *k);

/*
 * keep_bytes() - what is kept, as raw bytes; when truncated, head and tail cut at UTF-8 character edges with
 * "[... N bytes left out ...]" once between them
 *
 * @ret: heap, NUL behind it, the caller frees.  Return: 0 or -ENOMEM
 */
int keep_bytes(const struct keep *k, char **ret, size_t *ret_len) MUST_CHECK;
