/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job field by field: every rule of a request that concerns one field is here, whoever brings the value.
 * request_json.c reads them from JSON, request_check.c holds the rules between fields.
 */
#include "job/request.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/parse.h"
#include "job/refuse.h"

#define NAME_BYTES 255  /* of one path component, as Linux has it */
#define PATH_BYTES 1024 /* of a name in files or a pattern in artifacts */

static const char *const networks[] = { [JOB_NETWORK_LOOPBACK] = "loopback", [JOB_NETWORK_NONE] = "none" };
static const char *const modes[] = { [JOB_MODE_AUTO] = "auto", [JOB_MODE_WARM] = "warm", [JOB_MODE_COLD] = "cold" };
static const char *const outputs[] = { [JOB_OUTPUT_TEXT] = "text", [JOB_OUTPUT_BASE64] = "base64" };

const char *job_mode_name(enum job_mode m)
{
	return modes[m];
}

const char *job_network_name(enum job_network n)
{
	return networks[n];
}

/* blob_set() - replace by a copy; on failure nothing changes */
static int blob_set(struct job_blob *b, const void *data, size_t len)
{
	char *copy = malloc(len + 1);

	if (!copy)
		return -ENOMEM;
	if (len > 0)
		memcpy(copy, data, len);
	copy[len] = '\0';
	free(b->data);
	b->data = copy;
	b->len = len;
	return 0;
}

static int string_set(char **s, const char *value)
{
	char *copy = strdup(value);

	if (!copy)
		return -ENOMEM;
	free(*s);
	*s = copy;
	return 0;
}

int job_list_add(struct job_list *l, const char *name, const void *data, size_t len)
{
	struct job_named item = { 0 };

	if ((l->n & (l->n - 1)) == 0) { /* full: room is always the next power of two */
		struct job_named *items = reallocarray(l->items, l->n ? l->n * 2 : 1, sizeof(*items));

		if (!items)
			return -ENOMEM;
		l->items = items;
	}
	if (name && string_set(&item.name, name) < 0)
		return -ENOMEM;
	if (blob_set(&item.body, data, len) < 0) {
		free(item.name);
		return -ENOMEM;
	}
	l->items[l->n++] = item;
	return 0;
}

static void list_done(struct job_list *l)
{
	for (size_t i = 0; i < l->n; i++) {
		free(l->items[i].name);
		free(l->items[i].body.data);
	}
	free(l->items);
	*l = (struct job_list) { 0 };
}

int job_init(struct job *j, const struct job_rules *rules)
{
	*j = (struct job) { .timeout_ns = rules->timeout_ns, .limits = rules->defaults };
	for (size_t i = 0; i < LIMIT_DEFS; i++) /* "none" by default is still held to what the administrator allows */
		if (limit_get(&j->limits, &limit_defs[i]) < limit_defs[i].min)
			limit_put(&j->limits, &limit_defs[i], limit_get(&rules->max, &limit_defs[i]));
	if (string_set(&j->script_name, "unnamed_script.py") < 0 || string_set(&j->environment, "default") < 0 ||
	    blob_set(&j->input, "", 0) < 0) {
		job_done(j);
		return -ENOMEM;
	}
	return 0;
}

void job_done(struct job *j)
{
	free(j->script.data);
	free(j->script_name);
	free(j->input.data);
	free(j->environment);
	list_done(&j->args);
	list_done(&j->env);
	list_done(&j->files);
	list_done(&j->artifacts);
	*j = (struct job) { 0 };
}

int job_set_script(struct job *j, const struct job_rules *rules, const void *data, size_t len, struct job_error *e)
{
	const char *text = data;
	char given[GIVEN_SIZE];
	size_t at = 0;
	enum utf8_part part = UTF8_CHAR;

	if (len == 0)
		return job_refuse(e, "script_content", "an empty script", "1 to %" PRIu64 " bytes",
				  rules->max_script_bytes);
	if (len > rules->max_script_bytes) {
		(void)snprintf(given, sizeof(given), "a script of %zu bytes", len);
		return job_refuse(e, "script_content", given, "1 to %" PRIu64 " bytes", rules->max_script_bytes);
	}
	while (at < len && text[at] != '\0') {
		size_t n = utf8_next(text + at, len - at, &part);

		if (part != UTF8_CHAR)
			break;
		at += n;
	}
	if (at < len) {
		(void)snprintf(given, sizeof(given), "byte 0x%02x at offset %zu", (unsigned char)text[at], at);
		return job_refuse(e, "script_content", given, "UTF-8 text without NUL");
	}
	return blob_set(&j->script, data, len);
}

/* control_at() - offset of the first control character or invalid byte of @s, or -1 */
static ssize_t control_at(const char *s)
{
	size_t len = strlen(s);

	for (size_t i = 0; i < len;) {
		enum utf8_part part;
		size_t n = utf8_next(s + i, len - i, &part);
		unsigned char c = (unsigned char)s[i];

		if (part != UTF8_CHAR || c < 0x20 || c == 0x7f ||
		    (n == 2 && c == 0xc2 && (unsigned char)s[i + 1] < 0xa0))
			return (ssize_t)i;
		i += n;
	}
	return -1;
}

int job_set_script_name(struct job *j, const char *name, struct job_error *e)
{
	size_t len = strlen(name);
	char given[GIVEN_SIZE];

	job_show_text(given, sizeof(given), name, len);
	if (len > NAME_BYTES)
		(void)snprintf(given, sizeof(given), "a name of %zu bytes", len);
	if (len == 0 || len > NAME_BYTES)
		return job_refuse(e, "script_name", given, "a file name of 1 to %d bytes", NAME_BYTES);
	if (strchr(name, '/'))
		return job_refuse(e, "script_name", given, "a plain file name without \"/\"");
	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return job_refuse(e, "script_name", given, "a file name, not a folder");
	if (control_at(name) >= 0)
		return job_refuse(e, "script_name", given, "a file name in UTF-8 without control characters");
	return string_set(&j->script_name, name);
}

const char *job_timeout_words(const struct job_rules *rules, char *buf, size_t size)
{
	char max[48];

	(void)snprintf(buf, size, "more than 0, at most %s seconds",
		       scaled_text(rules->max_timeout_ns, NS_PER_SEC, max, sizeof(max)));
	return buf;
}

int job_set_timeout_ns(struct job *j, const struct job_rules *rules, uint64_t ns, struct job_error *e)
{
	char given[48];
	char words[80];

	if (ns == 0 || ns > rules->max_timeout_ns)
		return job_refuse(e, "timeout", scaled_text(ns, NS_PER_SEC, given, sizeof(given)), "%s",
				  job_timeout_words(rules, words, sizeof(words)));
	j->timeout_ns = ns;
	return 0;
}

int job_set_timeout_seconds(struct job *j, const struct job_rules *rules, double value, struct job_error *e)
{
	double ns = value * 1e9;
	char given[48];
	char words[80];

	/* compared as doubles first: what passes fits a uint64_t */
	if (!(value > 0) || ns > (double)rules->max_timeout_ns)
		return job_refuse(e, "timeout", job_show_number(given, sizeof(given), value), "%s",
				  job_timeout_words(rules, words, sizeof(words)));
	j->timeout_ns = ns < 1 ? 1 : (uint64_t)(ns + 0.5);
	if (j->timeout_ns > rules->max_timeout_ns)
		j->timeout_ns = rules->max_timeout_ns;
	return 0;
}

int job_set_input(struct job *j, const void *data, size_t len, struct job_error *e)
{
	char given[48];

	if (len > JOB_STDIN_MAX) {
		(void)snprintf(given, sizeof(given), "%zu bytes", len);
		return job_refuse(e, "stdin", given, "at most %" PRIu64 " bytes", JOB_STDIN_MAX);
	}
	return blob_set(&j->input, data, len);
}

bool job_environment_name_ok(const char *name)
{
	size_t n = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");

	return n > 0 && n <= 32 && name[n] == '\0' && name[0] != '.' && name[0] != '-';
}

int job_set_environment(struct job *j, const char *name, struct job_error *e)
{
	char given[GIVEN_SIZE];

	if (!job_environment_name_ok(name))
		return job_refuse(e, "environment", job_show_text(given, sizeof(given), name, strlen(name)), "%s",
				  JOB_ENVIRONMENT_WORDS);
	return string_set(&j->environment, name);
}

/* choice() - index of @name in @names, or a refusal of @field that lists them */
static int choice(const char *field, const char *name, const char *const *names, size_t n, struct job_error *e)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(names[i], name) == 0)
			return (int)i;
	return job_refuse_unknown(e, field, name, NULL, names, n);
}

int job_set_network(struct job *j, const char *name, struct job_error *e)
{
	int i = choice("network", name, networks, ARRAY_LEN(networks), e);

	if (i < 0)
		return i;
	j->network = (enum job_network)i;
	return 0;
}

int job_mode_find(const char *name)
{
	struct job_error ignored;

	return choice("mode", name, modes, ARRAY_LEN(modes), &ignored);
}

int job_set_mode(struct job *j, const char *name, struct job_error *e)
{
	int i = choice("mode", name, modes, ARRAY_LEN(modes), e);

	if (i < 0)
		return i;
	j->mode = (enum job_mode)i;
	return 0;
}

int job_set_output(struct job *j, const char *name, struct job_error *e)
{
	int i = choice("output", name, outputs, ARRAY_LEN(outputs), e);

	if (i < 0)
		return i;
	j->output = (enum job_output)i;
	return 0;
}

/* refuse_long() - execve takes no string of more than 128 KiB with its NUL */
static int refuse_long(const char *field, size_t len, struct job_error *e)
{
	char given[48];

	(void)snprintf(given, sizeof(given), "%zu bytes", len);
	return job_refuse(e, field, given, "at most %" PRIu64 " bytes each", JOB_ARG_MAX - 1);
}

int job_add_arg(struct job *j, const char *arg, struct job_error *e)
{
	size_t len = strlen(arg);
	char field[FIELD_SIZE];

	if (len >= JOB_ARG_MAX) {
		(void)snprintf(field, sizeof(field), "args[%zu]", j->args.n);
		return refuse_long(field, len, e);
	}
	return job_list_add(&j->args, NULL, arg, len);
}

bool job_env_name_ok(const char *name)
{
	size_t n = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");

	return n > 0 && name[n] == '\0' && !(name[0] >= '0' && name[0] <= '9');
}

int job_add_env_unique(struct job *j, const char *name, const char *value, struct job_error *e)
{
	size_t name_len = strlen(name);
	size_t len = strlen(value);
	char field[FIELD_SIZE];
	char given[GIVEN_SIZE];

	job_field_of(field, "env", name, name_len);
	if (!job_env_name_ok(name))
		return job_refuse(e, field, job_show_text(given, sizeof(given), name, name_len),
				  "names are letters, digits and \"_\", not beginning with a digit");
	if (name_len + 1 + len >= JOB_ARG_MAX)
		return refuse_long(field, name_len + 1 + len, e);
	return job_list_add(&j->env, name, value, len);
}

static bool list_has(const struct job_list *l, const char *name)
{
	for (size_t i = 0; i < l->n; i++)
		if (strcmp(l->items[i].name, name) == 0)
			return true;
	return false;
}

int job_add_env(struct job *j, const char *name, const char *value, struct job_error *e)
{
	char field[FIELD_SIZE];

	if (list_has(&j->env, name))
		return job_refuse(e, job_field_of(field, "env", name, strlen(name)), "a second value",
				  "each name once");
	return job_add_env_unique(j, name, value, e);
}

/* path_words() - what is wrong with @path as a relative path below /tmp, as what is allowed; NULL: nothing */
static const char *path_words(const char *path)
{
	size_t len = strlen(path);

	if (len == 0 || len > PATH_BYTES)
		return "a relative path of 1 to 1024 bytes";
	if (path[0] == '/')
		return "a relative path (below the script's folder)";
	if (control_at(path) >= 0)
		return "a path in UTF-8 without control characters";
	for (const char *p = path;;) {
		size_t n = strcspn(p, "/");

		if (n == 0 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
			return "a relative path without empty parts, \".\" or \"..\"";
		if (n > NAME_BYTES)
			return "a relative path with parts of at most 255 bytes";
		if (p[n] == '\0')
			return NULL;
		p += n + 1;
	}
}

int job_add_file_unique(struct job *j, const char *name, const void *data, size_t len, struct job_error *e)
{
	const char *words = path_words(name);
	char field[FIELD_SIZE];
	char given[GIVEN_SIZE];

	if (words)
		return job_refuse(e, job_field_of(field, "files", name, strlen(name)),
				  job_show_text(given, sizeof(given), name, strlen(name)), "%s", words);
	if (j->files.n >= JOB_FILES_MAX)
		return job_refuse(e, "files", "one more file", "at most %d files", JOB_FILES_MAX);
	return job_list_add(&j->files, name, data, len);
}

int job_add_file(struct job *j, const char *name, const void *data, size_t len, struct job_error *e)
{
	char field[FIELD_SIZE];

	if (list_has(&j->files, name))
		return job_refuse(e, job_field_of(field, "files", name, strlen(name)), "a second file",
				  "each name once");
	return job_add_file_unique(j, name, data, len, e);
}

int job_add_artifact(struct job *j, const char *pattern, struct job_error *e)
{
	const char *words = path_words(pattern);
	char field[FIELD_SIZE];
	char given[GIVEN_SIZE];

	(void)snprintf(field, sizeof(field), "artifacts[%zu]", j->artifacts.n);
	if (words)
		return job_refuse(e, field, job_show_text(given, sizeof(given), pattern, strlen(pattern)), "%s", words);
	if (j->artifacts.n >= JOB_ARTIFACTS_MAX)
		return job_refuse(e, "artifacts", "one more pattern", "at most %d patterns", JOB_ARTIFACTS_MAX);
	return job_list_add(&j->artifacts, NULL, pattern, strlen(pattern));
}

int job_set_limit(struct job *j, const struct job_rules *rules, const char *name, double value, struct job_error *e)
{
	const struct limit_def *d = limit_find(name);
	const char *names[LIMIT_DEFS];
	char field[FIELD_SIZE];
	char given[48];
	char words[140];
	uint64_t max;
	double raw;

	if (!d) {
		for (size_t i = 0; i < LIMIT_DEFS; i++)
			names[i] = limit_defs[i].name;
		return job_refuse_unknown(e, job_field_of(field, "limits", name, strlen(name)), name,
					  "an unknown limit", names, LIMIT_DEFS);
	}
	max = limit_max(rules, d);
	raw = value * (double)limit_scale(d->unit);
	if (d->unit != LIMIT_BYTES && d->unit != LIMIT_COUNT && raw > 0 && raw < (double)d->ceiling)
		raw = (double)(uint64_t)(raw + 0.5);
	/* compared as doubles first: what passes fits a uint64_t */
	if (!(raw >= (double)d->min) || raw > (double)max || (double)(uint64_t)raw < raw) {
		(void)snprintf(field, sizeof(field), "limits.%s", name);
		limit_words(d, max, words, sizeof(words));
		return job_refuse(e, field, job_show_number(given, sizeof(given), value), "%s", words);
	}
	limit_put(&j->limits, d, (uint64_t)raw < max ? (uint64_t)raw : max); /* a double may round up past @max */
	j->limits_given |= UINT32_C(1) << (d - limit_defs);
	return 0;
}
