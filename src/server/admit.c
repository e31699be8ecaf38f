/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is next.
 *
 * By turns: first between tenants (the one with the fewest runs under way, then the one served longest ago), then
 * between the connections of a tenant (the one served longest ago; a new connection counts as served when it came, so
 * that opening many gains nothing).
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/server.h"

unsigned admit_max(const struct server *s)
{
	cpu_set_t set;

	if (s->shared->settings.conf.server.max_running)
		return s->shared->settings.conf.server.max_running;
	return sched_getaffinity(0, sizeof(set), &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
}

/* Tenants that are gone are forgotten here, when a new one comes. */
static void forget(struct server *s)
{
	struct tenant **at = &s->tenants;

	while (*at) {
		struct tenant *t = *at;

		if (t->n_clients || t->current || t == s->own) {
			at = &t->next;
			continue;
		}
		*at = t->next;
		free(t);
	}
}

const char *tenant_name(const struct tenant *t, char *buf, size_t size)
{
	if (*t->name)
		return t->name;
	(void)snprintf(buf, size, NATIVE_TENANT_UID "%u", t->uid);
	return buf;
}

struct tenant *admit_tenant(struct server *s, uid_t uid, const char *name)
{
	struct tenant *t;

	for (t = s->tenants; t; t = t->next) {
		if (strcmp(t->name, name) == 0 && (*name || t->uid == uid))
			return t;
	}
	forget(s);
	t = calloc(1, sizeof(*t));
	if (!t)
		return NULL;
	t->uid = uid;
	(void)snprintf(t->name, sizeof(t->name), "%s", name);
	t->served = s->turn;
	t->next = s->tenants;
	s->tenants = t;
	return t;
}

void admit_done(struct server *s)
{
	while (s->tenants) {
		struct tenant *t = s->tenants;

		s->tenants = t->next;
		free(t);
	}
}

void admit_add(struct server *s, struct client *c)
{
	c->state = CLIENT_WAITING;
	c->tenant->n_waiting++;
	s->n_waiting++;
	s->waiting_bytes += c->bytes;
	c->tenant->waiting_bytes += c->bytes;
	client_watch(s, c);
}

/* It waits no longer; its job is the caller's to release. */
void admit_leave(struct server *s, struct client *c)
{
	c->tenant->n_waiting--;
	s->n_waiting--;
	s->waiting_bytes -= c->bytes;
	c->tenant->waiting_bytes -= c->bytes;
}

/* Whether @a goes before @b. */
static bool goes_before(const struct client *a, const struct client *b)
{
	const struct tenant *t = a->tenant;
	const struct tenant *u = b->tenant;

	if (t != u && t->n_running != u->n_running)
		return t->n_running < u->n_running;
	if (t != u)
		return t->served < u->served;
	return a->served < b->served;
}

void admit_next(struct server *s)
{
	unsigned max = admit_max(s);

	while (s->n_waiting && s->n_running < max && !s->is_stopping) {
		struct client *next = NULL;

		for (struct client *c = s->clients; c; c = c->next) {
			const struct keeper *k = c->state == CLIENT_WAITING ? keeper_of(s, c->tenant) : NULL;

			if (k && !k->full_ns && (!next || goes_before(c, next)))
				next = c;
		}
		if (!next)
			return;
		if (!keeper_takes(s, keeper_of(s, next->tenant)))
			continue; /* its tenant waits, too */
		admit_leave(s, next);
		next->served = next->tenant->served = ++s->turn;
		work_start(s, next);
	}
}
