/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/macro.h"

/*
 * SIGINT, SIGTERM and SIGHUP as something to poll, and writing that does not miss them.
 *
 * The first one asks the runs to end and is answered in order; the second leaves at once (the supervisor and everything
 * in it dies with us).  What was ignored when we were started (nohup, a shell's background job) stays ignored.
 */
struct signals {
	int fd;       /* owned; poll for POLLIN, then signals_take() */
	bool is_seen; /* one has come */
};

/*
 * signals_open() - from here on signals wait for us, and SIGPIPE is an error of write()
 *
 * After: supervisor_start(): a program that we start must not inherit any of this.
 * Return: 0 or -errno with @e set.
 */
int signals_open(struct signals *ret, struct err *e) MUST_CHECK;
void signals_close(struct signals *s);

/* signals_take() - take what has come; leaves the process at the second one.  Return: whether any has come so far */
bool signals_take(struct signals *s);

/*
 * signals_write() - write everything, waiting for a slow reader, but not beyond a second once a signal has come
 *
 * Return: 0, -EINTR (a signal has come and the reader does not read), or -errno of the write.
 */
int signals_write(struct signals *s, int fd, const void *data, size_t len) MUST_CHECK;

/* signals_guard_standard() - open what of 0, 1, 2 is closed: nothing else may land there.  Return: 0 or -errno */
int signals_guard_standard(void) MUST_CHECK;
