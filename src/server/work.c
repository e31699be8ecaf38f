/* SPDX-License-Identifier: Apache-2.0 */
/* A run of a client's, from its start to its result. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "server/log.h"
#include "server/server.h"

#define OVERDUE_NS (40 * NS_PER_SEC) /* beyond its timeout: building, clean-up, and thirty seconds of patience */

static void keep_tail(struct client *c, const char *data, size_t len)
{
	size_t keep = len < sizeof(c->tail) ? sizeof(c->tail) - len : 0;

	if (len > sizeof(c->tail)) {
		data += len - sizeof(c->tail);
		len = sizeof(c->tail);
	}
	if (c->tail_len > keep) {
		memmove(c->tail, c->tail + c->tail_len - keep, keep);
		c->tail_len = keep;
	}
	memcpy(c->tail + c->tail_len, data, len);
	c->tail_len += len;
}

static int on_output(void *userdata, int stream, const void *data, size_t len)
{
	struct native_head head = { .type = NATIVE_OUTPUT, .version = NATIVE_VERSION, .code = (uint32_t)stream };
	struct client *c = userdata;

	if (stream == 2)
		keep_tail(c, data, len);
	if (!c->is_gone)
		client_send(c->server, c, &head, data, len);
	return c->is_gone ? -EPIPE : 0;
}

/* Nothing is under way any more; the client may ask again. */
void work_release(struct client *c)
{
	job_done(&c->job);
	memset(&c->job, 0, sizeof(c->job));
	c->is_input_held = false;
	c->input_len = 0;
	c->tail_len = 0;
	c->flags = 0;
	c->state = CLIENT_IDLE;
}

static void send_result(struct server *s, struct client *c, const struct result *r)
{
	struct native_head head = { .type = NATIVE_RESULT, .version = NATIVE_VERSION };
	auto_free char *json = c->is_gone ? NULL : result_write(r);

	stats_run(&s->stats, r, clock_now_ns() - c->arrived_ns);
	log_line(LOG_INFO,
		 "event=run run=%s uid=%u tenant=%s script=\"%s\" status=%s code=%d seconds=%.6f queue=%.6f cpu=%.6f "
		 "mode=%s",
		 r->run_id, c->tenant->uid, c->tenant->name, r->script_name ? r->script_name : "",
		 status_name(r->status), r->return_code, (double)r->execution_ns / 1e9, (double)r->queue_ns / 1e9,
		 (double)r->cpu_ns / 1e9, job_mode_name(r->mode));
	if (!c->is_gone)
		client_send_text(s, c, &head, json);
}

/* The result of a request that never became a run; then the client is idle. */
void work_fail(struct server *s, struct client *c, enum status status, const char *why)
{
	struct record_run run;
	struct result r;

	result_init(&r, &c->job);
	r.mode = JOB_MODE_COLD;
	r.status = status;
	if (status == STATUS_CANCELLED) {
		r.signal = SIGKILL;
		r.return_code = -SIGKILL;
	}
	r.queue_ns = clock_now_ns() - c->arrived_ns;
	memcpy(r.run_id, c->run_id, sizeof(r.run_id));
	record_take(s, c, &run);
	work_release(c);
	if (result_set_message(&r, "%s", why) < 0)
		log_line(LOG_ERROR, "event=no_message");
	send_result(s, c, &r);
	record_add(s, &run, &r);
	result_done(&r);
}

/* It does not run any more: the place is free. */
static void leave(struct server *s, struct client *c)
{
	(void)source_set(s, &c->run_source, -1, 0);
	c->run = NULL;
	c->tenant->n_running--;
	s->n_running--;
	keeper_leave(c->keeper);
	c->keeper = NULL;
}

/* A missing module: what came of stderr, or was kept of it, tells. */
static void add_hint(const struct client *c, const struct conf *conf, struct result *r)
{
	auto_free char *err = NULL;
	const char *tail = c->tail;
	size_t len = c->tail_len;

	if (r->status != STATUS_ERROR)
		return;
	if (!(c->flags & NATIVE_STREAM_OUTPUT) && keep_bytes(&r->err, &err, &len) == 0) {
		tail = len > HINT_TAIL ? err + len - HINT_TAIL : err;
		len = len > HINT_TAIL ? HINT_TAIL : len;
	}
	if (hint_missing_module(conf, c->job.environment, tail, len, r) < 0)
		log_line(LOG_ERROR, "event=no_hint");
}

/* "mode: warm is not allowed here: ..." of the supervisor, as an error object like any other */
static void refuse_late(struct server *s, struct client *c, const struct err *e)
{
	struct job_error why = { .field = "mode", .given = "warm", .allowed = "auto or cold" };

	(void)snprintf(why.message, sizeof(why.message), "%.*s", (int)sizeof(why.message) - 1, e->msg);
	work_release(c);
	intake_refuse(s, c, ERR_INVALID, &why);
}

static void finish(struct server *s, struct client *c)
{
	struct err e = { .kind = ERR_NONE };
	struct record_run run;
	struct result r;
	int k = run_finish(c->run, &r, &e);

	if (k == 0)
		add_hint(c, &c->keeper->shared->settings.conf, &r);
	if (k == 0 && (c->flags & NATIVE_STREAM_OUTPUT)) { /* nothing was cut: it was all handed on */
		r.out.max = r.out.total;
		r.err.max = r.err.total;
	}
	leave(s, c);
	if (k < 0 && e.kind == ERR_INVALID) { /* what was asked can't be had here: refused, nothing ran */
		refuse_late(s, c, &e);
		return;
	}
	if (k < 0) {
		work_fail(s, c, STATUS_INTERNAL_ERROR, e.msg);
		return;
	}
	record_take(s, c, &run);
	work_release(c);
	send_result(s, c, &r);
	record_add(s, &run, &r);
	result_done(&r);
}

void work_start(struct server *s, struct client *c)
{
	struct run_hooks hooks = { .userdata = c, .is_hasty = true, .arrived_ns = c->arrived_ns, .run_id = c->run_id };
	struct err e = { .kind = ERR_NONE };
	struct job_error why = { .field = "environment" };
	int r;

	if (c->flags & NATIVE_STREAM_OUTPUT)
		hooks.on_output = on_output;
	c->state = CLIENT_RUNNING;
	c->keeper = keeper_of(s, c->tenant);
	keeper_join(c->keeper);
	c->tenant->n_running++;
	s->n_running++;
	c->patience_ns = clock_now_ns() + c->job.timeout_ns + OVERDUE_NS;
	r = run_start(c->keeper->supervisor, &c->job, (c->flags & NATIVE_STREAM_INPUT) != 0, &hooks, &c->run, &e);
	if (r == 0) {
		c->run_source.fd = run_fd(c->run);
		work_feed(s, c);
		work_watch(s, c);
		return;
	}
	leave(s, c);
	if (e.kind != ERR_NOT_FOUND) {
		work_fail(s, c, STATUS_INTERNAL_ERROR, e.msg);
		return;
	}
	/* settings were read again while it waited */
	work_release(c);
	(void)snprintf(why.message, sizeof(why.message), "%.400s", e.msg);
	intake_refuse(s, c, ERR_INVALID, &why);
}

void work_event(struct server *s, struct client *c, uint32_t events)
{
	struct err e = { .kind = ERR_NONE };

	if (!c->run)
		return;
	if (events & POLLOUT)
		work_feed(s, c);
	if (run_step(c->run, &e) != 0) {
		if (e.kind != ERR_NONE)
			keeper_doubt(s, c->keeper, &e);
		finish(s, c);
	} else {
		work_watch(s, c);
	}
}

/* While the client has something to read, nothing more is made: its script waits for it. */
void work_watch(struct server *s, struct client *c)
{
	uint32_t events = 0;

	if (!c->run)
		return;
	if (!c->out)
		events = (uint32_t)run_events(c->run) | (c->is_input_held ? POLLOUT : 0u);
	if (source_set(s, &c->run_source, run_fd(c->run), events) < 0)
		run_cancel(c->run);
}

/* What the client sent for standard input, as far as the run takes it. */
void work_feed(struct server *s, struct client *c)
{
	if (!c->run || !c->is_input_held)
		return;
	for (;;) {
		ssize_t n = run_input(c->run, c->input + c->input_at, c->input_len - c->input_at);

		if (n == -EAGAIN)
			return;
		if (n > 0)
			c->input_at += (size_t)n;
		if (n <= 0 || c->input_at == c->input_len)
			break;
	}
	c->is_input_held = false;
	client_watch(s, c);
}

void work_input(struct server *s, struct client *c, const char *data, size_t len)
{
	if (c->state == CLIENT_IDLE || !(c->flags & NATIVE_STREAM_INPUT))
		return; /* too late, or nobody asked for it */
	if (!c->input)
		c->input = malloc(NATIVE_DATA_MAX);
	if (!c->input) {
		client_close(s, c);
		return;
	}
	memcpy(c->input, data, len);
	c->input_at = 0;
	c->input_len = len;
	c->is_input_held = true;
	work_feed(s, c);
	client_watch(s, c);
	work_watch(s, c);
}

void work_cancel(struct client *c)
{
	if (c->run)
		run_cancel(c->run);
}
