/* SPDX-License-Identifier: Apache-2.0 */
#include "run/settings.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/place.h"

#define SYSTEM_FILE "/etc/cloche/cloche.ini"
#define FILE_MAX    ((size_t)1 << 20)

/* Whose fault it is that a file can't be read. */
static int file_error(const char *path, int sys, struct err *e)
{
	bool is_theirs = sys == ENOENT || sys == ENOTDIR || sys == EACCES || sys == EPERM || sys == EISDIR || sys == ELOOP;

	return err_set(e, is_theirs ? ERR_INVALID : ERR_HOST, sys, "configuration: %.200s", path);
}

static int open_file(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);

	return fd < 0 ? -errno : fd;
}

/* One file over what is there; @fd: open, or why it is not; @is_needed: its absence is an error. */
static int load_file(struct conf *c, int fd, const char *path, bool is_trusted, bool is_needed, struct err *e)
{
	auto_fd int taken = fd;
	auto_free char *text = NULL;
	size_t len = 0;
	int r;

	if (!is_needed && (fd == -ENOENT || fd == -ENOTDIR))
		return 0;
	if (fd < 0)
		return file_error(path, -taken, e);
	r = fd_read_all(fd, FILE_MAX, &text, &len);
	return r < 0 ? file_error(path, -r, e) : conf_parse(c, text, len, path, is_trusted, e);
}

/* Where it is, empty: nowhere.  Return: whether it has to be there */
static bool user_path(char *const *variables, char *ret, size_t size)
{
	const char *given = place_variable(variables, "CLOCHE_CONFIG");
	const char *base = place_variable(variables, "XDG_CONFIG_HOME");
	const char *home = place_variable(variables, "HOME");
	int n = -1;

	if (given)
		n = snprintf(ret, size, "%s", given);
	else if (base && *base == '/') /* a relative one is to be ignored, says its specification */
		n = snprintf(ret, size, "%s/cloche/cloche.ini", base);
	else if (home && *home == '/')
		n = snprintf(ret, size, "%s/.config/cloche/cloche.ini", home);
	if (n < 0 || (size_t)n >= size)
		*ret = '\0';
	return given != NULL;
}

int settings_open(enum settings_file which, char *const *variables)
{
	char path[PATH_MAX] = SYSTEM_FILE;

	if (which == SETTINGS_USER)
		(void)user_path(variables, path, sizeof(path));
	return *path ? open_file(path) : -ENOENT;
}

static void make_lower(char *s)
{
	for (; *s; s++)
		*s = (char)tolower((unsigned char)*s);
}

/* "LIMITS_MEMORY_BYTES" to "limits" and "memory_bytes", "ENVIRONMENT_DATA_PYTHON" to "environment data" and "python" */
static bool split_name(const char *name, size_t len, char *section, char *key, size_t size)
{
	static const char *const sections[] = { "LIMITS_", "SCREEN_", "PROTECT_", "SERVER_", "HISTORY_", "HTTP_", "ENVIRONMENT_" };
	char *underscore;

	for (size_t i = 0; i < ARRAY_LEN(sections); i++) {
		size_t head = strlen(sections[i]);

		if (len <= head || len >= size || strncmp(name, sections[i], head) != 0)
			continue;
		(void)snprintf(section, size, "%.*s", (int)head - 1, name);
		(void)snprintf(key, size, "%.*s", (int)(len - head), name + head);
		make_lower(section);
		make_lower(key);
		if (i != ARRAY_LEN(sections) - 1)
			return true;
		underscore = strchr(key, '_');
		if (!underscore)
			return true; /* conf_set() will say what is missing */
		(void)snprintf(section + head - 1, size - head, " %.*s", (int)(underscore - key), key);
		memmove(key, underscore + 1, strlen(underscore));
		return true;
	}
	return false;
}

static int load_variables(struct conf *c, char *const *variables, struct err *e)
{
	static const char prefix[] = "CLOCHE_";

	for (; variables && *variables; variables++) {
		const char *v = *variables;
		const char *equals = strchr(v, '=');
		char section[256];
		char key[256];
		char name[256];
		size_t len;
		int r;

		if (!equals || strncmp(v, prefix, sizeof(prefix) - 1) != 0)
			continue;
		len = (size_t)(equals - v) - (sizeof(prefix) - 1);
		if (!split_name(v + sizeof(prefix) - 1, len, section, key, sizeof(key)))
			continue; /* CLOCHE_CONFIG, or somebody else's */
		(void)snprintf(name, sizeof(name), "%.*s", (int)(equals - v), v);
		r = conf_set(c, section, key, equals + 1, name, false, e);
		if (r < 0)
			return r;
	}
	return 0;
}

static int start(struct settings *ret, struct err *e)
{
	*ret = (struct settings){ .lists = NULL };
	return conf_init(&ret->conf) < 0 ? err_set(e, ERR_HOST, ENOMEM, "configuration") : 0;
}

int settings_load_by(struct settings *ret, char *const *variables, int (*open_it)(void *userdata, enum settings_file which),
		     void *userdata, struct err *e)
{
	char path[PATH_MAX] = "";
	bool is_needed = user_path(variables, path, sizeof(path));
	int r = start(ret, e);

	if (r == 0)
		r = load_file(&ret->conf, open_it(userdata, SETTINGS_SYSTEM), SYSTEM_FILE, true, false, e);
	if (r == 0 && *path)
		r = load_file(&ret->conf, open_it(userdata, SETTINGS_USER), path, false, is_needed, e);
	return r < 0 ? r : load_variables(&ret->conf, variables, e);
}

static int open_by_variables(void *userdata, enum settings_file which)
{
	return settings_open(which, userdata);
}

int settings_load(struct settings *ret, char *const *variables, struct err *e)
{
	return settings_load_by(ret, variables, open_by_variables, (void *)(uintptr_t)variables, e);
}

int settings_load_files(struct settings *ret, char *const *files, struct err *e)
{
	int r = start(ret, e);

	for (; *files && r == 0; files++)
		r = load_file(&ret->conf, open_file(*files), *files, true, true, e);
	return r;
}

static const char *const *put_list(const char ***next, const struct conf_strings *s)
{
	const char **start = *next;

	for (size_t i = 0; i < s->n; i++)
		*(*next)++ = s->items[i];
	*(*next)++ = NULL;
	return start;
}

/* Of a job that says nothing about its limits: the environment's, else everybody's. */
static void environment_limits(const struct conf *c, const struct conf_environment *v, struct job_limits *ret)
{
	*ret = c->rules.defaults;
	for (size_t i = 0; i < LIMIT_DEFS; i++) {
		uint64_t own = limit_get(&v->limits, &limit_defs[i]);

		if (own)
			limit_put(ret, &limit_defs[i], own);
	}
}

/* The same settings in the shape that the supervisor takes. */
static int fill_options(struct settings *s)
{
	const struct conf *c = &s->conf;
	size_t total = c->require.n + c->allow_missing.n + c->screen_report.n + c->screen_reject.n + 4;
	const char **next;

	for (size_t i = 0; i < c->n_environments; i++)
		total += c->environments[i].paths.n + c->environments[i].env.n + c->environments[i].preload.n + 3;
	s->lists = calloc(total, sizeof(*s->lists));
	s->environments = calloc(c->n_environments + 1, sizeof(*s->environments));
	if (!s->lists || !s->environments)
		return -ENOMEM;
	next = s->lists;
	for (size_t i = 0; i < c->n_environments; i++) {
		const struct conf_environment *from = &c->environments[i];

		s->environments[i] = (struct run_environment){ .name = from->name, .python = from->python };
		s->environments[i].is_cold = from->mode == JOB_MODE_COLD;
		s->environments[i].keeps_figures = from->keeps_figures;
		environment_limits(c, from, &s->environments[i].limits);
		s->environments[i].preload = put_list(&next, &from->preload);
		s->environments[i].paths = put_list(&next, &from->paths);
		s->environments[i].env = put_list(&next, &from->env);
	}
	s->options = (struct run_options){ .environments = s->environments, .n_environments = c->n_environments };
	s->options.require = put_list(&next, &c->require);
	s->options.allow_missing = put_list(&next, &c->allow_missing);
	s->options.screen_report = put_list(&next, &c->screen_report);
	s->options.screen_reject = put_list(&next, &c->screen_reject);
	return 0;
}

int settings_finish(struct settings *s, struct err *e)
{
	int r = conf_check(&s->conf, e);

	if (r == 0 && fill_options(s) < 0)
		r = err_set(e, ERR_HOST, ENOMEM, "configuration");
	return r;
}

void settings_done(struct settings *s)
{
	free(s->lists);
	free(s->environments);
	conf_done(&s->conf);
	*s = (struct settings){ .lists = NULL };
}

/* FNV-1a, 64 bits */
static void mix(uint64_t *h, const void *data, size_t len)
{
	const unsigned char *p = data;

	for (size_t i = 0; i < len; i++)
		*h = (*h ^ p[i]) * UINT64_C(0x100000001b3);
}

static void mix_number(uint64_t *h, uint64_t v)
{
	mix(h, &v, sizeof(v));
}

static void mix_text(uint64_t *h, const char *s)
{
	mix(h, s, strlen(s) + 1);
}

static void mix_list(uint64_t *h, const struct conf_strings *l)
{
	mix_number(h, l->n);
	for (size_t i = 0; i < l->n; i++)
		mix_text(h, l->items[i]);
}

static void mix_limits(uint64_t *h, const struct job_limits *l)
{
	for (size_t i = 0; i < LIMIT_DEFS; i++)
		mix_number(h, limit_get(l, &limit_defs[i]));
}

uint64_t settings_digest(const struct settings *s)
{
	const struct conf *c = &s->conf;
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	mix_limits(&h, &c->rules.defaults);
	mix_limits(&h, &c->rules.max);
	mix_number(&h, c->rules.timeout_ns);
	mix_number(&h, c->rules.max_timeout_ns);
	mix_number(&h, c->rules.max_script_bytes);
	for (size_t i = 0; i < c->n_environments; i++) {
		const struct conf_environment *v = &c->environments[i];

		mix_text(&h, v->name);
		mix_text(&h, v->python);
		mix_list(&h, &v->paths);
		mix_list(&h, &v->env);
		mix_list(&h, &v->preload);
		mix_number(&h, (uint64_t)v->mode);
		mix_number(&h, v->keeps_figures);
		mix_limits(&h, &v->limits);
	}
	mix_list(&h, &c->screen_report);
	mix_list(&h, &c->screen_reject);
	mix_list(&h, &c->require);
	mix_list(&h, &c->allow_missing);
	return h ? h : 1;
}
