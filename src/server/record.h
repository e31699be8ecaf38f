/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "history/history.h"
#include "job/request.h"
#include "job/result.h"
#include "run/native.h"

struct server;
struct client;

/* Where what ran is written down. */
struct record {
	char *path;              /* owned; NULL: not found yet, or nowhere */
	struct history *history; /* owned; NULL: none is kept */
	bool is_unwanted;
};

/* What of a request is needed when the client has its result already. */
struct record_run {
	struct job_blob script; /* owned */
	char tenant[NATIVE_TENANT_MAX + 1];
	char environment[40];
	uint64_t arrived_ns;
	bool is_streamed;
};

/* record_prepare() - root's server: make the file for who it will be.  What fails is logged, and no reason not to serve
 */
void record_prepare(struct server *s, uid_t uid, gid_t gid, bool is_own_user);

/* record_start() - start writing; after the last fork, as who the server stays */
void record_start(struct server *s);
void record_end(struct server *s);

/* record_take() - before @c's job is released; record_add() must follow */
void record_take(const struct server *s, struct client *c, struct record_run *ret);

/* record_add() - after @r was sent; takes its contents */
void record_add(struct server *s, struct record_run *run, struct result *r);
