/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who asks for what.  A browser must not become somebody's hand here: a name that is not ours in Host (DNS rebinding)
 * and an Origin that nobody has configured are refused, and what changes something needs a content type that a page
 * can't send without asking first.  Over TCP nothing but /healthz and /readyz is said to who has no token.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/fd.h"
#include "doors/door.h"
#include "job/request.h"

#define SMALL ((int64_t)64 << 10)
#define BATCH ((int64_t)16 << 20)
#define MCP   ((int64_t)64 << 20)

enum body { BODY_NONE, BODY_JSON, BODY_LINES };

struct route {
	const char *path; /* a last part "*" stands for any one */
	unsigned methods;
	int64_t body_max;
	enum body body;
	bool is_open; /* to who has no token */
	void (*handle)(struct door *d, struct http_conn *c);
};

static const struct route routes[] = {
	{ "/v1/runs/batch", HTTP_POST, BATCH, BODY_LINES, false, batch_post },
	{ "/v1/runs", HTTP_POST, (int64_t)JOB_REQUEST_MAX, BODY_JSON, false, runs_post },
	{ "/v1/runs", HTTP_GET, SMALL, BODY_NONE, false, runs_list },
	{ "/v1/runs/*", HTTP_GET, SMALL, BODY_NONE, false, runs_get },
	{ "/v1/runs/*", HTTP_DELETE, SMALL, BODY_NONE, false, runs_delete },
	{ "/v1/environments", HTTP_GET, SMALL, BODY_NONE, false, about_environments },
	{ "/v1/capabilities", HTTP_GET, SMALL, BODY_NONE, false, about_capabilities },
	{ "/mcp", HTTP_POST, MCP, BODY_JSON, false, mcp_post },
	{ "/metrics", HTTP_GET, SMALL, BODY_NONE, false, metrics_get },
	{ "/openapi.json", HTTP_GET, SMALL, BODY_NONE, false, about_openapi },
	{ "/healthz", HTTP_GET, SMALL, BODY_NONE, true, about_health },
	{ "/readyz", HTTP_GET, SMALL, BODY_NONE, true, about_ready },
};

const char *route_path(const void *route)
{
	return route ? ((const struct route *)route)->path : "other";
}

static bool is_path(const char *pattern, const char *path)
{
	size_t len = strlen(pattern);

	if (pattern[len - 1] != '*')
		return strcmp(pattern, path) == 0;
	return strncmp(pattern, path, len - 1) == 0 && path[len - 1] && !strchr(path + len - 1, '/');
}

/* A pattern for any part must not take the methods of a path that is there by its own name. */
static bool is_shadowed(const struct route *r, const char *path)
{
	if (!strchr(r->path, '*'))
		return false;
	for (size_t i = 0; i < ARRAY_LEN(routes); i++)
		if (!strchr(routes[i].path, '*') && strcmp(routes[i].path, path) == 0)
			return true;
	return false;
}

/* NULL: no such path (@ret_methods 0), or not by this method */
static const struct route *find_route(const char *path, enum http_method method, unsigned *ret_methods)
{
	const struct route *found = NULL;

	*ret_methods = 0;
	for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
		const struct route *r = &routes[i];
		unsigned methods = r->methods | (r->methods & HTTP_GET ? HTTP_HEAD : 0u);

		if (!is_path(r->path, path) || is_shadowed(r, path))
			continue;
		*ret_methods |= methods | HTTP_OPTIONS;
		if (methods & method)
			found = r;
	}
	return found;
}

static bool same_name(const char *host, size_t len, const char *name)
{
	return strlen(name) == len && strncasecmp(host, name, len) == 0;
}

/* Is this name ours?  With a port or without one; a configured name may demand one. */
static bool is_our_host(const struct door *d, const char *host)
{
	static const char *const local[] = { "localhost", "127.0.0.1", "[::1]" };
	const struct conf_strings *more = &d->settings.conf.http.allowed_hosts;
	const char *colon = strrchr(host, ':');
	const char *bracket = strrchr(host, ']');
	size_t len = colon && (!bracket || colon > bracket) ? (size_t)(colon - host) : strlen(host);

	for (size_t i = 0; i < ARRAY_LEN(local); i++)
		if (same_name(host, len, local[i]))
			return true;
	for (size_t i = 0; i < more->n; i++)
		if (same_name(host, len, more->items[i]) || strcasecmp(host, more->items[i]) == 0)
			return true;
	return d->listen_host && same_name(host, len, d->listen_host);
}

static bool is_our_origin(const struct door *d, const char *origin)
{
	const struct conf_strings *ours = &d->settings.conf.http.allowed_origins;

	for (size_t i = 0; i < ours->n; i++)
		if (strcasecmp(ours->items[i], origin) == 0)
			return true;
	return false;
}

/* Whose token @secret is.  Return: whether it is one */
static bool find_token(struct door *d, const char *secret, struct http_caller *who)
{
	unsigned char hash[TOKEN_HASH_BYTES];
	struct err e = { .kind = ERR_NONE };
	const struct token *t;
	int r = tokens_refresh(&d->tokens, &e);

	if (r < 0 && !d->is_told_of_tokens) /* once: strangers come here */
		door_log(true, "event=tokens error=\"%s\"", e.msg);
	d->is_told_of_tokens = r < 0;
	t = tokens_find(&d->tokens, secret, time(NULL));
	if (t) {
		(void)snprintf(who->token, sizeof(who->token), "%s", t->name);
		(void)snprintf(who->tenant, sizeof(who->tenant), "token-%s", t->name);
		return true;
	}
	token_hash(secret, hash);
	if (!d->has_local || !token_equal(hash, d->local_hash))
		return false;
	memcpy(who->tenant, d->local_tenant, sizeof(who->tenant));
	return true;
}

/* Who asks.  Return: whether that is known */
static bool find_caller(struct door *d, struct http_conn *c)
{
	const char *given = http_conn_head(c)->authorization;
	struct http_caller *who = http_conn_caller(c);
	uid_t uid;

	*who = (struct http_caller) { .tenant = "" };
	if (given) {
		if (strncasecmp(given, "Bearer ", 7) != 0)
			return false;
		given += 7;
		return find_token(d, given + strspn(given, " "), who);
	}
	if (!http_conn_uid(c, &uid))
		return false;
	(void)snprintf(who->tenant, sizeof(who->tenant), "uid-%u", uid);
	return true;
}

static void no_method(struct http_conn *c, unsigned methods)
{
	static const struct {
		unsigned method;
		const char *name;
	} names[] = {
		{ HTTP_GET, "GET" },       { HTTP_HEAD, "HEAD" },       { HTTP_POST, "POST" },
		{ HTTP_DELETE, "DELETE" }, { HTTP_OPTIONS, "OPTIONS" },
	};
	char allow[80] = "Allow: ";
	struct problem p = { .status = 405, .headers = allow, .detail = "this path has other methods" };
	struct http_answer options = { .status = 204, .headers = allow };
	bool is_first = true;

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		size_t used = strlen(allow);

		if (!(methods & names[i].method))
			continue;
		(void)snprintf(allow + used, sizeof(allow) - used, "%s%s", is_first ? "" : ", ", names[i].name);
		is_first = false;
	}
	(void)snprintf(allow + strlen(allow), sizeof(allow) - strlen(allow), "\r\n");
	if (http_conn_head(c)->method == HTTP_OPTIONS)
		http_reply(c, &options);
	else
		problem_reply(c, &p);
}

/* Return: 0, or -1: answered */
static int judge_sender(struct door *d, struct http_conn *c)
{
	const struct http_head *h = http_conn_head(c);
	uid_t uid;

	if (!http_conn_uid(c, &uid) && (!h->host || !is_our_host(d, h->host))) {
		problem_reply(c,
			      &(struct problem) {
				      .status = 421,
				      .type = "host",
				      .detail = "Host is none of this server's names ([http] allowed_hosts adds one)",
			      });
		return -1;
	}
	if (h->origin && !is_our_origin(d, h->origin)) {
		problem_reply(c, &(struct problem) {
					 .status = 403,
					 .type = "origin",
					 .detail = "this Origin may not ask here ([http] allowed_origins adds one)",
				 });
		return -1;
	}
	return 0;
}

static bool is_right_type(const struct route *r, const char *type)
{
	if (r->body == BODY_NONE || http_is_media(type, "application/json"))
		return true;
	return r->body == BODY_LINES &&
	       (http_is_media(type, "application/x-ndjson") || http_is_media(type, "application/ndjson") ||
		http_is_media(type, "application/jsonl"));
}

int64_t judge_head(void *door, struct http_conn *c)
{
	const struct http_head *h = http_conn_head(c);
	struct door *d = door;
	unsigned methods;
	const struct route *r = find_route(h->path, h->method, &methods);

	http_conn_set_route(c, r);
	if (judge_sender(d, c) < 0)
		return -1;
	if (!(r && r->is_open) && !find_caller(d, c)) {
		problem_reply(c, &(struct problem) {
					 .status = 401,
					 .type = "token",
					 .detail = "a token is needed: Authorization: Bearer cloche_...",
					 .headers = "WWW-Authenticate: Bearer realm=\"cloche\"\r\n",
				 });
		return -1;
	}
	if (!r && methods) {
		no_method(c, methods);
		return -1;
	}
	if (!r) {
		problem_reply(c, &(struct problem) { .status = 404, .detail = "nothing is there: see /openapi.json" });
		return -1;
	}
	if (!is_right_type(r, h->content_type)) {
		problem_reply(c, &(struct problem) {
					 .status = 415,
					 .detail = r->body == BODY_LINES ? "Content-Type: application/x-ndjson, or "
									   "application/json for one script"
									 : "Content-Type: application/json",
				 });
		return -1;
	}
	return r->body_max;
}

void judge_request(void *door, struct http_conn *c)
{
	const struct route *r = http_conn_route(c);

	r->handle(door, c);
}

void judge_refuse(void *door, struct http_conn *c, int status, const char *why)
{
	(void)door;
	problem_reply(c, &(struct problem) {
				 .status = status,
				 .detail = why,
				 .headers = status == 503 ? RETRY_SOON : NULL,
			 });
}
