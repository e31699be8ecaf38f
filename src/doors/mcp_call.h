/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "base/macro.h"
#include "doors/mcp.h"
#include "doors/runner.h"
#include "doors/runner_own.h"

/* Calls of the tool under way, on an event loop, for whichever way their messages come and go. */
struct mcp_call;

/* Where they run: at the server; where there is none, or none any more, by our own supervisor. */
struct mcp_place {
	struct event_base *base;
	struct runner *server;  /* borrowed; NULL: none */
	struct runner_own *own; /* borrowed; NULL: there must be a server */
	const char *tenant;     /* at a server; borrowed; NULL: our own user */
};

/*
 * @on_message: something to be sent, one line of JSON without its end; borrowed.  The last one is the reply: @call is
 * gone when that returns, nothing else comes.  Called from the event loop alone, never from mcp_call_start()
 */
struct mcp_listener {
	void *userdata;
	void (*on_message)(void *userdata, struct mcp_call *call, const char *json, size_t len, bool is_last);
};

/*
 * mcp_call_start() - what @m (MCP_CALL) asks for; its id, era and token are taken over
 *
 * What can't start is replied to like everything else.  Return: 0 or -ENOMEM (and nothing will be said).
 */
int mcp_call_start(const struct mcp_place *place, struct mcp_message *m, const struct mcp_listener *to,
		   struct mcp_call **ret) MUST_CHECK;

/* mcp_call_id() - as JSON */
const char *mcp_call_id(const struct mcp_call *call);

/* mcp_call_drop() - end it; nothing more is said, @call is gone */
void mcp_call_drop(struct mcp_call *call);
