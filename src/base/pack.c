/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PACK_MAGIC 0x6b617063U

/*
 * One record: head, name, NUL, data, NUL; the next follows at once, so heads are copied out, never pointed at.
 * Both ends are processes of one build on one machine: native byte order.
 */
struct head {
	uint32_t magic;
	uint32_t kind;
	uint32_t name_len;
	uint32_t zero;
	uint64_t data_len;
};

static int reserve(struct pack *p, size_t more)
{
	size_t need;
	size_t size = p->size ? p->size : 4096;
	char *data;

	if (__builtin_add_overflow(p->len, more, &need))
		return -ENOMEM;
	if (need <= p->size)
		return 0;
	while (size < need)
		size = size > SIZE_MAX / 2 ? need : size * 2;
	data = realloc(p->data, size);
	if (!data)
		return -ENOMEM;
	p->data = data;
	p->size = size;
	return 0;
}

static void append(struct pack *p, const void *data, size_t len)
{
	if (len > 0)
		memcpy(p->data + p->len, data, len);
	p->len += len;
	p->data[p->len++] = '\0';
}

int pack_add(struct pack *p, uint32_t kind, const char *name, const void *data, size_t len)
{
	size_t name_len = name ? strlen(name) : 0;
	struct head h = { .magic = PACK_MAGIC, .kind = kind, .name_len = (uint32_t)name_len, .data_len = len };
	size_t more;

	if (name_len > UINT32_MAX || __builtin_add_overflow(sizeof(h) + name_len + 2, len, &more))
		return -ENOMEM;
	if (reserve(p, more) < 0)
		return -ENOMEM;
	memcpy(p->data + p->len, &h, sizeof(h));
	p->len += sizeof(h);
	append(p, name, name_len);
	append(p, data, len);
	return 0;
}

void pack_done(struct pack *p)
{
	free(p->data);
	*p = (struct pack) { 0 };
}

int pack_next(const char *block, size_t block_len, size_t *offset, struct pack_record *ret)
{
	size_t left;
	const char *p;
	struct head h;

	if (*offset > block_len)
		return -EBADMSG;
	left = block_len - *offset;
	if (left == 0)
		return 0;
	if (left < sizeof(h))
		return -EBADMSG;
	p = block + *offset;
	memcpy(&h, p, sizeof(h));
	p += sizeof(h);
	left -= sizeof(h);
	if (h.magic != PACK_MAGIC || h.zero != 0)
		return -EBADMSG;
	/* each length is compared with what is left, never added to another: no sum can wrap */
	if (left < 2 || h.name_len > left - 2 || h.data_len > left - 2 - h.name_len)
		return -EBADMSG;
	if (memchr(p, '\0', (size_t)h.name_len + 1) != p + h.name_len || p[h.name_len + 1 + h.data_len] != '\0')
		return -EBADMSG;
	*ret = (struct pack_record) {
		.kind = h.kind, .name = p, .data = p + h.name_len + 1, .len = (size_t)h.data_len
	};
	*offset += sizeof(h) + h.name_len + (size_t)h.data_len + 2;
	return 1;
}
