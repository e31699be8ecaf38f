/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/frames.h"
#include "base/macro.h"
#include "job/result.h"

/*
 * The receiving end of base/frames.h: bytes as they come out of a sandbox, hence hostile, to a list of artifacts.
 *
 * What is taken is bounded by the numbers of frames.h: bodies by COLLECT_ALL_BYTES, names and reasons by the number of
 * frames.  The first thing that is not a well-formed stream breaks the reader for good; what was whole before it stays.
 */
struct artifacts_reader {
	struct artifact *items; /* owned */
	size_t n;
	uint64_t bytes; /* of all bodies that were announced */
	unsigned n_files;
	unsigned n_notes;
	bool is_broken;
	bool is_ended; /* the end frame was seen */
	/* The frame under way: */
	struct collect_frame frame;
	size_t frame_len; /* bytes of it that came */
	char *name;       /* owned; name_len bytes and one NUL */
	size_t name_len;
	char *body; /* owned; size bytes and one NUL */
	uint64_t body_len;
};

void artifacts_init(struct artifacts_reader *r);
void artifacts_done(struct artifacts_reader *r);

/*
 * artifacts_feed() - the next bytes of the stream, cut anywhere
 *
 * Return: 0; -EBADMSG (not such a stream: nothing more is taken, now or later); -ENOMEM (the same).
 */
int artifacts_feed(struct artifacts_reader *r, const void *data, size_t len) MUST_CHECK;

/*
 * artifacts_take() - at the stream's end: move what came whole into @ret->artifacts, which must be empty
 *
 * Return: 0; -EBADMSG when the stream was malformed or cut short (tell it: files may be missing).
 */
int artifacts_take(struct artifacts_reader *r, struct result *ret) MUST_CHECK;
