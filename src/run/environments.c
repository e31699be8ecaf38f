/* SPDX-License-Identifier: Apache-2.0 */
#include "run/environments.h"

#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "job/request.h"

#define VERSION_SIZE 24

/* "3.11.2" of a line of it; digits and dots alone */
static bool take_version(const char *s, char ret[VERSION_SIZE])
{
	size_t n = strspn(s, "0123456789.");

	if (n < 3 || n >= VERSION_SIZE || !strchr(s, '.'))
		return false;
	memcpy(ret, s, n);
	ret[n] = '\0';
	return true;
}

/* A venv tells it in pyvenv.cfg, above its bin folder. */
static bool version_of_venv(const char *python, char ret[VERSION_SIZE])
{
	char path[PATH_MAX];
	char text[2048];
	const char *slash = strrchr(python, '/');
	const char *at;

	if (!slash || snprintf(path, sizeof(path), "%.*s/../pyvenv.cfg", (int)(slash - python), python) >= PATH_MAX)
		return false;
	if (fd_read_at(AT_FDCWD, path, text, sizeof(text)) <= 0)
		return false;
	at = strncmp(text, "version", 7) == 0 ? text : strstr(text, "\nversion");
	if (!at)
		return false;
	at += strcspn(at, "=");
	return *at == '=' && take_version(at + 1 + strspn(at + 1, " \t"), ret);
}

/* python3.11, where all links end */
static bool version_of_name(const char *python, char ret[VERSION_SIZE])
{
	auto_free char *real = realpath(python, NULL);
	const char *name = real ? strrchr(real, '/') : NULL;

	return name && strncmp(name, "/python", 7) == 0 && take_version(name + 7, ret);
}

static json_t *describe(const struct conf_environment *v, const struct run_pool_state *pool)
{
	char version[VERSION_SIZE];
	bool has_version = version_of_venv(v->python, version) || version_of_name(v->python, version);
	json_t *preload = json_array();
	json_t *env;

	for (size_t i = 0; preload && i < v->preload.n; i++)
		(void)json_array_append_new(preload, json_string(v->preload.items[i]));
	env = json_pack("{s:s, s:s, s:s?, s:s, s:o, s:n, s:n, s:n, s:n}", "name", v->name, "python", v->python, "version",
			has_version ? version : NULL, "mode", job_mode_name((enum job_mode)v->mode), "preload", preload,
			"zygote_age", "zygote_runs", "zygote_memory_bytes", "parked");
	if (env && pool && pool->is_ready) {
		(void)json_object_set_new(env, "zygote_age", json_real((double)pool->age_ns / (double)NS_PER_SEC));
		(void)json_object_set_new(env, "zygote_runs", json_integer(pool->runs));
		(void)json_object_set_new(env, "zygote_memory_bytes", json_integer((json_int_t)pool->memory_bytes));
		(void)json_object_set_new(env, "parked", json_integer(pool->parked));
	}
	return env;
}

static const struct run_pool_state *pool_of(const struct run_pool_state *pools, size_t n, size_t env)
{
	for (size_t i = 0; i < n; i++) {
		if (pools[i].environment == env)
			return &pools[i];
	}
	return NULL;
}

char *environments_write(const struct conf *c, const struct run_pool_state *pools, size_t n_pools)
{
	json_t *all = json_array();
	char *text = NULL;
	bool is_whole = all != NULL;

	for (size_t i = 0; i < c->n_environments && is_whole; i++)
		is_whole = json_array_append_new(all, describe(&c->environments[i], pool_of(pools, n_pools, i))) == 0;
	if (is_whole)
		text = json_dumps(all, 0);
	json_decref(all);
	return text;
}
