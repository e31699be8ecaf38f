/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macro.h"
#include "job/limits.h"

/*
 * The Model Context Protocol, one message at a time and without state: bytes in, what is to be done out.  Two eras are
 * spoken side by side, each request in its own: until 2025-11-25 (a connection begins with `initialize`) and from
 * 2026-07-28 on (each request says in its _meta who asks and in which version).
 */
#define MCP_LEGACY_VERSION "2025-11-25"
#define MCP_MODERN_VERSION "2026-07-28"
#define MCP_ENVELOPE_MAX   ((size_t)64 << 10) /* of a message without its tool's arguments */

enum mcp_era { MCP_LEGACY, MCP_MODERN };

enum mcp_what {
	MCP_NOTHING,  /* nothing is to be done or said */
	MCP_ANSWERED, /* @reply says it all */
	MCP_CALL,     /* @request is to be run; mcp_result_write() makes the reply */
	MCP_CANCEL,   /* the call with this @id is to end, without a reply */
};

/* What one message asks for; mcp_message_done(). */
struct mcp_message {
	enum mcp_what what;
	enum mcp_era era;
	bool is_serious;    /* its sender goes on to call the tool: a good moment to get ready */
	bool is_initialize; /* the beginning of a legacy session */
	int http_status;    /* that goes with @reply; 202 for what has none */
	char *reply;        /* owned: one line of JSON without its end; NULL: none */
	size_t reply_len;
	char *id;       /* owned: a string or an integer as JSON */
	char *progress; /* owned: the token as JSON; NULL: progress is not asked for */
	char *request; /* owned: a request of cloche(1), as it came, with a timeout put in where it had none */
	size_t request_len;
	uint64_t timeout_ns; /* of a call, as far as it can be told: for the progress it makes */
};

/* What holds here; job_rules of the configuration. */
struct mcp_terms {
	uint64_t timeout_ns;     /* of a call that names none */
	uint64_t max_timeout_ns; /* 0: not known */
};

/* mcp_terms_of() - 25 seconds, or less where the configuration has less: clients give up after 30 and lose everything
 */
struct mcp_terms mcp_terms_of(const struct job_rules *rules);

/* HTTP's half of a message: NULL for a header that is not there. */
struct mcp_headers {
	const char *version; /* MCP-Protocol-Version */
	const char *method;  /* Mcp-Method */
	const char *name;    /* Mcp-Name */
};

/*
 * mcp_read() - one message, any bytes
 * @h: over HTTP; NULL elsewhere
 *
 * Return: 0 with @ret filled (the caller's), -ENOMEM.
 */
int mcp_read(const struct mcp_terms *t, const struct mcp_headers *h, const char *json, size_t len,
	     struct mcp_message *ret) MUST_CHECK;
void mcp_message_done(struct mcp_message *m);

/* mcp_error_write() - an error as a reply to @id (NULL: to what could not be read); heap, NULL: no memory */
char *mcp_error_write(const char *id, int code, const char *message) MUST_CHECK;

/* mcp_progress_write() - a notification; heap, NULL: no memory.  @total 0: not known */
char *mcp_progress_write(const char *token, double progress, double total, const char *message) MUST_CHECK;

/*
 * mcp_result_write() - what a call came to, as its reply; heap, NULL: no memory
 * @json: a result, or the error object of a request that was refused
 */
char *mcp_result_write(const char *id, enum mcp_era era, const char *json, size_t len, size_t *ret_len) MUST_CHECK;

#define MCP_PARSE_ERROR         (-32700)
#define MCP_INVALID_REQUEST     (-32600)
#define MCP_METHOD_NOT_FOUND    (-32601)
#define MCP_INVALID_PARAMS      (-32602)
#define MCP_INTERNAL_ERROR      (-32603)
#define MCP_HEADER_MISMATCH     (-32020)
#define MCP_UNSUPPORTED_VERSION (-32022)
