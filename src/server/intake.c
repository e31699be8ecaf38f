/* SPDX-License-Identifier: Apache-2.0 */
/* A request's text to a valid job that waits its turn, or to an error object. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "job/refuse.h"
#include "run/environments.h"
#include "server/log.h"
#include "server/server.h"

#define WAITING_BYTES_MAX ((size_t)256 << 20) /* of the requests in the queue together, but for a single one */

void intake_refuse(struct server *s, struct client *c, enum err_kind kind, const struct job_error *why)
{
	struct native_head head = { .type = NATIVE_ERROR, .version = NATIVE_VERSION, .code = kind };
	auto_free char *json = job_error_write(why);

	log_line(LOG_INFO, "event=refused uid=%u tenant=%s field=\"%s\"", c->tenant->uid, c->tenant->name, why->field);
	stats_refused(&s->stats, kind);
	client_send_text(s, c, &head, json);
}

void intake_busy(struct server *s, struct client *c)
{
	struct job_error why = { .field = "server", .given = "another request" };

	if (s->is_stopping) {
		(void)snprintf(why.allowed, sizeof(why.allowed), "none");
		(void)snprintf(why.message, sizeof(why.message), "server: it is being stopped");
	} else {
		(void)snprintf(why.allowed, sizeof(why.allowed), "at most %u waiting requests (queue_max)",
			       s->shared->settings.conf.server.queue_max);
		(void)snprintf(why.message, sizeof(why.message),
			       "server: busy: %u runs are under way and %u requests wait; try again", s->n_running,
			       s->n_waiting);
	}
	intake_refuse(s, c, ERR_BUSY, &why);
}

/* The tenant with the most waiting requests, if it has more than @t would have. */
static struct tenant *greediest(const struct server *s, const struct tenant *t)
{
	struct tenant *most = NULL;

	for (struct tenant *u = s->tenants; u; u = u->next) {
		if (u != t && u->n_waiting > t->n_waiting + 1 && (!most || u->n_waiting > most->n_waiting))
			most = u;
	}
	return most;
}

/* The tenant whose waiting requests are the largest together, if they are larger than those of @t would be. */
static struct tenant *heaviest(const struct server *s, const struct tenant *t, size_t len)
{
	struct tenant *most = NULL;

	for (struct tenant *u = s->tenants; u; u = u->next) {
		if (u != t && u->waiting_bytes > t->waiting_bytes + len &&
		    (!most || u->waiting_bytes > most->waiting_bytes))
			most = u;
	}
	return most;
}

/* Its newest request gives way. */
static void give_way(struct server *s, const struct tenant *t)
{
	struct client *newest = NULL;

	for (struct client *c = s->clients; c; c = c->next) {
		if (c->tenant == t && c->state == CLIENT_WAITING && (!newest || c->arrived_ns > newest->arrived_ns))
			newest = c;
	}
	if (!newest)
		return;
	admit_leave(s, newest);
	work_release(newest);
	intake_busy(s, newest);
}

/* Is there a place for one more, after somebody has made room if that is fair? */
static bool has_room(struct server *s, const struct client *c, size_t len)
{
	unsigned max = s->shared->settings.conf.server.queue_max;
	const struct tenant *t;

	if (s->is_stopping)
		return false;
	while (s->n_waiting && s->waiting_bytes + len > WAITING_BYTES_MAX) {
		t = heaviest(s, c->tenant, len);
		if (!t)
			return false;
		give_way(s, t);
	}
	if (s->n_waiting + s->n_running < admit_max(s))
		return true; /* it starts at once, or when there is a supervisor for it */
	if (s->n_waiting < max)
		return true;
	t = greediest(s, c->tenant);
	if (!t)
		return false;
	give_way(s, t);
	return s->n_waiting < max;
}

int intake(struct server *s, struct client *c, const char *json, size_t len)
{
	struct native_head accepted = { .type = NATIVE_ACCEPTED, .version = NATIVE_VERSION };
	struct job_error why = { .field = "" };
	struct job job;
	int r;

	if (len > JOB_REQUEST_MAX)
		return -EFBIG;
	if (!has_room(s, c, len)) {
		intake_busy(s, c);
		return 0;
	}
	r = job_parse(json, len, &s->shared->settings.conf.rules, &job, &why);
	if (r == 0) {
		r = job_check_pool(&job, s->shared->settings.options.pool.max > 0, &why);
		if (r < 0)
			job_done(&job);
	}
	if (r == -ENOMEM)
		return r;
	if (r < 0) {
		intake_refuse(s, c, ERR_INVALID, &why);
		return 0;
	}
	r = run_make_id(c->run_id);
	if (r < 0) {
		job_done(&job);
		return r;
	}
	c->job = job;
	c->bytes = len;
	admit_add(s, c);
	if (c->flags & NATIVE_TELL_ID)
		client_send(s, c, &accepted, c->run_id, sizeof(c->run_id) - 1);
	return 0;
}

void intake_environments(struct server *s, struct client *c)
{
	struct native_head head = { .type = NATIVE_ENV_REPLY, .version = NATIVE_VERSION };
	const struct conf *conf = &s->shared->settings.conf;
	struct run_pool_state pools[32];
	const struct keeper *k = keeper_of(s, c->tenant);
	size_t n = k ? supervisor_pools(k->supervisor, pools, ARRAY_LEN(pools)) : 0;
	auto_free char *list = environments_write(conf, pools, n);
	auto_free char *text = NULL;

	if (list && asprintf(&text,
			     "{\"environments\": %s, \"server\": {\"pid\": %d, \"running\": %u, \"waiting\": %u, "
			     "\"max_running\": %u, \"queue_max\": %u}}",
			     list, (int)getpid(), s->n_running, s->n_waiting, admit_max(s), conf->server.queue_max) < 0)
		text = NULL;
	client_send_text(s, c, &head, text);
}
