/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"
#include "cli/engine.h"
#include "cli/progress.h"
#include "cli/signals.h"

/* One run from its start to its result, in one poll loop: its input, its output, our signals, our reader. */
struct drive {
	struct signals *signals; /* borrowed */
	int input; /* borrowed; its bytes are the script's standard input as they come; -1: none but the request's */
	bool copies_output;        /* the script's output to our 1 and 2, none kept */
	struct progress *progress; /* borrowed; NULL: none */

	int lost;       /* filled: errno with which our output failed; 0: it did not */
	int lost_fd;    /* filled: 1 or 2 */
	int input_lost; /* filled: errno with which reading @input failed; 0: it did not */
};

/*
 * drive() - run one request and wait for it
 *
 * A signal or a lost reader cancels the run; its result still comes.
 * Return: 0 with @ret filled (the caller's: answer_done()); @e is set too when the run was lost.
 * -errno with @e set: there is no result.
 */
int drive(struct drive *d, struct engine *g, const struct asked *q, struct answer *ret, struct err *e) MUST_CHECK;

/*
 * drive_put() - a line of text to standard output, through the same care for signals
 *
 * Return: 0 or -errno, then @d->lost is set.
 */
int drive_put(struct drive *d, const char *text) MUST_CHECK;

/*
 * drive_exit() - what to exit with when the output is written: 130 after a signal or when the reader went away,
 * 125 (and a word) when our output failed, else @status
 */
int drive_exit(const struct drive *d, int status);
