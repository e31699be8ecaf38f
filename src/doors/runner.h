/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct event_base;

/*
 * Runs at cloched, on an event loop.  Connections are kept for the next run of the same tenant; nothing here waits.
 * A server that goes away costs the runs under way, which are told so; the next run connects anew.
 */
struct runner;
struct runner_run;

/* What came of a run. */
struct runner_answer {
	char *json; /* who is told owns it: the result, the error object, or what was asked for; one NUL behind it */
	size_t len;
	bool is_refused; /* the error object: nothing ran */
	bool is_lost;    /* the server went away; json: a result of internal_error (of a question: NULL) */
	uint32_t kind;   /* enum err_kind of a refusal (ERR_BUSY: no room now) */
};

/*
 * All are called from the event loop, never from within runner_start() and the like.
 * @on_accepted: the request is valid; NULL: nobody asks
 * @on_output:   what the script wrote (@stream: 1 or 2), as it comes; NULL: it is in the result
 * @on_done:     once, last: the run is no more.  @answer's json is the callee's
 */
struct runner_hooks {
	void *userdata;
	void (*on_accepted)(void *userdata, const char *run_id);
	void (*on_output)(void *userdata, int stream, const void *data, size_t len);
	void (*on_done)(void *userdata, struct runner_answer *answer);
};

/* @json and @tenant are borrowed for the call; @tenant: run/native.h has what it may be; NULL: our own user */
struct runner_request {
	const char *tenant;
	const char *json;
	size_t len;
	struct runner_hooks hooks;
};

/* runner_new() - @path: of the native socket.  Return: 0 or -errno with @e set */
int runner_new(struct event_base *base, const char *path, struct runner **ret, struct err *e) MUST_CHECK;

/* runner_free() - after its last run; NULL is fine */
void runner_free(struct runner *r);

/*
 * runner_start() - send a request
 *
 * Return: 0; -errno with @e set, and no hook will be called (e->kind is ERR_BUSY: no room or no server now, try again).
 */
int runner_start(struct runner *r, const struct runner_request *q, struct runner_run **ret, struct err *e) MUST_CHECK;

/* runner_ask() - a question: NATIVE_ENV or NATIVE_STATS; on_done brings the answer's JSON.  Return: as runner_start()
 */
int runner_ask(struct runner *r, uint32_t type, const struct runner_hooks *hooks, struct runner_run **ret,
	       struct err *e) MUST_CHECK;

/* runner_pause() - read no more of it for now (its script waits when it writes); some outputs may still come */
void runner_pause(struct runner_run *run);
void runner_resume(struct runner_run *run);

/* runner_cancel() - end it; its result still comes */
void runner_cancel(struct runner_run *run);

/* runner_drop() - end it and forget it: no hook is called any more, @run is gone */
void runner_drop(struct runner_run *run);
