/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/buf.h"
#include "history/history.h"

/* Inside history alone. */

/* shape_add_row() - the object of history_list() without its closing brace.  Return: 0 or -ENOMEM */
int shape_add_row(struct buf *b, const struct history_row *row) MUST_CHECK;

/* shape_add_string() - ', "NAME": "TEXT"', or null.  Return: 0 or -ENOMEM */
int shape_add_string(struct buf *b, const char *name, const char *text) MUST_CHECK;

/* glob_fits() - *, ?, [a-z], [!a-z]; both are whole, NUL-terminated texts */
bool glob_fits(const char *p, const char *s);
