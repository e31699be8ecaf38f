/* SPDX-License-Identifier: Apache-2.0 */
/* [history]: what a server writes down about its runs. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/parse.h"
#include "job/conf_list.h"

#define DAY_NS      (86400 * NS_PER_SEC)
#define AGE_CEILING (3650 * DAY_NS)
#define ROWS_MAX    UINT64_C(100000000)
#define BYTES_MIN   (UINT64_C(1) << 20)
#define BYTES_MAX   (UINT64_C(1) << 40)

void conf_history_init(struct conf_history *h)
{
	*h = (struct conf_history) { .is_enabled = true,
				     .max_age_ns = 30 * DAY_NS,
				     .max_rows = 100000,
				     .max_bytes = UINT64_C(256) << 20,
				     .stores_scripts = true,
				     .stores_output = true };
}

void conf_history_done(struct conf_history *h)
{
	free(h->path);
	h->path = NULL;
}

int conf_history_copy(const struct conf_history *from, struct conf_history *to)
{
	char *path = from->path ? strdup(from->path) : NULL;

	if (from->path && !path)
		return -ENOMEM;
	*to = *from;
	to->path = path;
	return 0;
}

static int put_path(struct conf_history *h, const struct conf_setting *s, struct conf_fault *f)
{
	if (s->value[0] != '/' || s->value[strlen(s->value) - 1] == '/')
		return conf_refuse(s, f, "the absolute path of a file");
	return conf_put_text(&h->path, s);
}

static int put_age(uint64_t *ns, const struct conf_setting *s, struct conf_fault *f)
{
	if (parse_duration_ns(s->value, NS_PER_SEC, AGE_CEILING, ns) < 0)
		return conf_refuse(s, f, "a time like 30d, 12h or 90m, at least 1 second, at most 3650d");
	return 0;
}

int conf_history_apply(struct conf_history *h, const struct conf_setting *s, struct conf_fault *f)
{
	static const char *const known[] = { "enabled",   "path",          "max_age",     "max_rows",
					     "max_bytes", "store_scripts", "store_output" };

	if (strcmp(s->key, "enabled") == 0)
		return conf_put_bool(&h->is_enabled, s, f);
	if (strcmp(s->key, "store_scripts") == 0)
		return conf_put_bool(&h->stores_scripts, s, f);
	if (strcmp(s->key, "store_output") == 0)
		return conf_put_bool(&h->stores_output, s, f);
	if (strcmp(s->key, "path") == 0)
		return put_path(h, s, f);
	if (strcmp(s->key, "max_age") == 0)
		return put_age(&h->max_age_ns, s, f);
	if (strcmp(s->key, "max_rows") == 0) {
		if (parse_u64(s->value, 1, ROWS_MAX, &h->max_rows) < 0)
			return conf_refuse(s, f, "a whole number, at least 1, at most 100000000");
		return 0;
	}
	if (strcmp(s->key, "max_bytes") == 0) {
		if (parse_size(s->value, BYTES_MIN, BYTES_MAX, &h->max_bytes) < 0)
			return conf_refuse(s, f, "a size like 256m or 2g, at least 1m, at most 1t");
		return 0;
	}
	return conf_refuse_unknown(s, f, known, ARRAY_LEN(known));
}
