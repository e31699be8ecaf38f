/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/macro.h"

/*
 * The server's log: one line an event on standard error, key=value; "<priority>" in front where that is the journal.
 * Never blocks: what standard error does not take at once is dropped and counted.  A script's text never comes here.
 */
enum log_level { LOG_ERROR = 3, LOG_WARNING = 4, LOG_INFO = 6 };

/* log_open() - look where standard error goes */
void log_open(void);

/* log_line() - control characters are shown as '?' */
void log_line(enum log_level level, const char *fmt, ...) PRINTF_LIKE(2, 3);
