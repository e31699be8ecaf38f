/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "cli/say.h"
#include "job/result.h"

/* What came of one request, here or at a server. */
struct answer {
	bool is_refused; /* nothing ran: @no tells why */
	bool is_busy;    /* ... and only because the server has no room now */
	struct refusal no;
	char *json;           /* owned; a server's result as it came; NULL: it was made here */
	struct result result; /* owned; with @json: empty until answer_read() */
};

void answer_done(struct answer *a);

/* answer_json() - the result as one line of JSON; heap, the caller frees; NULL: no memory.  Takes a->json */
char *answer_json(struct answer *a) MUST_CHECK;

/*
 * answer_read() - fill a->result from a->json: all but the output, and what only a->json can tell of it
 *
 * Return: 0, or -errno with @e set: that is no result.
 */
int answer_read(struct answer *a, struct err *e) MUST_CHECK;

/* answer_refuse() - fill @a from a server's error object; @kind: enum err_kind.  Return: 0, or -errno with @e set */
int answer_refuse(struct answer *a, const char *json, size_t len, uint32_t kind, struct err *e) MUST_CHECK;
