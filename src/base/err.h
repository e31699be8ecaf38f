/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/macro.h"

/* Who has to act on an error. */
enum err_kind {
	ERR_NONE = 0,
	ERR_INVALID,   /* the caller's request is wrong; never retried */
	ERR_NOT_FOUND, /* something that the caller named does not exist */
	ERR_ACCESS,    /* something that the caller named can't be read or executed */
	ERR_BUSY,      /* no capacity now; may be retried */
	ERR_HOST,      /* this machine can't run sandboxes as asked */
	ERR_BUG,       /* our own invariant broke */
};

/*
 * struct err - why *we* failed (never why the script failed)
 * @kind: who has to act (enum err_kind)
 * @sys:  errno of the failing call, 0 if none
 * @msg:  one line, no newline, never empty when @kind is set
 *
 * Plain data without pointers: it crosses sockets between our processes as it is.
 */
struct err {
	int32_t kind;
	int32_t sys;
	char msg[504];
};

/*
 * err_set() - fill @e and return the negative errno to hand up
 *
 * When @sys is not 0, ": " and its text are appended to the message.
 * Return: -@sys, or -EPROTO when @sys is 0.
 */
int err_set(struct err *e, enum err_kind kind, int sys, const char *fmt, ...) PRINTF_LIKE(4, 5);

/* err_wrap() - put "context: " in front of the message already in @e.  Return: @r. */
int err_wrap(struct err *e, int r, const char *context);
