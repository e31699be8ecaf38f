/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/request.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/parse.h"
#include "job/text.h"

/* Everything is put through here: what fails (no UTF-8, no memory) is kept, and what comes after it does nothing. */
struct writer {
	json_t *root;
	int r;
};

static void fail(struct writer *w, int r)
{
	if (w->r == 0)
		w->r = r;
}

/* @value is taken over; NULL: no memory */
static void put(struct writer *w, json_t *object, const char *name, json_t *value)
{
	if (json_object_set_new(object, name, value) < 0)
		fail(w, -ENOMEM);
}

static json_t *text(struct writer *w, const char *data, size_t len)
{
	if (!utf8_valid(data, len))
		fail(w, -EILSEQ);
	return json_stringn(data, len);
}

static void put_list(struct writer *w, const char *name, const struct job_list *l)
{
	json_t *list;

	if (!l->n)
		return;
	list = json_array();
	for (size_t i = 0; i < l->n && w->r == 0; i++) {
		if (json_array_append_new(list, text(w, l->items[i].body.data, l->items[i].body.len)) < 0)
			fail(w, -ENOMEM);
	}
	put(w, w->root, name, list);
}

static void put_env(struct writer *w, const struct job_list *l)
{
	json_t *env = l->n ? json_object() : NULL;

	for (size_t i = 0; i < l->n && w->r == 0; i++)
		put(w, env, l->items[i].name, text(w, l->items[i].body.data, l->items[i].body.len));
	if (l->n)
		put(w, w->root, "env", env);
}

static void put_files(struct writer *w, const struct job_list *l)
{
	json_t *files = l->n ? json_object() : NULL;

	for (size_t i = 0; i < l->n && w->r == 0; i++) {
		const struct job_named *f = &l->items[i];
		char *base64 = base64_encode(f->body.data, f->body.len);

		if (!base64)
			fail(w, -ENOMEM);
		else
			put(w, files, f->name, json_pack("{s:s}", "base64", base64));
		free(base64);
	}
	if (l->n)
		put(w, w->root, "files", files);
}

static void put_limits(struct writer *w, const struct job *j)
{
	json_t *limits;

	if (!j->limits_given)
		return;
	limits = json_object();
	for (size_t i = 0; i < LIMIT_DEFS; i++) {
		uint64_t value = limit_get(&j->limits, &limit_defs[i]);
		uint64_t scale = limit_scale(limit_defs[i].unit);

		if (!(j->limits_given >> i & 1))
			continue;
		put(w, limits, limit_defs[i].name,
		    scale == 1 ? json_integer((json_int_t)value) : json_real((double)value / (double)scale));
	}
	put(w, w->root, "limits", limits);
}

static void fill(struct writer *w, const struct job *j, const struct options *o)
{
	put(w, w->root, "script_content", text(w, j->script.data, j->script.len));
	put(w, w->root, "script_name", text(w, j->script_name, strlen(j->script_name)));
	if (options_have(o, OPT_TIMEOUT))
		put(w, w->root, "timeout", json_real((double)j->timeout_ns / (double)NS_PER_SEC));
	put_list(w, "args", &j->args);
	put_env(w, &j->env);
	put_files(w, &j->files);
	put_list(w, "artifacts", &j->artifacts);
	if (options_have(o, OPT_ENVIRONMENT))
		put(w, w->root, "environment", json_string(j->environment));
	put_limits(w, j);
	if (options_have(o, OPT_NETWORK))
		put(w, w->root, "network", json_string(job_network_name(j->network)));
	if (options_have(o, OPT_MODE))
		put(w, w->root, "mode", json_string(job_mode_name(j->mode)));
	if (j->is_buffered)
		put(w, w->root, "buffered", json_true());
}

int request_write(const struct job *j, const struct options *o, char **ret)
{
	struct writer w = { .root = json_object() };
	char *json = NULL;

	if (!w.root)
		return -ENOMEM;
	fill(&w, j, o);
	if (w.r == 0) {
		json = json_dumps(w.root, JSON_COMPACT);
		w.r = json ? 0 : -ENOMEM;
	}
	json_decref(w.root);
	if (w.r == 0)
		*ret = json;
	return w.r;
}
