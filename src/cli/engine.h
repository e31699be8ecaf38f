/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "cli/answer.h"
#include "cli/options.h"
#include "run/run.h"
#include "run/settings.h"

/*
 * Where runs are made: by a supervisor of our own, or at a server.  A server is used when its socket is there, its peer
 * is ourselves or root, and its settings are those that hold here, so that the same request has the same result.
 */
#define ENGINE_TASKS_MAX 256 /* at the same time */

struct engine {
	const struct settings *settings;
	const char *server; /* borrowed: the one that was asked for; NULL: any, or none */
	bool is_remote;
	char socket[108];              /* is_remote: its path */
	struct supervisor *supervisor; /* owned; NULL: not started, or is_remote */
	int idle[ENGINE_TASKS_MAX];    /* owned: connections that can be used again */
	size_t n_idle;
};

/* engine_begin() - what takes time and is most probably needed, before it is known; engine_done() in every case */
void engine_begin(const struct options *o);

/*
 * engine_find() - is there a server to be used
 * @s: borrowed until engine_done(); when a server was asked for by name, its rules are loosened: the server has its own
 *
 * Return: 0; -errno with @no filled: the server that was asked for is not there, or an option can't be passed on to
 * one.
 */
int engine_find(struct engine *g, const struct options *o, struct settings *s, struct refusal *no) MUST_CHECK;

/* engine_leave_server() - no: do it here after all.  Before the first task */
void engine_leave_server(struct engine *g);

/*
 * engine_start() - the supervisor, where one is needed; before signals_open()
 * @is_single: one task at a time
 *
 * Return: 0 or -errno with @e set
 */
int engine_start(struct engine *g, bool is_single, struct err *e) MUST_CHECK;

/* engine_no_more() - no further task will be started */
void engine_no_more(struct engine *g);

/* engine_done() - for a process that ends now: it does not wait for the supervisor's clean-up */
void engine_done(struct engine *g);

/* A request: as a valid job for a run here, as JSON for one at a server; both are borrowed until task_finish(). */
struct asked {
	const struct job *job;
	const char *json;
	size_t len;
	bool is_streamed; /* standard input comes by task_input() */
};

/* One run under way, wherever; each function as its counterpart in run/run.h. */
struct task;

int task_start(struct engine *g, const struct asked *q, const struct run_hooks *hooks, struct task **ret,
	       struct err *e) MUST_CHECK;
int task_fd(const struct task *t);
short task_events(const struct task *t);
int task_wait_ms(struct task *t); /* -1: as long as it takes, a server has its own patience */
int task_step(struct task *t, struct err *e) MUST_CHECK;
ssize_t task_input(struct task *t, const void *data, size_t len) MUST_CHECK;
void task_cancel(struct task *t);

/*
 * task_finish() - what came of it: a refusal or a result (an internal_error one if the run was lost); frees @t
 *
 * Return: 0 with @ret filled (the caller's: answer_done()); -errno with @e set.
 */
int task_finish(struct task *t, struct answer *ret, struct err *e) MUST_CHECK;

/* engine_failed() - the internal_error result of a request that could not even start because of us or the host; the
 * same */
int engine_failed(const struct asked *q, const struct err *why, struct answer *ret, struct err *e) MUST_CHECK;
