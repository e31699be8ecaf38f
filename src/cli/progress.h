/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * One line about a run under way, on standard error when that is a terminal; gone before anything else is written
 * there.
 *
 * What the script writes stays as it is: while its output has the cursor in the middle of a line, nothing is shown.
 */
struct progress {
	bool is_on;
	bool is_shown;
	bool is_in_line;     /* the script's last byte on the terminal was no newline */
	bool is_terminal[3]; /* by stream: what is written there is on a terminal, too */
	bool has_colour;
	uint64_t start_ns;   /* CLOCK_MONOTONIC */
	uint64_t next_ns;    /* when to look again */
	uint64_t timeout_ns; /* 0: not known */
	uint64_t bytes;      /* of output so far */
};

/* progress_init() - @is_wanted: and yet it is on only where it can be shown and erased again */
void progress_init(struct progress *p, bool is_wanted, uint64_t timeout_ns);

/* progress_wait_ms() - how long to wait for other things, as poll() takes it */
int progress_wait_ms(const struct progress *p);

/* progress_show() - bring it up to date, if it is time */
void progress_show(struct progress *p);

/* progress_hide() - erase it: before output of the script (then progress_note()), and at the end */
void progress_hide(struct progress *p);

/* progress_note() - these bytes of @stream, 1 or 2, were written */
void progress_note(struct progress *p, int stream, const char *data, size_t len);
