/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cli/answer.h"
#include "run/run.h"

/*
 * The client of a server's native socket (run/native.h).  A run there has the shape of one of our own (run/run.h).
 */

enum remote_peer {
	REMOTE_SAME,   /* a server with our settings (or nobody asked) */
	REMOTE_OTHER,  /* ... with other settings */
	REMOTE_ABSENT, /* no socket, or nobody listens */
};

/*
 * remote_connect() - connect to @path; its peer must be ourselves or root
 * @digest: of our settings; 0: any will do
 * @ret_fd: the connection, for REMOTE_SAME alone; the caller closes it
 *
 * Return: enum remote_peer; -errno with @e set: not to be trusted, no answer within two seconds, ...
 */
int remote_connect(const char *path, uint64_t digest, int *ret_fd, struct err *e) MUST_CHECK;

/* remote_environments() - ask for the list (JSON, heap, the caller frees).  Return: 0 or -errno with @e set */
int remote_environments(int fd, char **ret, struct err *e) MUST_CHECK;

struct remote;

/* One request: @json is borrowed for the call; @hooks: as run_start() has it. */
struct remote_request {
	const char *json;
	size_t len;
	bool is_streamed; /* standard input comes by remote_input() */
	const struct run_hooks *hooks;
};

/* remote_start() - send it; @fd is borrowed until remote_finish().  Return: 0 or -errno with @e set */
int remote_start(int fd, const struct remote_request *q, struct remote **ret, struct err *e) MUST_CHECK;

short remote_events(const struct remote *r);

/* remote_step() - as run_step() */
int remote_step(struct remote *r, struct err *e) MUST_CHECK;

/* remote_input() - as run_input() */
ssize_t remote_input(struct remote *r, const void *data, size_t len) MUST_CHECK;

/* remote_cancel() - as run_cancel(); the connection is of no further use then */
void remote_cancel(struct remote *r);

/*
 * remote_finish() - what came of it, after remote_step() has said 1; frees @r in every case
 * @ret_can_go_on: the connection may be used again
 *
 * Return: 0; -errno with @e set: the run was lost, or the answer is none.
 */
int remote_finish(struct remote *r, struct answer *ret, bool *ret_can_go_on, struct err *e) MUST_CHECK;
