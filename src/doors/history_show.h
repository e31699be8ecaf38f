/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/macro.h"

/* What of one run is wanted: the object; or the bodies that are named; or a page for people. */
struct history_show {
	bool is_json;
	bool script;
	bool out;
	bool err;
};

/*
 * history_show_print() - on standard output; what is from a script is obeyed by no terminal
 * @json: of history_show()
 *
 * Return: 0; -errno with @e set (ERR_NOT_FOUND: what was wanted is not kept).
 */
int history_show_print(const struct history_show *what, const char *json, struct err *e) MUST_CHECK;

/*
 * history_put_json() - JSON on standard output; for a terminal, what it would obey or hide is written as escapes of
 * JSON
 *
 * Return: 0 or -errno
 */
int history_put_json(const char *json, size_t len) MUST_CHECK;
