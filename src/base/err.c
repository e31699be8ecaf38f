/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int err_set(struct err *e, enum err_kind kind, int sys, const char *fmt, ...)
{
	size_t used;
	va_list ap;

	e->kind = (int32_t)kind;
	e->sys = sys;
	va_start(ap, fmt);
	(void)vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
	va_end(ap);
	used = strlen(e->msg);
	if (sys)
		(void)snprintf(e->msg + used, sizeof(e->msg) - used, ": %s", strerror(sys));
	return sys ? -sys : -EPROTO;
}

int err_wrap(struct err *e, int r, const char *context)
{
	char inner[sizeof(e->msg)];

	memcpy(inner, e->msg, sizeof(inner));
	(void)snprintf(e->msg, sizeof(e->msg), "%.120s: %.370s", context, inner);
	return r;
}
