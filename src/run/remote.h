/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
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
 * remote_place() - where a server is looked for that nobody named: the nearest place is 0
 * @runtime: the user's runtime folder; NULL: none
 *
 * Return: whether there is such a place here.
 */
#define REMOTE_PLACES 2
bool remote_place(unsigned n, const char *runtime, char *ret, size_t size);

/*
 * remote_connect() - connect to @path; its peer must be ourselves or root
 * @digest: of our settings; 0: any will do
 * @ret_fd: the connection, for REMOTE_SAME alone; the caller closes it
 *
 * Return: enum remote_peer; -errno with @e set: not to be trusted, no answer within two seconds, ...
 */
int remote_connect(const char *path, uint64_t digest, int *ret_fd, struct err *e) MUST_CHECK;

/* remote_connect_now() - the same without a digest and without ever waiting: -EAGAIN when the server has no room now */
int remote_connect_now(const char *path, int *ret_fd, struct err *e) MUST_CHECK;

/* remote_environments() - ask for the list (JSON, heap, the caller frees).  Return: 0 or -errno with @e set */
int remote_environments(int fd, char **ret, struct err *e) MUST_CHECK;

/*
 * remote_tenant() - for whom the requests to come on this connection are (NATIVE_TENANT); the server closes the
 * connection of a peer that may not say so
 *
 * Return: 0 or -errno with @e set
 */
int remote_tenant(int fd, const char *name, struct err *e) MUST_CHECK;

/* What a server said to a request, as it came. */
struct remote_answer {
	char *json; /* owned: the result, or the error object; one NUL behind it */
	size_t len;
	bool is_refused; /* the error object: nothing ran */
	uint32_t kind;   /* enum err_kind of a refusal (ERR_BUSY: no room now) */
};

struct remote;

/* One request: @json is borrowed for the call; @hooks: as run_start() has it. */
struct remote_request {
	const char *json;
	size_t len;
	bool is_streamed; /* standard input comes by remote_input() */
	bool wants_id;    /* remote_run_id() before the run's end */
	const struct run_hooks *hooks;
};

/* remote_start() - send it; @fd is borrowed until remote_finish().  Return: 0 or -errno with @e set */
int remote_start(int fd, const struct remote_request *q, struct remote **ret, struct err *e) MUST_CHECK;

/*
 * remote_ask() - ask without waiting: NATIVE_ENV or NATIVE_STATS; remote_step() and remote_finish() bring the answer
 *
 * Return: 0 or -errno with @e set
 */
int remote_ask(int fd, uint32_t type, struct remote **ret, struct err *e) MUST_CHECK;

short remote_events(const struct remote *r);

/* remote_step() - as run_step() */
int remote_step(struct remote *r, struct err *e) MUST_CHECK;

/* remote_run_id() - with wants_id: the run's id as soon as the server has taken it, else "" */
const char *remote_run_id(const struct remote *r);

/* remote_input() - as run_input() */
ssize_t remote_input(struct remote *r, const void *data, size_t len) MUST_CHECK;

/* remote_cancel() - as run_cancel(); the connection is of no further use then */
void remote_cancel(struct remote *r);

/*
 * remote_finish() - what came of it, after remote_step() has said 1; frees @r in every case
 * @ret_can_go_on: the connection may be used again
 *
 * Return: 0 with @ret filled; -errno with @e set: the run was lost.
 */
int remote_finish(struct remote *r, struct remote_answer *ret, bool *ret_can_go_on, struct err *e) MUST_CHECK;
