/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/engine.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "run/failed.h"
#include "run/hint.h"
#include "run/native.h"
#include "run/remote.h"

struct task {
	struct engine *g;
	struct asked q;
	struct run *run;       /* owned; NULL: at a server */
	struct remote *remote; /* owned */
	int fd;                /* owned: its connection; -1: here */
	struct err lost;
};

/* A word about why a server that is there is not used, for who asked for words. */
static void note(const struct options *o, const char *path, const char *why)
{
	if (options_have(o, OPT_VERBOSE))
		say("server %s: %s: running here", path, why);
}

static void take_server(struct engine *g, const char *path, int fd)
{
	g->is_remote = true;
	(void)snprintf(g->socket, sizeof(g->socket), "%s", path);
	g->idle[g->n_idle++] = fd;
}

/* Walls and screening are the server's own; a request has no words for them. */
static int refuse_local_options(const struct engine *g, const struct options *o, struct refusal *no)
{
	static const enum option_id ids[] = { OPT_REQUIRE, OPT_ALLOW_MISSING, OPT_SCREEN_REPORT, OPT_SCREEN_REJECT };

	for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
		if (options_have(o, ids[i]))
			return refuse(no, option_name(ids[i]), options_last(o, ids[i]),
				      "only together with --local: the server %s has its own", g->socket);
	}
	return 0;
}

/* Of a server that was found by itself.  Return: 1 use it, 0 go on, -errno with @no filled */
static int try_server(struct engine *g, const struct options *o, const char *path, struct refusal *no)
{
	struct err e = { .kind = ERR_NONE };
	int fd = -1;
	int r = remote_connect(path, settings_digest(g->settings), &fd, &e);

	if (r == REMOTE_SAME)
		take_server(g, path, fd);
	else if (r < 0)
		note(o, path, e.msg);
	if (r == REMOTE_SAME || r == REMOTE_OTHER) {
		(void)snprintf(g->socket, sizeof(g->socket), "%s", path);
		if (refuse_local_options(g, o, no) < 0)
			return -EINVAL;
	}
	if (r == REMOTE_OTHER)
		note(o, path, "its settings are not those that hold here");
	return r == REMOTE_SAME;
}

static int use_server(struct engine *g, const char *path, struct settings *s, struct refusal *no)
{
	struct err e = { .kind = ERR_NONE };
	int fd = -1;
	int r = strlen(path) < sizeof(g->socket) ? remote_connect(path, 0, &fd, &e) : -ENAMETOOLONG;

	if (r == -ENAMETOOLONG)
		return refuse(no, "--server", path, "the path of a socket, at most %zu bytes", sizeof(g->socket) - 1);
	if (r != REMOTE_SAME)
		return refuse_err(no, r < 0 ? r : -ENOENT, "--server", &e);
	take_server(g, path, fd);
	s->conf.rules.profiles = NULL;
	s->conf.rules.n_profiles = 0;
	s->conf.rules.max = (struct job_limits) { .memory_bytes = 0 };
	s->conf.rules.max_timeout_ns = TIMEOUT_CEILING_NS;
	return 0;
}

/* Is there a server, most probably?  Whoever asks it finds out; this is for who can do something else meanwhile. */
static bool seems_served(const struct options *o)
{
	char path[sizeof(((struct engine *)NULL)->socket)];

	if (options_have(o, OPT_LOCAL))
		return false;
	for (unsigned n = 0; n < REMOTE_PLACES; n++) {
		if (remote_place(n, getenv("XDG_RUNTIME_DIR"), path, sizeof(path)) && access(path, F_OK) == 0)
			return true;
	}
	return options_have(o, OPT_SERVER);
}

void engine_begin(const struct options *o)
{
	if (!seems_served(o))
		supervisor_begin();
}

int engine_find(struct engine *g, const struct options *o, struct settings *s, struct refusal *no)
{
	const char *server = options_last(o, OPT_SERVER);
	char path[sizeof(g->socket)];
	int r = 0;

	*g = (struct engine) { .settings = s, .server = server };
	if (server && options_have(o, OPT_LOCAL))
		return refuse(no, "--server", server, "not together with --local");
	if (options_have(o, OPT_LOCAL))
		return 0;
	if (server) {
		r = use_server(g, server, s, no);
		return r < 0 ? r : refuse_local_options(g, o, no);
	}
	for (unsigned n = 0; n < REMOTE_PLACES && r == 0; n++) {
		if (remote_place(n, getenv("XDG_RUNTIME_DIR"), path, sizeof(path)))
			r = try_server(g, o, path, no);
	}
	return r < 0 ? r : 0;
}

static void close_idle(struct engine *g)
{
	while (g->n_idle)
		fd_close(&g->idle[--g->n_idle]);
}

void engine_leave_server(struct engine *g)
{
	close_idle(g);
	g->is_remote = false;
}

int engine_start(struct engine *g, bool is_single, struct err *e)
{
	struct run_options options = g->settings->options;

	options.is_single = is_single;
	return g->is_remote ? 0 : supervisor_start(&options, &g->supervisor, e);
}

void engine_no_more(struct engine *g)
{
	if (g->supervisor)
		supervisor_no_more(g->supervisor);
}

void engine_done(struct engine *g)
{
	supervisor_begun_end();
	close_idle(g);
	if (g->supervisor)
		supervisor_leave(g->supervisor);
	g->supervisor = NULL;
}

static int start_remote(struct task *t, const struct run_hooks *hooks, struct err *e)
{
	struct remote_request q = {
		.json = t->q.json, .len = t->q.len, .is_streamed = t->q.is_streamed, .hooks = hooks
	};
	struct engine *g = t->g;
	int r;

	if (g->n_idle) {
		t->fd = g->idle[--g->n_idle];
		r = remote_start(t->fd, &q, &t->remote, e);
		if (r == 0)
			return 0;
		fd_close(&t->fd); /* the server may have closed it meanwhile */
	}
	r = remote_connect(g->socket, 0, &t->fd, e);
	if (r != REMOTE_SAME)
		return r < 0 ? r : -ECONNREFUSED;
	return remote_start(t->fd, &q, &t->remote, e);
}

int task_start(struct engine *g, const struct asked *q, const struct run_hooks *hooks, struct task **ret, struct err *e)
{
	struct task *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return err_set(e, ERR_HOST, ENOMEM, "start a run");
	t->g = g;
	t->q = *q;
	t->fd = -1;
	if (g->is_remote)
		r = start_remote(t, hooks, e);
	else
		r = run_start(g->supervisor, q->job, q->is_streamed, hooks, &t->run, e);
	if (r < 0) {
		fd_close(&t->fd);
		free(t);
		return r;
	}
	*ret = t;
	return 0;
}

int task_fd(const struct task *t)
{
	return t->run ? run_fd(t->run) : t->fd;
}

short task_events(const struct task *t)
{
	return t->run ? run_events(t->run) : remote_events(t->remote);
}

int task_wait_ms(struct task *t)
{
	return t->run ? run_wait_ms(t->run) : -1;
}

int task_step(struct task *t, struct err *e)
{
	int r = t->run ? run_step(t->run, e) : remote_step(t->remote, e);

	if (r < 0)
		t->lost = *e;
	if (r == -ETIMEDOUT && t->run) /* it does not answer: closing its socket would not end it */
		supervisor_end(t->g->supervisor, SIGKILL);
	return r;
}

ssize_t task_input(struct task *t, const void *data, size_t len)
{
	return t->run ? run_input(t->run, data, len) : remote_input(t->remote, data, len);
}

void task_cancel(struct task *t)
{
	if (t->run)
		run_cancel(t->run);
	else
		remote_cancel(t->remote);
}

/* A missing module: what was kept of stderr tells. */
static int add_hint(const struct task *t, struct result *r)
{
	auto_free char *err = NULL;
	size_t len = 0;
	size_t tail;

	if (r->status != STATUS_ERROR || keep_bytes(&r->err, &err, &len) < 0)
		return 0;
	tail = len < HINT_TAIL ? len : HINT_TAIL;
	return hint_missing_module(&t->g->settings->conf, t->q.job->environment, err + len - tail, tail, r);
}

static int finish_here(struct task *t, struct answer *ret, struct err *e)
{
	struct answer a = { .is_refused = false };
	int r = run_finish(t->run, &a.result, e);

	if (r < 0)
		return r;
	if (add_hint(t, &a.result) < 0) {
		result_done(&a.result);
		return err_set(e, ERR_HOST, ENOMEM, "make the result");
	}
	*ret = a;
	return 0;
}

static int finish_there(struct task *t, struct answer *ret, struct err *e)
{
	struct remote_answer there;
	struct answer a = { .is_refused = false };
	struct err why;
	bool can_go_on;
	int r = remote_finish(t->remote, &there, &can_go_on, e);

	if (r == 0 && there.is_refused) {
		r = answer_refuse(&a, there.json, there.len, there.kind, e);
		free(there.json);
	} else if (r == 0) {
		a.json = there.json;
	}
	if (r == 0) {
		if (can_go_on && t->g->n_idle < ARRAY_LEN(t->g->idle))
			t->g->idle[t->g->n_idle++] = take_fd(&t->fd);
		*ret = a;
		return 0;
	}
	why = *e;
	return engine_failed(&t->q, &why, ret, e);
}

int task_finish(struct task *t, struct answer *ret, struct err *e)
{
	int r = t->run ? finish_here(t, ret, e) : finish_there(t, ret, e);

	fd_close(&t->fd);
	free(t);
	return r;
}

/* What the request calls itself, as far as it is one: nothing is refused here. */
static int job_of(const struct asked *q, struct job *ret)
{
	struct job_rules rules;
	struct job_error ignored;

	job_rules_init(&rules);
	rules.max_timeout_ns = TIMEOUT_CEILING_NS;
	if (q->json && job_parse(q->json, q->len, &rules, ret, &ignored) == 0)
		return 0;
	return job_init(ret, &rules);
}

int engine_failed(const struct asked *q, const struct err *why, struct answer *ret, struct err *e)
{
	struct answer a = { .is_refused = false };
	struct job own;
	int r = q->job ? 0 : job_of(q, &own);

	if (r == 0) {
		r = run_failed_result(q->job ? q->job : &own, NULL, why, &a.result);
		if (!q->job)
			job_done(&own);
		if (r < 0)
			result_done(&a.result);
	}
	if (r < 0)
		return err_set(e, ERR_HOST, ENOMEM, "%.400s", why->msg);
	*ret = a;
	return 0;
}
