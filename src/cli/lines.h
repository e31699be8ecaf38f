/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/macro.h"

/*
 * Lines of a descriptor, one at a time and in bounded memory: what is held is one line and what one read() brought
 * beyond it.
 */
struct lines {
	int fd; /* borrowed */
	size_t max;
	char *data; /* owned */
	size_t start; /* of the line that comes next */
	size_t len;
	size_t size;
	size_t scanned; /* no newline before here */
	size_t number;  /* of the line last given, from 1 */
	bool is_ended;
	bool is_skipping; /* inside a line that was too long */
};

struct line {
	const char *text; /* without its newline; valid until the next call */
	size_t len;
	size_t number;
	bool is_too_long; /* it had more than max bytes; text is empty */
};

void lines_init(struct lines *l, int fd, size_t max);
void lines_done(struct lines *l);

/* lines_fill() - one read().  Return: 0 or -errno; at the end, and after an error, is_ended is set */
int lines_fill(struct lines *l) MUST_CHECK;

/* lines_next() - the next line that is there whole; at the end, also without its newline.  Return: is there one */
bool lines_next(struct lines *l, struct line *ret);
