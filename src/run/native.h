/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

/*
 * The native socket: how clients on the same machine speak to `cloche serve`.  AF_UNIX, SEQPACKET; each message is one
 * struct native_head (host byte order) and a body.  A text of at most NATIVE_DATA_MAX bytes is the body; a longer one
 * comes as one sealed memfd with the message, whose body is then empty.
 *
 *   client -> server
 *     NATIVE_HELLO    body: uint64_t, the client's settings_digest().  Optional; answered by NATIVE_WELCOME (the server's
 *                     settings are the same) or NATIVE_DIFFERS (they are not; the connection may be used all the same)
 *     NATIVE_RUN      a request (JSON, as cloche(1) has it) and enum native_flags.  One at a time: the next message
 *                     that is not NATIVE_INPUT may come when this one was answered by NATIVE_RESULT or NATIVE_ERROR,
 *                     and that answer was read
 *     NATIVE_INPUT    with NATIVE_STREAM_INPUT: standard input as it comes; empty: its end.  What comes too late is dropped
 *     NATIVE_ENV      which environments are there; answered by NATIVE_ENV_REPLY (JSON)
 *     NATIVE_TENANT   body: a name of 1 to NATIVE_TENANT_MAX bytes of [A-Za-z0-9._-].  The requests to come are this
 *                     tenant's; from root or the server's own user alone, from others, and while a request is under way, it ends the
 *                     connection.  No answer
 *     NATIVE_STATS    the server's counters; answered by NATIVE_STATS_REPLY (JSON), without other tenants for who may not
 *                     say NATIVE_TENANT
 *     shut-down of its sending half: cancel what is under way (a result still comes); its end: cancel and forget it
 *   server -> client
 *     NATIVE_ACCEPTED with NATIVE_TELL_ID: the request is valid and waits or runs; body: its run_id, 32 characters.  It is
 *                     the result's; a NATIVE_ERROR may still come (others have pushed it out of a full queue)
 *     NATIVE_OUTPUT   with NATIVE_STREAM_OUTPUT: what the script wrote; code: 1 or 2.  The result then holds none of it
 *     NATIVE_RESULT   the result (JSON)
 *     NATIVE_ERROR    the error object (JSON); code: enum err_kind.  Nothing ran
 *
 * The server closes a connection that breaks these rules.  A message of another version is answered by NATIVE_DIFFERS.
 */
#define NATIVE_VERSION    1
#define NATIVE_DATA_MAX   61440
#define NATIVE_TENANT_MAX 64
#define NATIVE_TENANT_UID "uid-" /* and a number: that user, by whichever door it comes */

enum native_type {
	NATIVE_HELLO = 1,
	NATIVE_RUN,
	NATIVE_INPUT,
	NATIVE_ENV,
	NATIVE_TENANT,
	NATIVE_STATS,
	NATIVE_WELCOME = 64,
	NATIVE_DIFFERS,
	NATIVE_OUTPUT,
	NATIVE_RESULT,
	NATIVE_ERROR,
	NATIVE_ENV_REPLY,
	NATIVE_ACCEPTED,
	NATIVE_STATS_REPLY,
};

enum native_flags {
	NATIVE_STREAM_INPUT = 1 << 0,
	NATIVE_STREAM_OUTPUT = 1 << 1,
	NATIVE_TELL_ID = 1 << 2,
};

struct native_head {
	uint32_t type;    /* enum native_type */
	uint32_t version; /* NATIVE_VERSION */
	uint32_t code;
	uint32_t flags;
};

struct native_message {
	struct native_head head;
	char data[NATIVE_DATA_MAX];
};

#define NATIVE_SYSTEM_DIR    "/run/cloche"
#define NATIVE_SYSTEM_SOCKET NATIVE_SYSTEM_DIR "/cloche.sock"
#define NATIVE_USER_SOCKET   "cloche.sock" /* below $XDG_RUNTIME_DIR */
