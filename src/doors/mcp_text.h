/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/macro.h"

#define MCP_STREAM_CHARS   9000  /* of one stream, at most */
#define MCP_STREAMS_CHARS  14000 /* of both: there are clients that cut at 16000 */
#define MCP_FAILURE_CHARS  8000  /* of both when the call failed: there are clients that cut errors at 11000 */
#define MCP_ARTIFACT_CHARS 4000  /* of the texts among the files, all together */

/*
 * mcp_text_result() - a result in words: what happened and what to do, then each stream, head and tail
 * @run:       the result, as cloched wrote it
 * @n_shown:   images that go beside it
 *
 * What is ours stands first, and the marks around the script's own words carry the run's id, which no script knows: it
 * can't write a line that passes for ours.  Return: as buf_add()
 */
int mcp_text_result(struct buf *b, const json_t *run, bool is_failure, unsigned n_shown) MUST_CHECK;

/* mcp_text_refusal() - of an error object.  Return: as buf_add() */
int mcp_text_refusal(struct buf *b, const json_t *error) MUST_CHECK;
