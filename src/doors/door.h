/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "doors/http_conn.h"
#include "doors/runner.h"
#include "doors/tokens.h"
#include "run/settings.h"

struct event;
struct event_base;
struct history_reader;

/*
 * The HTTP door: what its parts share.
 *
 *	http.c          arguments, set-up, the loop, the end
 *	http_listen.c   listening sockets; privileges go
 *	http_server.c, http_conn.c, http_parse.c
 *	                connections; bytes to requests, in bounded memory and time
 *	http_share.c    how much of that memory one peer may hold
 *	http_judge.c    who asks for what: Host, Origin, tokens, routes
 *	http_problem.c  refusals (RFC 9457)
 *	http_limits.c   what a token may have at the same time and in a second
 *	http_runs.c     one run: its result, its stream, or its id
 *	http_live.c     runs by their id
 *	http_batch.c    many runs in one request
 *	http_about.c    environments, what is enforced, is it well
 *	http_metrics.c  the same for Prometheus
 *	mcp_http.c      the Model Context Protocol
 */
struct door {
	struct event_base *base;
	struct runner *runner;
	struct http_server *http;
	struct settings settings;
	uid_t server_uid; /* whose server it is */
	gid_t server_gid; /* who may open its socket */
	struct tokens tokens;
	bool is_told_of_tokens; /* that they can't be read */
	unsigned char
		local_hash[TOKEN_HASH_BYTES]; /* of the secret in the runtime folder; who has it is our own user */
	bool has_local;
	char local_tenant[TENANT_SIZE];
	char *listen_host; /* owned; as it may stand in Host, NULL: no TCP */
	struct usage *usages;
	struct live *live;  /* runs under way; the newest first */
	struct live *ended; /* asynchronous ones that have ended; the newest first */
	size_t ended_bytes;
	unsigned n_ended;
	struct history_reader *history; /* NULL: not opened yet, or there is none */
	struct stats_cache *stats;
	struct mcp_http *mcp;
	struct http_count *counts; /* owned */
	size_t n_counts;
	struct event *empty; /* owned; once it stops, looks whether all connections are gone */
	bool is_stopping;
};

/* --- http_problem.c --- */

/* Why a request gets nothing. */
struct problem {
	int status;
	const char *type; /* the last part of its URN; NULL: the status says it all */
	const char *detail;
	const char *headers; /* as struct http_answer has them */
	const char *error;   /* {"error": {...}} of cloche(1); NULL: none */
};

/* problem_reply() - the one answer */
void problem_reply(struct http_conn *c, const struct problem *p);

/* answer_json() - what is no problem: @owned, heap, is taken; NULL: there was no memory for it, and 503 says so */
void answer_json(struct http_conn *c, int status, char *owned);

/* problem_add_error() - ", " and the member of {"error": {...}}; nothing where there is none.  Return: as buf_add() */
int problem_add_error(struct buf *b, const char *error, size_t len) MUST_CHECK;

/* problem_refusal() - what cloched said to a request: 422, or 503 when it has no room now */
void problem_refusal(struct http_conn *c, const struct runner_answer *a);

/* problem_start() - runner_start() has failed: 503 when it may be tried again, else 500 */
void problem_start(struct http_conn *c, const struct err *e);

#define RETRY_SOON "Retry-After: 1\r\n"

/* --- http_limits.c --- */

struct limit_refusal {
	struct problem problem;
	char detail[300];
	char headers[48];
	char *error;      /* owned, to be freed: the error object of cloche(1) */
	uint64_t wait_ns; /* of a 429: when it is worth another try */
};

/*
 * limits_take() - may @who have one more run, with this request, now?  limits_leave() when it has ended.
 *
 * Return: 0; -EAGAIN: not now (429); -EINVAL: not at all (422); @no is filled then.
 */
int limits_take(struct door *d, const struct http_caller *who, const char *json, size_t len,
		struct limit_refusal *no) MUST_CHECK;
void limits_leave(struct door *d, const struct http_caller *who);

/* limits_concurrent() - how many runs at a time @who may have; 0: no limit */
unsigned limits_concurrent(const struct door *d, const struct http_caller *who);
void limits_done(struct door *d);

/* --- http_judge.c --- */

int64_t judge_head(void *door, struct http_conn *c);
void judge_request(void *door, struct http_conn *c);
void judge_refuse(void *door, struct http_conn *c, int status, const char *why);

/* --- the routes' handlers --- */

void runs_post(struct door *d, struct http_conn *c);
void runs_list(struct door *d, struct http_conn *c);
void runs_get(struct door *d, struct http_conn *c);
void runs_delete(struct door *d, struct http_conn *c);
void batch_post(struct door *d, struct http_conn *c);
void about_environments(struct door *d, struct http_conn *c);
void about_capabilities(struct door *d, struct http_conn *c);
void about_health(struct door *d, struct http_conn *c);
void about_ready(struct door *d, struct http_conn *c);
void about_openapi(struct door *d, struct http_conn *c);
void about_done(struct door *d);
void metrics_get(struct door *d, struct http_conn *c);
void mcp_post(struct door *d, struct http_conn *c);

/* --- http_about.c --- */

/*
 * about_stats() - cloched's counters (run/native.h), not older than a second
 * @on_stats: @json NULL: cloched does not answer.  Called once, at once or later
 */
void about_stats(struct door *d, struct http_conn *c,
		 void (*on_stats)(struct door *d, struct http_conn *c, const char *json, size_t len));

/* --- http_metrics.c --- */

void metrics_count(void *door, const void *route, const char *method, int status);

/* route_path() - of a route as the connection has it; NULL is "other" */
const char *route_path(const void *route);

/* --- http_live.c --- */

/* A run by its id, from its acceptance on. */
struct live {
	struct live *next;
	struct door *door;
	struct runner_run *run; /* NULL: it has ended */
	char run_id[33];
	struct http_caller caller;
	int64_t started_us; /* since 1970 */
	char *json;         /* owned; of one that has ended: the result, or the error object */
	size_t len;
	bool is_refused;
	bool is_cancelled;
};

void live_add(struct live *l);
void live_remove(struct live *l);

/* live_keep() - @l, removed from the runs under way, can be asked for some time more; takes it */
void live_keep(struct live *l);
void live_free(struct live *l);
void live_done(struct door *d);

/* --- http_listen.c --- */

/* What is listened on; opened while there are privileges. */
struct http_listeners {
	int unix_fd; /* -1: none */
	int tcp_fd;
};

int listen_unix(const char *path, const char *group, int *ret_fd, struct err *e) MUST_CHECK;

/* listen_tcp() - @address: HOST:PORT.  @ret_host: heap, as it may stand in Host */
int listen_tcp(const char *address, bool is_behind_tls_proxy, int *ret_fd, char **ret_host, struct err *e) MUST_CHECK;

/*
 * privileges_drop() - a door that was started as root goes on as the user made for it
 * @group: who may open the server's socket; the only other group it keeps
 *
 * Return: 0 or -errno
 */
int privileges_drop(gid_t group, struct err *e) MUST_CHECK;

/* --- http.c --- */

/* door_log() - one line on standard error, for people and journals: "level=info event=..." */
void door_log(bool is_bad, const char *fmt, ...) PRINTF_LIKE(2, 3);
