/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/runner_own.h"

#include <errno.h>
#include <event2/event.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "job/refuse.h"
#include "run/failed.h"
#include "run/hint.h"

#define POOL_MIN 1
#define POOL_MAX 2

/* Waiting, then running, then told; each is in the list until it was told. */
struct runner_own_run {
	struct runner_own_run *next; /* the oldest is first */
	struct runner_own *owner;
	struct runner_hooks hooks;
	struct job job;
	struct job_error why; /* a refusal; field empty: none */
	struct run *run;      /* owned; NULL: waits, or there is nothing to run */
	struct event *event;  /* of its descriptor, or made active to tell a refusal */
	uint64_t arrived_ns;
	bool is_running;
	bool is_refused;
};

struct runner_own {
	struct event_base *base;
	struct settings *settings;     /* borrowed */
	struct supervisor *supervisor; /* owned; NULL: not started */
	struct runner_own_run *runs;
	unsigned n_running;
	unsigned n_waiting;
	unsigned running_max;
	unsigned waiting_max;
};

static void start_waiting(struct runner_own *r);

int runner_own_new(struct event_base *base, struct settings *s, struct runner_own **ret, struct err *e)
{
	struct runner_own *r = calloc(1, sizeof(*r));
	const struct conf_server *server = &s->conf.server;
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	if (!r)
		return err_set(e, ERR_HOST, ENOMEM, "start");
	r->base = base;
	r->settings = s;
	r->running_max = server->max_running ? server->max_running : n > 0 ? (unsigned)n : 1;
	r->waiting_max = server->queue_max;
	s->options.pool = (struct run_pool) { .min = server->pool_max < POOL_MIN ? server->pool_max : POOL_MIN,
					      .max = server->pool_max < POOL_MAX ? server->pool_max : POOL_MAX,
					      .max_runs = server->zygote_max_runs };
	*ret = r;
	return 0;
}

int runner_own_warm(struct runner_own *r, struct err *e)
{
	struct err ignored = { .kind = ERR_NONE };

	/* one that has died: what it ran was told so, the next run gets a new one */
	if (r->supervisor && !r->n_running && supervisor_state(r->supervisor, &ignored) < 0) {
		supervisor_stop(r->supervisor);
		r->supervisor = NULL;
	}
	return r->supervisor ? 0 : supervisor_start(&r->settings->options, &r->supervisor, e);
}

static void run_free(struct runner_own_run *run)
{
	struct runner_own *r = run->owner;
	struct runner_own_run **at = &r->runs;
	struct err ignored = { .kind = ERR_NONE };
	struct result result;

	while (*at && *at != run)
		at = &(*at)->next;
	if (*at)
		*at = run->next;
	if (run->is_running)
		r->n_running--;
	else if (!run->is_refused)
		r->n_waiting--;
	if (run->event)
		event_free(run->event);
	if (run->run) {
		run_cancel(run->run);
		if (run_finish(run->run, &result, &ignored) == 0)
			result_done(&result);
	}
	if (!run->is_refused)
		job_done(&run->job);
	free(run);
}

/* The run is no more once this is said. */
static void tell(struct runner_own_run *run, struct runner_answer *answer)
{
	struct runner_hooks hooks = run->hooks;
	struct runner_own *r = run->owner;

	answer->len = answer->json ? strlen(answer->json) : 0;
	run_free(run);
	hooks.on_done(hooks.userdata, answer);
	start_waiting(r);
}

static void tell_refusal(struct runner_own_run *run)
{
	struct runner_answer answer = { .is_refused = true, .kind = ERR_INVALID };

	answer.json = job_error_write(&run->why);
	tell(run, &answer);
}

/* It did not come to a result: what was asked can't be had here, or something failed that is not the script's. */
static void tell_failure(struct runner_own_run *run, const struct err *e)
{
	struct runner_answer answer = { .json = NULL };
	struct result r;

	if (e->kind == ERR_INVALID || e->kind == ERR_NOT_FOUND || e->kind == ERR_ACCESS) {
		(void)snprintf(run->why.field, sizeof(run->why.field), "%s",
			       e->kind == ERR_INVALID ? "mode" : "environment");
		(void)snprintf(run->why.message, sizeof(run->why.message), "%.*s", (int)sizeof(run->why.message) - 1,
			       e->msg);
		tell_refusal(run);
		return;
	}
	if (run_failed_result(&run->job, NULL, e, &r) == 0)
		answer.json = result_write(&r);
	result_done(&r);
	tell(run, &answer);
}

/* A missing module that another environment has: what was kept of stderr tells. */
static int add_hint(const struct runner_own_run *run, struct result *r)
{
	char *err = NULL;
	size_t len = 0;
	size_t tail;
	int k;

	if (r->status != STATUS_ERROR || keep_bytes(&r->err, &err, &len) < 0)
		return 0;
	tail = len < HINT_TAIL ? len : HINT_TAIL;
	k = hint_missing_module(&run->owner->settings->conf, run->job.environment, err + len - tail, tail, r);
	free(err);
	return k;
}

static void finish(struct runner_own_run *run)
{
	struct runner_answer answer = { .json = NULL };
	struct err e = { .kind = ERR_NONE };
	struct result r;
	int k = run_finish(run->run, &r, &e);

	run->run = NULL;
	if (k < 0) {
		tell_failure(run, &e);
		return;
	}
	if (add_hint(run, &r) == 0)
		answer.json = result_write(&r);
	result_done(&r);
	tell(run, &answer);
}

static int watch(struct runner_own_run *run);

static void on_event(evutil_socket_t fd, short what, void *userdata)
{
	struct runner_own_run *run = userdata;
	struct err e = { .kind = ERR_NONE };
	int r;

	(void)fd;
	(void)what;
	if (run->is_refused) {
		tell_refusal(run);
		return;
	}
	r = run_step(run->run, &e);
	if (r == -ETIMEDOUT) /* it does not answer: the next run finds it ended, and starts another */
		(void)kill(supervisor_pid(run->owner->supervisor), SIGKILL);
	if (r == 0)
		r = watch(run);
	if (r != 0)
		finish(run);
}

/* Of its descriptor, for what it waits for now; and once a second, so that it is given up if nothing comes any more. */
static int watch(struct runner_own_run *run)
{
	static const struct timeval second = { .tv_sec = 1 };
	short want = run_events(run->run) & POLLOUT ? EV_READ | EV_WRITE : EV_READ;

	if (run->event && event_get_events(run->event) == (want | EV_PERSIST))
		return 0;
	if (run->event)
		event_free(run->event);
	run->event = event_new(run->owner->base, run_fd(run->run), (short)(want | EV_PERSIST), on_event, run);
	return run->event && event_add(run->event, &second) == 0 ? 0 : -ENOMEM;
}

static void start_run(struct runner_own_run *run)
{
	struct run_hooks hooks = { .arrived_ns = run->arrived_ns };
	struct runner_own *r = run->owner;
	struct err e = { .kind = ERR_NONE };
	int k = runner_own_warm(r, &e);

	run->is_running = true;
	r->n_waiting--;
	r->n_running++;
	if (k == 0)
		k = run_start(r->supervisor, &run->job, false, &hooks, &run->run, &e);
	if (k == 0) {
		k = watch(run);
		if (k < 0)
			(void)err_set(&e, ERR_HOST, -k, "watch the run");
	}
	if (k < 0)
		tell_failure(run, &e);
}

static void start_waiting(struct runner_own *r)
{
	struct runner_own_run *run = r->runs;

	while (run && r->n_running < r->running_max) {
		if (run->is_running || run->is_refused) {
			run = run->next;
			continue;
		}
		start_run(run); /* which may be the end of it, and of this list as it was */
		run = r->runs;
	}
}

static void on_started(evutil_socket_t fd, short what, void *userdata)
{
	struct runner_own_run *run = userdata;
	struct runner_own *r = run->owner;

	(void)fd;
	(void)what;
	if (run->is_refused) {
		tell_refusal(run);
		return;
	}
	event_free(run->event);
	run->event = NULL;
	start_waiting(r);
}

/* Return: 0; -EINVAL with run->why filled; -ENOMEM */
static int parse(struct runner_own_run *run, const struct runner_request *q)
{
	const struct settings *s = run->owner->settings;
	int r = job_parse(q->json, q->len, &s->conf.rules, &run->job, &run->why);

	if (r < 0)
		return r;
	r = job_check_pool(&run->job, s->options.pool.max > 0, &run->why);
	if (r < 0)
		job_done(&run->job);
	return r;
}

int runner_own_start(struct runner_own *r, const struct runner_request *q, struct runner_own_run **ret, struct err *e)
{
	struct runner_own_run *run;
	struct runner_own_run **at = &r->runs;
	int k;

	if (r->n_running + r->n_waiting >= r->running_max + r->waiting_max) {
		(void)err_set(e, ERR_BUSY, EAGAIN, "%u runs are under way and %u wait", r->n_running, r->n_waiting);
		return -EAGAIN;
	}
	run = calloc(1, sizeof(*run));
	if (!run)
		return err_set(e, ERR_HOST, ENOMEM, "start a run");
	run->owner = r;
	run->hooks = q->hooks;
	run->arrived_ns = clock_now_ns();
	k = parse(run, q);
	run->is_refused = k == -EINVAL;
	run->event = k == 0 || k == -EINVAL ? event_new(r->base, -1, 0, on_started, run) : NULL;
	if (!run->event) {
		if (k == 0)
			job_done(&run->job);
		free(run);
		return err_set(e, ERR_HOST, ENOMEM, "start a run");
	}
	if (!run->is_refused)
		r->n_waiting++;
	while (*at)
		at = &(*at)->next;
	*at = run;
	event_active(run->event, EV_TIMEOUT, 0);
	*ret = run;
	return 0;
}

void runner_own_drop(struct runner_own_run *run)
{
	struct runner_own *r = run->owner;

	run_free(run);
	start_waiting(r);
}

void runner_own_free(struct runner_own *r)
{
	if (!r)
		return;
	while (r->runs)
		run_free(r->runs);
	if (r->supervisor)
		supervisor_leave(r->supervisor);
	free(r);
}
