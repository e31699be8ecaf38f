/* SPDX-License-Identifier: Apache-2.0 */
#include "run/wire.h"

#include <errno.h>

ssize_t wire_next(const void *message, size_t len, size_t *at, const struct wire_head **ret)
{
	const struct wire_head *whole = message;
	const struct wire_part *part;

	if (len < sizeof(*whole))
		return -EBADMSG;
	if (*at == len)
		return 0;
	if (whole->type != WIRE_LAST) {
		*at = len;
		*ret = whole;
		return (ssize_t)len;
	}
	if (*at == 0)
		*at = sizeof(*whole);
	if (len - *at < sizeof(*part))
		return -EBADMSG;
	part = (const void *)((const char *)message + *at);
	*at += sizeof(*part);
	if (part->len < sizeof(**ret) || len - *at < WIRE_ALIGNED(part->len))
		return -EBADMSG;
	*ret = (const void *)((const char *)message + *at);
	*at += WIRE_ALIGNED(part->len);
	return (*ret)->type == WIRE_LAST ? -EBADMSG : (ssize_t)part->len;
}
