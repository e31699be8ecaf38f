/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/macro.h"

/*
 * A pack is a list of records {kind, name, data} in one block of memory: how bodies (script, files, arguments) travel
 * in a memfd between our processes.  Reading never copies and never trusts a length.
 */
struct pack {
	char *data; /* owned */
	size_t len;
	size_t size;
};

struct pack_record {
	uint32_t kind;
	const char *name; /* NUL-terminated, inside the pack; never NULL */
	const char *data; /* followed by one NUL, inside the pack; never NULL */
	size_t len;
};

/* pack_add() - append a record; @name may be NULL (empty).  Return: 0 or -ENOMEM */
int pack_add(struct pack *p, uint32_t kind, const char *name, const void *data, size_t len) MUST_CHECK;

void pack_done(struct pack *p);

/*
 * pack_next() - the record at *@offset, which moves behind it; start with 0
 *
 * Return: 1 a record, 0 the end, -EBADMSG when the block is not a pack.
 */
int pack_next(const char *block, size_t block_len, size_t *offset, struct pack_record *ret) MUST_CHECK;
