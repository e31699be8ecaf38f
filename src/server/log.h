/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/macro.h"

/*
 * The server's log: one line an event on standard error, key=value or JSON; "<priority>" in front where that is the
 * journal.  Never blocks: what standard error does not take at once is dropped and counted.  A script's text never
 * comes here.  From any thread.
 */
enum log_level { LOG_ERROR = 3, LOG_WARNING = 4, LOG_INFO = 6 };

/* log_open() - look where standard error goes */
void log_open(void);

/* log_json() - whether lines are JSON objects from now on ([server] log) */
void log_json(bool on);

/*
 * log_line() - "event=run uid=%u script=\"%s\"": fields with one blank between them, known by the format alone
 *
 * Conversions: %s %d %u %zu %llu %.6f.  In quotes stands what may hold blanks; a value without quotes that turns out
 * empty is left out with its key.  Nothing in a value is obeyed, and none is longer than some hundred bytes.
 */
void log_line(enum log_level level, const char *fmt, ...) PRINTF_LIKE(2, 3);
