/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/runner.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "base/fd.h"
#include "job/result.h"
#include "run/failed.h"
#include "run/native.h"
#include "run/remote.h"

#define IDLE_MAX 64 /* connections that wait for a run; of all tenants */

/* A connection to the server, a tenant's for good. */
struct link {
	struct link *next; /* among the idle */
	struct runner *runner;
	struct runner_run *run; /* NULL: idle */
	struct event *readable;
	int fd;
	char tenant[NATIVE_TENANT_MAX + 1]; /* empty: our own user */
};

struct runner {
	struct event_base *base;
	struct link *idle; /* the one used last is first */
	unsigned n_idle;
	char path[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
};

struct runner_run {
	struct link *link;
	struct remote *remote;
	struct runner_hooks hooks;
	bool is_question;
	bool is_told;     /* on_accepted was called */
	bool is_stepping; /* what is dropped now is freed by on_readable() */
	bool is_dropped;
};

static void link_free(struct link *l)
{
	if (l->readable)
		event_free(l->readable); /* before its descriptor */
	fd_close(&l->fd);
	free(l);
}

static void take_from_idle(struct link *l)
{
	struct link **at = &l->runner->idle;

	while (*at && *at != l)
		at = &(*at)->next;
	if (*at) {
		*at = l->next;
		l->runner->n_idle--;
	}
	l->next = NULL;
}

/* An idle connection is kept, if there are not too many: the one that waits longest goes. */
static void put_idle(struct link *l)
{
	struct runner *r = l->runner;
	struct link *last = r->idle;

	l->run = NULL;
	l->next = r->idle;
	r->idle = l;
	r->n_idle++;
	(void)event_add(l->readable, NULL);
	if (r->n_idle <= IDLE_MAX || !last)
		return;
	while (last->next)
		last = last->next;
	take_from_idle(last);
	link_free(last);
}

/* The run is gone; its connection may be of further use. */
static void run_free(struct runner_run *run, bool can_go_on)
{
	struct remote_answer answer = { .json = NULL };
	struct link *l = run->link;
	struct err ignored;
	bool whatever;

	if (run->remote && remote_finish(run->remote, &answer, &whatever, &ignored) == 0)
		free(answer.json);
	free(run);
	if (can_go_on)
		put_idle(l);
	else
		link_free(l);
}

/* Nothing is claimed about the script: safe to ask again. */
static char *lost_result(const char *run_id, const struct err *e)
{
	struct job nothing = { .script_name = NULL };
	struct result r;
	char *json = NULL;

	if (run_failed_result(&nothing, run_id, e, &r) == 0)
		json = result_write(&r);
	result_done(&r);
	return json;
}

static void finish(struct runner_run *run)
{
	struct runner_answer told = { .json = NULL };
	struct remote_answer answer = { .json = NULL };
	struct runner_hooks hooks = run->hooks;
	struct err e = { .kind = ERR_NONE };
	char run_id[sizeof(((struct result *)NULL)->run_id)];
	bool can_go_on;

	(void)snprintf(run_id, sizeof(run_id), "%s", remote_run_id(run->remote));
	if (remote_finish(run->remote, &answer, &can_go_on, &e) < 0) {
		told.is_lost = true;
		told.json = run->is_question ? NULL : lost_result(run_id, &e);
		told.len = told.json ? strlen(told.json) : 0;
	} else {
		told = (struct runner_answer) {
			.json = answer.json,
			.len = answer.len,
			.is_refused = answer.is_refused,
			.kind = answer.kind,
		};
	}
	run->remote = NULL;
	run_free(run, can_go_on);
	hooks.on_done(hooks.userdata, &told);
}

static void tell_accepted(struct runner_run *run)
{
	if (run->is_told || run->is_dropped || !*remote_run_id(run->remote))
		return;
	run->is_told = true;
	if (run->hooks.on_accepted)
		run->hooks.on_accepted(run->hooks.userdata, remote_run_id(run->remote));
}

static int on_output(void *userdata, int stream, const void *data, size_t len)
{
	struct runner_run *run = userdata;

	tell_accepted(run);
	if (!run->is_dropped)
		run->hooks.on_output(run->hooks.userdata, stream, data, len);
	return run->is_dropped ? -EPIPE : 0;
}

static void on_readable(evutil_socket_t fd, short what, void *userdata)
{
	struct link *l = userdata;
	struct runner_run *run = l->run;
	struct err e = { .kind = ERR_NONE };
	int r;

	(void)fd;
	(void)what;
	if (!run) { /* its end; nothing else comes unasked */
		take_from_idle(l);
		link_free(l);
		return;
	}
	run->is_stepping = true;
	r = remote_step(run->remote, &e);
	tell_accepted(run);
	run->is_stepping = false;
	if (run->is_dropped)
		run_free(run, false);
	else if (r != 0)
		finish(run);
}

static int link_new(struct runner *r, const char *tenant, struct link **ret, struct err *e)
{
	struct link *l = calloc(1, sizeof(*l));
	int k = l ? REMOTE_ABSENT : -ENOMEM;

	if (l) {
		l->runner = r;
		l->fd = -1;
		(void)snprintf(l->tenant, sizeof(l->tenant), "%s", tenant);
		k = remote_connect_now(r->path, &l->fd, e);
	}
	if (k == REMOTE_ABSENT || k == -EAGAIN) {
		e->kind = ERR_BUSY;
		k = -EAGAIN;
	} else if (k == -ENOMEM) {
		(void)err_set(e, ERR_HOST, ENOMEM, "ask the server");
	}
	if (k == 0 && *tenant)
		k = remote_tenant(l->fd, tenant, e);
	if (k == 0) {
		l->readable = event_new(r->base, l->fd, EV_READ | EV_PERSIST, on_readable, l);
		if (!l->readable || event_add(l->readable, NULL) < 0)
			k = err_set(e, ERR_HOST, ENOMEM, "ask the server");
	}
	if (k < 0) {
		if (l)
			link_free(l);
		return k;
	}
	*ret = l;
	return 0;
}

static struct link *find_idle(struct runner *r, const char *tenant)
{
	for (struct link *l = r->idle; l; l = l->next) {
		if (strcmp(l->tenant, tenant) == 0) {
			take_from_idle(l);
			return l;
		}
	}
	return NULL;
}

/* What is sent: a run, or a question (without text). */
struct question {
	uint32_t type;
	const char *json;
	size_t len;
};

static int send_question(struct runner_run *run, const struct question *q, struct err *e)
{
	struct run_hooks hooks = { .userdata = run, .on_output = run->hooks.on_output ? on_output : NULL };
	struct remote_request request = { .json = q->json, .len = q->len, .wants_id = true, .hooks = &hooks };

	if (run->is_question)
		return remote_ask(run->link->fd, q->type, &run->remote, e);
	return remote_start(run->link->fd, &request, &run->remote, e);
}

static int start(struct runner *r, const char *tenant, const struct question *q, const struct runner_hooks *hooks,
		 struct runner_run **ret, struct err *e)
{
	struct runner_run *run = calloc(1, sizeof(*run));
	int k;

	if (!run)
		return err_set(e, ERR_HOST, ENOMEM, "ask the server");
	run->hooks = *hooks;
	run->is_question = q->type != NATIVE_RUN;
	/* the server may have ended while this one was idle: then a new one is worth a try */
	while ((run->link = find_idle(r, tenant))) {
		if (send_question(run, q, e) == 0)
			break;
		link_free(run->link);
	}
	k = run->link ? 0 : link_new(r, tenant, &run->link, e);
	if (k == 0 && !run->remote) {
		k = send_question(run, q, e);
		if (k < 0)
			link_free(run->link);
	}
	if (k < 0) {
		free(run);
		return k;
	}
	run->link->run = run;
	*ret = run;
	return 0;
}

int runner_start(struct runner *r, const struct runner_request *q, struct runner_run **ret, struct err *e)
{
	struct question run = { .type = NATIVE_RUN, .json = q->json, .len = q->len };
	const char *tenant = q->tenant ? q->tenant : "";

	if (strlen(tenant) > NATIVE_TENANT_MAX)
		return err_set(e, ERR_BUG, 0, "tenant %.70s: too long", tenant);
	return start(r, tenant, &run, &q->hooks, ret, e);
}

int runner_ask(struct runner *r, uint32_t type, const struct runner_hooks *hooks, struct runner_run **ret,
	       struct err *e)
{
	struct question ask = { .type = type };

	return start(r, "", &ask, hooks, ret, e);
}

void runner_pause(struct runner_run *run)
{
	(void)event_del(run->link->readable);
}

void runner_resume(struct runner_run *run)
{
	(void)event_add(run->link->readable, NULL);
}

void runner_cancel(struct runner_run *run)
{
	remote_cancel(run->remote);
	(void)event_add(run->link->readable, NULL); /* paused or not: its result comes */
}

void runner_drop(struct runner_run *run)
{
	run->is_dropped = true;
	if (!run->is_stepping)
		run_free(run, false);
}

int runner_new(struct event_base *base, const char *path, struct runner **ret, struct err *e)
{
	struct runner *r;

	if (strlen(path) >= sizeof(r->path))
		return err_set(e, ERR_INVALID, ENAMETOOLONG, "server %.200s", path);
	r = calloc(1, sizeof(*r));
	if (!r)
		return err_set(e, ERR_HOST, ENOMEM, "start");
	r->base = base;
	memcpy(r->path, path, strlen(path) + 1);
	*ret = r;
	return 0;
}

void runner_free(struct runner *r)
{
	while (r && r->idle) {
		struct link *l = r->idle;

		take_from_idle(l);
		link_free(l);
	}
	free(r);
}
