/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What there is of connections and memory, shared: a tenant has at most half of what the others leave, so that nobody
 * keeps somebody else out, and whoever is alone has plenty.
 */
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <string.h>

#include "doors/http_conn_priv.h"

/* What a connection makes us hold: of its request, and of an answer that its client has not taken yet. */
static size_t held(const struct http_conn *c)
{
	return c->counted + evbuffer_get_length(bufferevent_get_output(c->bev));
}

static bool is_idle(const struct http_conn *c)
{
	return c->state == CONN_HEAD || c->state == CONN_LINGER;
}

bool conn_has_room(const struct http_conn *c, size_t len)
{
	size_t bytes[2] = { 0 }; /* others', its tenant's */
	unsigned n[2] = { 0 };   /* ... at the same kind of socket */

	for (const struct http_conn *o = c->server->conns; o; o = o->next) {
		bool is_mine = strcmp(o->caller.tenant, c->caller.tenant) == 0;

		bytes[is_mine] += held(o);
		n[is_mine] += o->is_unix == c->is_unix && !is_idle(o);
	}
	if (bytes[0] > HTTP_HELD_MAX || bytes[1] + len > (HTTP_HELD_MAX - bytes[0]) / 2)
		return false;
	return n[1] <= (HTTP_CONNS_MAX - n[0]) / 2;
}

bool conn_make_room(struct http_server *s, bool is_unix)
{
	struct http_conn *oldest = NULL;

	if (s->n_conns[is_unix] < HTTP_CONNS_MAX)
		return true;
	for (struct http_conn *c = s->conns; c; c = c->next) {
		if (c->is_unix == is_unix && is_idle(c))
			oldest = c;
	}
	if (oldest)
		conn_free(oldest);
	return oldest != NULL;
}
