/* SPDX-License-Identifier: Apache-2.0 */
/* What a token may have at the same time and in a second.  Who comes by a Unix socket has cloched's own fairness. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "doors/door.h"
#include "job/json.h"

/* One for each token that was used: it outlives a file that is written again. */
struct usage {
	struct usage *next;
	char name[TOKEN_NAME_MAX + 1];
	unsigned n_running;
	double credit; /* runs that may start now */
	uint64_t filled_ns;
};

static struct usage *usage_of(struct door *d, const char *name)
{
	struct usage *u;

	for (u = d->usages; u; u = u->next)
		if (strcmp(u->name, name) == 0)
			return u;
	u = calloc(1, sizeof(*u));
	if (!u)
		return NULL;
	(void)snprintf(u->name, sizeof(u->name), "%s", name);
	u->next = d->usages;
	d->usages = u;
	return u;
}

void limits_done(struct door *d)
{
	while (d->usages) {
		struct usage *u = d->usages;

		d->usages = u->next;
		free(u);
	}
}

unsigned limits_concurrent(const struct door *d, const struct http_caller *who)
{
	const struct token *t = *who->token ? tokens_by_name(&d->tokens, who->token) : NULL;

	return t ? t->max_concurrent : 0;
}

static int later(struct limit_refusal *no, uint64_t wait_ns, const char *what)
{
	struct job_error why = { .field = "token", .given = "another run", .allowed = "later" };
	uint64_t seconds = (wait_ns + NS_PER_SEC - 1) / NS_PER_SEC;

	(void)snprintf(no->detail, sizeof(no->detail), "%s", what);
	(void)snprintf(no->headers, sizeof(no->headers), "Retry-After: %llu\r\n",
		       (unsigned long long)(seconds ? seconds : 1));
	(void)snprintf(why.message, sizeof(why.message), "token: %s", what);
	no->error = job_error_write(&why);
	no->wait_ns = wait_ns;
	no->problem = (struct problem) {
		.status = 429,
		.type = "limit",
		.detail = no->detail,
		.headers = no->headers,
	};
	return -EAGAIN;
}

/* A bucket that holds what may be started within one second, one run at least. */
static bool take_credit(struct usage *u, double rate, uint64_t *ret_wait_ns)
{
	double most = rate > 1 ? rate : 1;
	uint64_t now = clock_now_ns();

	u->credit += u->filled_ns ? rate * (double)(now - u->filled_ns) / (double)NS_PER_SEC : most;
	u->filled_ns = now;
	if (u->credit > most)
		u->credit = most;
	if (u->credit < 1) {
		*ret_wait_ns = (uint64_t)((1 - u->credit) / rate * (double)NS_PER_SEC);
		return false;
	}
	u->credit -= 1;
	return true;
}

/* The environment that @json names, parsed as cloched does; NULL: it can't be told, and cloched must not be asked. */
static char *environment_of(const char *json, size_t len)
{
	struct job_error ignored;
	json_t *name;
	json_t *o;
	char *ret = NULL;

	if (job_json_load(json, len, &o, &ignored) < 0)
		return NULL;
	name = json_object_get(o, "environment");
	if (json_is_object(o) && !name)
		ret = strdup("default");
	else if (json_is_string(name))
		ret = strdup(json_string_value(name));
	json_decref(o);
	return ret;
}

static int refuse_environment(struct limit_refusal *no, const char *name)
{
	struct job_error why = { .field = "environment" };

	(void)snprintf(why.given, sizeof(why.given), "\"%.60s\"", name ? name : "?");
	(void)snprintf(why.allowed, sizeof(why.allowed), "the environments of your token");
	if (name)
		(void)snprintf(why.message, sizeof(why.message), "environment: \"%.60s\" is not allowed: %s", name,
			       why.allowed);
	else
		(void)snprintf(why.message, sizeof(why.message),
			       "environment: it can't be told from the request, and your token has only some");
	(void)snprintf(no->detail, sizeof(no->detail), "%.250s", why.message);
	no->error = job_error_write(&why);
	no->problem = (struct problem) {
		.status = 422,
		.type = "request-refused",
		.detail = no->detail,
		.error = no->error,
	};
	return -EINVAL;
}

int limits_take(struct door *d, const struct http_caller *who, const char *json, size_t len, struct limit_refusal *no)
{
	const struct token *t = *who->token ? tokens_by_name(&d->tokens, who->token) : NULL;
	struct usage *u;
	uint64_t wait_ns = 0;

	no->error = NULL;
	no->wait_ns = 0;
	if (!*who->token || !t)
		return *who->token ? later(no, NS_PER_SEC, "the token is gone") : 0;
	if (t->environments.n) {
		auto_free char *name = environment_of(json, len);

		if (!name || !token_allows(t, name))
			return refuse_environment(no, name);
	}
	u = usage_of(d, t->name);
	if (!u)
		return later(no, NS_PER_SEC, "no memory");
	if (t->max_concurrent && u->n_running >= t->max_concurrent)
		return later(no, NS_PER_SEC, "your token has as many runs under way as it may have");
	if (t->rate > 0 && !take_credit(u, t->rate, &wait_ns))
		return later(no, wait_ns, "your token starts more runs a second than it may");
	u->n_running++;
	return 0;
}

void limits_leave(struct door *d, const struct http_caller *who)
{
	struct usage *u = *who->token ? usage_of(d, who->token) : NULL;

	if (u && u->n_running)
		u->n_running--;
}
