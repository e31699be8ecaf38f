/* SPDX-License-Identifier: Apache-2.0 */
#include "job/conf_list.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "job/request.h"

#define DEFAULT_PYTHON "/usr/bin/python3"
#define QUEUE_MAX      128
#define GRACE_NS       (10 * NS_PER_SEC)
#define PATIENCE_NS    (10 * NS_PER_SEC)
#define TENANT_IDLE_NS (60 * NS_PER_SEC)

int conf_strings_add(struct conf_strings *l, const char *s, size_t len)
{
	char **items = reallocarray(l->items, l->n + 1, sizeof(*items));

	if (!items)
		return -ENOMEM;
	l->items = items;
	l->items[l->n] = strndup(s, len);
	if (!l->items[l->n])
		return -ENOMEM;
	l->n++;
	return 0;
}

void conf_strings_done(struct conf_strings *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->items[i]);
	free(l->items);
	*l = (struct conf_strings) { 0 };
}

static int strings_copy(const struct conf_strings *from, struct conf_strings *to)
{
	for (size_t i = 0; i < from->n; i++)
		if (conf_strings_add(to, from->items[i], strlen(from->items[i])) < 0)
			return -ENOMEM;
	return 0;
}

static void environment_done(struct conf_environment *v)
{
	free(v->name);
	free(v->python);
	conf_strings_done(&v->paths);
	conf_strings_done(&v->env);
	conf_strings_done(&v->preload);
}

int conf_environment_get(struct conf *c, const char *name, struct conf_environment **ret)
{
	struct conf_environment *all;
	struct conf_environment v = { .mode = JOB_MODE_AUTO, .keeps_figures = true };
	int r = 0;

	for (size_t i = 0; i < c->n_environments; i++) {
		if (strcmp(c->environments[i].name, name) == 0) {
			*ret = &c->environments[i];
			return 0;
		}
	}
	all = reallocarray(c->environments, c->n_environments + 1, sizeof(*all));
	if (!all)
		return -ENOMEM;
	c->environments = all;
	v.name = strdup(name);
	v.python = strdup(DEFAULT_PYTHON);
	for (size_t i = 0; conf_default_preload[i] && r == 0; i++)
		r = conf_strings_add(&v.preload, conf_default_preload[i], strlen(conf_default_preload[i]));
	if (!v.name || !v.python || r < 0) {
		environment_done(&v);
		return -ENOMEM;
	}
	c->environments[c->n_environments] = v;
	*ret = &c->environments[c->n_environments++];
	return 0;
}

static int environment_copy(const struct conf_environment *from, struct conf *c)
{
	struct conf_environment *to;
	char *python;

	if (conf_environment_get(c, from->name, &to) < 0)
		return -ENOMEM;
	python = strdup(from->python);
	if (!python)
		return -ENOMEM;
	free(to->python);
	to->python = python;
	to->mode = from->mode;
	to->keeps_figures = from->keeps_figures;
	to->limits = from->limits;
	if (strings_copy(&from->paths, &to->paths) < 0 || strings_copy(&from->env, &to->env) < 0)
		return -ENOMEM;
	conf_strings_done(&to->preload); /* the default ones */
	return strings_copy(&from->preload, &to->preload);
}

int conf_refresh(struct conf *c)
{
	struct job_profile *p = reallocarray(c->profiles, c->n_environments, sizeof(*p));

	if (!p)
		return -ENOMEM;
	for (size_t i = 0; i < c->n_environments; i++) {
		const struct conf_environment *v = &c->environments[i];

		p[i] = (struct job_profile) { .name = v->name, .limits = v->limits, .mode = v->mode };
	}
	c->profiles = p;
	c->rules.profiles = p;
	c->rules.n_profiles = c->n_environments;
	return 0;
}

static int server_copy(const struct conf_server *from, struct conf_server *to)
{
	char *group = from->group ? strdup(from->group) : NULL;

	if (from->group && !group)
		return -ENOMEM;
	*to = *from;
	to->group = group;
	return 0;
}

static void http_done(struct conf_http *h)
{
	free(h->socket);
	free(h->listen);
	conf_strings_done(&h->allowed_hosts);
	conf_strings_done(&h->allowed_origins);
}

static int http_copy(const struct conf_http *from, struct conf_http *to)
{
	struct conf_http copy = { .is_behind_tls_proxy = from->is_behind_tls_proxy, .patience_ns = from->patience_ns };
	int r = strings_copy(&from->allowed_hosts, &copy.allowed_hosts);

	if (r == 0)
		r = strings_copy(&from->allowed_origins, &copy.allowed_origins);
	if (r == 0 && from->socket && !(copy.socket = strdup(from->socket)))
		r = -ENOMEM;
	if (r == 0 && from->listen && !(copy.listen = strdup(from->listen)))
		r = -ENOMEM;
	if (r < 0) {
		http_done(&copy);
		return r;
	}
	*to = copy;
	return 0;
}

int conf_copy(const struct conf *c, struct conf *ret)
{
	struct conf copy = { .rules = c->rules };
	int r = 0;

	for (size_t i = 0; i < c->n_environments && r == 0; i++)
		r = environment_copy(&c->environments[i], &copy);
	if (r == 0)
		r = strings_copy(&c->screen_report, &copy.screen_report);
	if (r == 0)
		r = strings_copy(&c->screen_reject, &copy.screen_reject);
	if (r == 0)
		r = strings_copy(&c->require, &copy.require);
	if (r == 0)
		r = strings_copy(&c->allow_missing, &copy.allow_missing);
	if (r == 0)
		r = server_copy(&c->server, &copy.server);
	if (r == 0)
		r = http_copy(&c->http, &copy.http);
	if (r == 0)
		r = conf_history_copy(&c->history, &copy.history);
	if (r == 0)
		r = conf_refresh(&copy);
	if (r < 0) {
		conf_done(&copy);
		return r;
	}
	*ret = copy;
	return 0;
}

int conf_init(struct conf *c)
{
	struct conf_environment *ignored;

	*c = (struct conf) { .server = { .queue_max = QUEUE_MAX, .grace_ns = GRACE_NS, .pool_min = 2, .pool_max = 16, .zygote_max_runs = 1000, .tenant_idle_ns = TENANT_IDLE_NS } };
	c->http.patience_ns = PATIENCE_NS;
	conf_history_init(&c->history);
	job_rules_init(&c->rules);
	if (conf_environment_get(c, "default", &ignored) < 0 || conf_refresh(c) < 0) {
		conf_done(c);
		return -ENOMEM;
	}
	return 0;
}

void conf_done(struct conf *c)
{
	for (size_t i = 0; i < c->n_environments; i++)
		environment_done(&c->environments[i]);
	free(c->environments);
	free(c->profiles);
	conf_strings_done(&c->screen_report);
	conf_strings_done(&c->screen_reject);
	conf_strings_done(&c->require);
	conf_strings_done(&c->allow_missing);
	free(c->server.group);
	http_done(&c->http);
	conf_history_done(&c->history);
	*c = (struct conf) { 0 };
}

const struct conf_environment *conf_environment(const struct conf *c, const char *name)
{
	for (size_t i = 0; i < c->n_environments; i++)
		if (strcmp(c->environments[i].name, name) == 0)
			return &c->environments[i];
	return NULL;
}
