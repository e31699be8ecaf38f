/* SPDX-License-Identifier: Apache-2.0 */
/* libcloche: the public header's functions, on the same jobs and runs as the command line. */
#include "cloche/cloche.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job/request.h"
#include "job/result.h"
#include "run/run.h"
#include "run/settings.h"

struct cloche {
	struct settings settings;
	struct supervisor *supervisor; /* owned */
	bool has_ended;                /* it was lost: the next run starts another */
};

static int fail(struct cloche_error *ret, int code, const char *message)
{
	ret->code = code;
	(void)snprintf(ret->message, sizeof(ret->message), "%s", message);
	return code;
}

static int fail_with(struct cloche_error *ret, const struct err *e)
{
	static const int codes[] = {
		[ERR_NONE] = CLOCHE_BUG,	 [ERR_INVALID] = CLOCHE_INVALID, [ERR_NOT_FOUND] = CLOCHE_NOT_FOUND,
		[ERR_ACCESS] = CLOCHE_ACCESS, [ERR_BUSY] = CLOCHE_HOST,	 [ERR_HOST] = CLOCHE_HOST,
		[ERR_BUG] = CLOCHE_BUG,
	};
	size_t kind = (size_t)e->kind;

	return fail(ret, kind < ARRAY_LEN(codes) ? codes[kind] : CLOCHE_BUG, e->msg);
}

static int no_memory(struct cloche_error *ret)
{
	return fail(ret, CLOCHE_HOST, "out of memory");
}

static int start(struct cloche *c, struct err *e)
{
	c->has_ended = false;
	return supervisor_start(&c->settings.options, &c->supervisor, e);
}

int cloche_open(const char *configuration, struct cloche **ret, struct cloche_error *ret_e)
{
	char *const no_variables[] = { NULL }; /* the caller's environment is its own business */
	struct cloche *c = calloc(1, sizeof(*c));
	struct err e = { 0 };
	int r;

	if (!c)
		return no_memory(ret_e);
	r = settings_load(&c->settings, no_variables, &e);
	if (r == 0 && configuration)
		r = conf_parse(&c->settings.conf, configuration, strlen(configuration), "configuration", false, &e);
	if (r == 0)
		r = settings_finish(&c->settings, &e);
	if (r == 0)
		r = start(c, &e);
	if (r < 0) {
		cloche_close(c);
		return r == -ENOMEM ? no_memory(ret_e) : fail_with(ret_e, &e);
	}
	*ret = c;
	return 0;
}

void cloche_close(struct cloche *c)
{
	if (!c)
		return;
	supervisor_stop(c->supervisor);
	settings_done(&c->settings);
	free(c);
}

static int refuse(const struct job_error *je, char **ret_result, struct cloche_error *ret_e)
{
	*ret_result = job_error_write(je);
	return *ret_result ? fail(ret_e, CLOCHE_INVALID, je->message) : no_memory(ret_e);
}

/* Drive the run to its end.  Return: 0 or a negative code */
static int finish(struct cloche *c, struct run *run, char **ret_result, struct cloche_error *ret_e)
{
	struct result result;
	struct err e = { 0 };
	int r;

	while ((r = run_step(run, &e)) == 0) {
		struct pollfd p = { .fd = run_fd(run), .events = run_events(run) };

		(void)poll(&p, 1, run_wait_ms(run));
	}
	c->has_ended = r < 0; /* told by the result: internal_error */
	r = run_finish(run, &result, &e);
	if (r < 0)
		return fail_with(ret_e, &e);
	*ret_result = result_write(&result);
	result_done(&result);
	return *ret_result ? 0 : no_memory(ret_e);
}

int cloche_run(struct cloche *c, const char *request, size_t len, const struct cloche_hooks *hooks, char **ret_result,
	       struct cloche_error *ret_e)
{
	struct run_hooks own = { 0 };
	struct job_error je = { 0 };
	struct err e = { 0 };
	struct run *run = NULL;
	struct job job;
	int r;

	*ret_result = NULL;
	if (hooks)
		own = (struct run_hooks) { .userdata = hooks->userdata, .on_output = hooks->on_output };
	r = job_parse(request, len, &c->settings.conf.rules, &job, &je);
	if (r == -EINVAL)
		return refuse(&je, ret_result, ret_e);
	if (r < 0)
		return no_memory(ret_e);
	if (c->has_ended) {
		supervisor_stop(c->supervisor);
		c->supervisor = NULL;
		r = start(c, &e);
	}
	if (r == 0)
		r = run_start(c->supervisor, &job, false, hooks ? &own : NULL, &run, &e);
	r = r < 0 || !run ? fail_with(ret_e, &e) : finish(c, run, ret_result, ret_e);
	job_done(&job);
	return r;
}

void cloche_free(void *p)
{
	free(p);
}

const char *cloche_version(void)
{
	return CLOCHE_VERSION;
}
