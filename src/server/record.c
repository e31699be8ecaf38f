/* SPDX-License-Identifier: Apache-2.0 */
/* Runs that have ended, on their way into the history: after their results have been sent, and never waited for. */
#include "server/record.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/log.h"
#include "server/server.h"

/* In the writer's thread. */
static void say(bool is_bad, const char *line)
{
	log_line(is_bad ? LOG_WARNING : LOG_INFO, "event=history text=\"%s\"", line);
}

/* Return: 0, *@ret is the caller's; -errno: there will be no history, which is logged */
static int find(const struct server *s, bool is_own_user, char **ret)
{
	const struct conf_history *c = &s->shared->settings.conf.history;
	struct err e = { .kind = ERR_NONE };
	int r;

	if (!c->is_enabled)
		return -ENOENT;
	/* what `nobody` may read, every other program that runs as nobody may */
	if (!c->path && !is_own_user) {
		log_line(LOG_WARNING, "event=no_history reason=\"there is no user cloche; history.path says where in "
				      "spite of that\"");
		return -ENOENT;
	}
	r = history_path(c->path, geteuid(), environ, ret, &e);
	if (r < 0)
		log_line(LOG_WARNING, "event=no_history reason=\"%s\"", e.msg);
	return r;
}

void record_prepare(struct server *s, uid_t uid, gid_t gid, bool is_own_user)
{
	struct err e = { .kind = ERR_NONE };

	s->record.is_unwanted = find(s, is_own_user, &s->record.path) < 0;
	if (s->record.path && history_prepare(s->record.path, uid, gid, &e) < 0)
		log_line(LOG_WARNING, "event=history text=\"%s\"", e.msg);
}

void record_start(struct server *s)
{
	const struct conf_history *c = &s->shared->settings.conf.history;
	struct history_options o = { .max_age_ns = c->max_age_ns,
				     .max_rows = c->max_rows,
				     .max_bytes = c->max_bytes,
				     .stores_scripts = c->stores_scripts,
				     .stores_output = c->stores_output,
				     .say = say };
	struct err e = { .kind = ERR_NONE };

	if (s->record.is_unwanted || (!s->record.path && find(s, true, &s->record.path) < 0))
		return;
	o.path = s->record.path;
	if (history_open(&o, &s->record.history, &e) < 0)
		log_line(LOG_WARNING, "event=no_history reason=\"%s\"", e.msg);
}

void record_end(struct server *s)
{
	history_close(s->record.history);
	free(s->record.path);
	s->record = (struct record) { .path = NULL };
}

void record_take(const struct server *s, struct client *c, struct record_run *ret)
{
	const struct tenant *t = c->tenant;
	char name[32];

	*ret = (struct record_run) { .arrived_ns = c->arrived_ns,
				     .is_streamed = (c->flags & NATIVE_STREAM_OUTPUT) != 0 };
	if (!s->record.history)
		return;
	(void)snprintf(ret->tenant, sizeof(ret->tenant), "%s", tenant_name(t, name, sizeof(name)));
	(void)snprintf(ret->environment, sizeof(ret->environment), "%s", c->job.environment ? c->job.environment : "");
	ret->script = c->job.script;
	c->job.script = (struct job_blob) { .data = NULL };
}

void record_add(struct server *s, struct record_run *run, struct result *r)
{
	struct history_run h = { .result = r,
				 .script = &run->script,
				 .tenant = run->tenant,
				 .environment = run->environment,
				 .arrived_ns = run->arrived_ns,
				 .is_streamed = run->is_streamed };

	if (s->record.history)
		history_add(s->record.history, &h);
	free(run->script.data);
	run->script = (struct job_blob) { .data = NULL };
}
