/* SPDX-License-Identifier: Apache-2.0 */
/* What each setting means; conf.c brings them from text, one by one. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/parse.h"
#include "job/conf_list.h"
#include "job/refuse.h"

#define SCRIPT_BYTES_CEILING (UINT64_C(64) << 20)
#define SEPARATORS           ", \t"
#define RUNNING_CEILING      1024 /* a supervisor has 2048 places, those of an ending one among them */
#define QUEUE_CEILING        1024

static const char *const sections[] = { "limits", "environment NAME", "screen", "protect", "server", "http", "history" };

int conf_refuse(const struct conf_setting *s, struct conf_fault *f, const char *allowed, ...)
{
	char words[160];
	char key[60];
	char value[60];
	va_list ap;

	va_start(ap, allowed);
	(void)vsnprintf(words, sizeof(words), allowed, ap);
	va_end(ap);
	job_show_plain(key, sizeof(key), s->key, strlen(s->key));
	job_show_text(value, sizeof(value), s->value, strlen(s->value));
	(void)snprintf(f->msg, sizeof(f->msg), "%.50s.%s: %s is not allowed: %s", s->section, key, value, words);
	return -EINVAL;
}

int conf_refuse_unknown(const struct conf_setting *s, struct conf_fault *f, const char *const *known, size_t n)
{
	char shown[60];
	struct job_error e;

	job_refuse_unknown(&e, "key", s->key, "an unknown setting", known, n);
	(void)snprintf(f->msg, sizeof(f->msg), "%.50s.%s is an unknown setting: %s", s->section,
		       job_show_plain(shown, sizeof(shown), s->key, strlen(s->key)), e.allowed);
	return -EINVAL;
}

int conf_put_bool(bool *ret, const struct conf_setting *s, struct conf_fault *f)
{
	return parse_bool(s->value, ret) < 0 ? conf_refuse(s, f, "yes or no") : 0;
}

int conf_put_text(char **ret, const struct conf_setting *s)
{
	char *text = strdup(s->value);

	if (!text)
		return -ENOMEM;
	free(*ret);
	*ret = text;
	return 0;
}

bool conf_section_ok(const char *section, struct conf_fault *f)
{
	static const char prefix[] = "environment ";
	char shown[60];
	char known[160] = "";

	for (size_t i = 0; i < ARRAY_LEN(sections); i++) {
		size_t used = strlen(known);

		if (strcmp(section, sections[i]) == 0 && !strchr(section, ' '))
			return true;
		(void)snprintf(known + used, sizeof(known) - used, "%s[%s]", i ? ", " : "", sections[i]);
	}
	job_show_plain(shown, sizeof(shown), section, strlen(section));
	if (strncmp(section, prefix, sizeof(prefix) - 1) == 0) {
		if (job_environment_name_ok(section + sizeof(prefix) - 1))
			return true;
		(void)snprintf(f->msg, sizeof(f->msg), "[%s] is not allowed: an environment's name is %s", shown,
			       JOB_ENVIRONMENT_WORDS);
		return false;
	}
	(void)snprintf(f->msg, sizeof(f->msg), "[%s] is an unknown section: known are %s", shown, known);
	return false;
}

bool conf_is_list(const char *key)
{
	static const char *const lists[] = { "paths",	      "preload",       "report",	 "reject", "require",
					     "allow_missing", "allowed_hosts", "allowed_origins" };

	for (size_t i = 0; i < ARRAY_LEN(lists); i++)
		if (strcmp(lists[i], key) == 0)
			return true;
	return false;
}

static int parse_by_unit(enum limit_unit u, const char *s, uint64_t min, uint64_t max, uint64_t *ret)
{
	switch (u) {
	case LIMIT_BYTES:
		return parse_size(s, min, max, ret);
	case LIMIT_SECONDS:
		return parse_duration_ns(s, min, max, ret);
	case LIMIT_CPUS:
		return parse_milli(s, min, max, ret);
	case LIMIT_COUNT:
		break;
	}
	return parse_u64(s, min, max, ret);
}

/* put_limit() - @can_be_none: "none" stands for 0 */
static int put_limit(struct job_limits *l, const struct limit_def *d, bool can_be_none, const struct conf_setting *s,
		     struct conf_fault *f)
{
	bool is_none = can_be_none && strcmp(s->value, "none") == 0;
	uint64_t value = 0;
	char words[120];
	int r = is_none ? 0 : parse_by_unit(d->unit, s->value, d->min, d->ceiling, &value);

	if (r < 0) {
		limit_words(d, d->ceiling, words, sizeof(words));
		return conf_refuse(s, f, "%s%s", words, can_be_none ? ", or \"none\"" : "");
	}
	limit_put(l, d, value);
	return 0;
}

static int put_time(uint64_t *ns, const struct conf_setting *s, struct conf_fault *f)
{
	if (parse_duration_ns(s->value, 1, TIMEOUT_CEILING_NS, ns) < 0)
		return conf_refuse(s, f,
				   "a time like 10, 1.5, 250ms, 2m or 1h, more than 0, at most %" PRIu64 " seconds",
				   TIMEOUT_CEILING_NS / NS_PER_SEC);
	return 0;
}

static int unknown_limit(const struct conf_setting *s, struct conf_fault *f)
{
	static const char *const others[] = { "timeout", "max_timeout", "max_script_bytes" };
	const char *known[LIMIT_DEFS * 2 + ARRAY_LEN(others)];
	char maxima[LIMIT_DEFS][32];
	size_t n = 0;

	for (size_t i = 0; i < LIMIT_DEFS; i++)
		known[n++] = limit_defs[i].name;
	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		known[n++] = others[i];
	for (size_t i = 0; i < LIMIT_DEFS; i++) {
		(void)snprintf(maxima[i], sizeof(maxima[i]), "max_%s", limit_defs[i].name);
		known[n++] = maxima[i];
	}
	return conf_refuse_unknown(s, f, known, n);
}

static int apply_limits(struct conf *c, const struct conf_setting *s, struct conf_fault *f)
{
	bool is_max = strncmp(s->key, "max_", 4) == 0;
	const struct limit_def *d = limit_find(is_max ? s->key + 4 : s->key);
	bool is_time = strcmp(s->key, "timeout") == 0 || strcmp(s->key, "max_timeout") == 0;
	bool is_script = strcmp(s->key, "max_script_bytes") == 0;

	if (!d && !is_time && !is_script)
		return unknown_limit(s, f);
	if (is_max && !s->is_trusted)
		return conf_refuse(s, f, "maxima are set by the administrator's configuration alone");
	if (is_time)
		return put_time(is_max ? &c->rules.max_timeout_ns : &c->rules.timeout_ns, s, f);
	if (is_script) {
		if (parse_size(s->value, 1, SCRIPT_BYTES_CEILING, &c->rules.max_script_bytes) < 0)
			return conf_refuse(s, f, "at least 1, at most %" PRIu64 " bytes", SCRIPT_BYTES_CEILING);
		return 0;
	}
	return put_limit(is_max ? &c->rules.max : &c->rules.defaults, d, is_max || d->initial == 0, s, f);
}

static bool is_absolute(const char *s, size_t len)
{
	return len > 0 && s[0] == '/';
}

/* is_dotted() - a module or call: names of letters, digits, "_" (or UTF-8) joined by single dots */
static bool is_dotted(const char *s, size_t len)
{
	bool is_start = true;

	for (size_t i = 0; i < len; i++) {
		unsigned char ch = (unsigned char)s[i];
		bool is_letter = ch >= 0x80 || ch == '_' || (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z');
		bool is_digit = ch >= '0' && ch <= '9';

		if (ch == '.' ? is_start : !is_letter && (!is_digit || is_start))
			return false;
		is_start = ch == '.';
	}
	return len > 0 && !is_start && utf8_valid(s, len);
}

static bool is_wall(const char *s, size_t len)
{
	return strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789_-") >= len;
}

/* put_list() - the items of @s->value, each of which must pass @is_ok */
static int put_list(struct conf_strings *l, const char *separators, bool (*is_ok)(const char *, size_t),
		    const char *words, const struct conf_setting *s, struct conf_fault *f)
{
	const char *p = s->value;

	if (s->is_first)
		conf_strings_done(l);
	for (p += strspn(p, separators); *p; p += strspn(p, separators)) {
		size_t n = strcspn(p, separators);

		if (!is_ok(p, n))
			return conf_refuse(s, f, "%s", words);
		if (conf_strings_add(l, p, n) < 0)
			return -ENOMEM;
		p += n;
	}
	return 0;
}

/* put_variable() - env.NAME = VALUE, kept as "NAME=VALUE"; the later one of a name wins */
static int put_variable(struct conf_strings *l, const struct conf_setting *s, struct conf_fault *f)
{
	const char *name = s->key + strlen("env.");
	size_t len = strlen(name);
	char *text;

	if (!job_env_name_ok(name))
		return conf_refuse(s, f,
				   "env.NAME with a name of letters, digits and \"_\", not beginning with a digit");
	if (asprintf(&text, "%s=%s", name, s->value) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < l->n; i++) {
		if (strncmp(l->items[i], text, len + 1) == 0) {
			free(l->items[i]);
			l->items[i] = text;
			return 0;
		}
	}
	if (conf_strings_add(l, text, strlen(text)) < 0) {
		free(text);
		return -ENOMEM;
	}
	free(text);
	return 0;
}

static int put_python(struct conf_environment *v, const struct conf_setting *s, struct conf_fault *f)
{
	if (s->value[0] != '/')
		return conf_refuse(s, f, "the absolute path of an interpreter");
	return conf_put_text(&v->python, s);
}

static int unknown_in_environment(const struct conf_setting *s, struct conf_fault *f)
{
	static const char *const own[] = { "python", "paths", "preload", "mode", "figures", "env.NAME" };
	const char *known[ARRAY_LEN(own) + LIMIT_DEFS];
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_LEN(own); i++)
		known[n++] = own[i];
	for (size_t i = 0; i < LIMIT_DEFS; i++)
		known[n++] = limit_defs[i].name;
	return conf_refuse_unknown(s, f, known, n);
}

static int apply_environment(struct conf *c, const struct conf_setting *s, struct conf_fault *f)
{
	const struct limit_def *d = limit_find(s->key);
	struct conf_environment *v;

	if (conf_environment_get(c, s->section + strlen("environment "), &v) < 0)
		return -ENOMEM;
	if (strcmp(s->key, "python") == 0)
		return put_python(v, s, f);
	if (strcmp(s->key, "paths") == 0)
		return put_list(&v->paths, ":", is_absolute, "absolute paths with \":\" between them", s, f);
	if (strcmp(s->key, "preload") == 0)
		return put_list(&v->preload, SEPARATORS, is_dotted, "names of modules", s, f);
	if (strncmp(s->key, "env.", 4) == 0)
		return put_variable(&v->env, s, f);
	if (strcmp(s->key, "mode") == 0) {
		int mode = job_mode_find(s->value);

		if (mode < 0)
			return conf_refuse(s, f, "auto, warm or cold");
		v->mode = mode;
		return 0;
	}
	if (strcmp(s->key, "figures") == 0)
		return conf_put_bool(&v->keeps_figures, s, f);
	if (!d)
		return unknown_in_environment(s, f);
	return put_limit(&v->limits, d, false, s, f);
}

static int apply_screen(struct conf *c, const struct conf_setting *s, struct conf_fault *f)
{
	static const char *const known[] = { "report", "reject" };

	if (strcmp(s->key, "report") == 0)
		return put_list(&c->screen_report, SEPARATORS, is_dotted, "names of modules and calls", s, f);
	if (strcmp(s->key, "reject") == 0)
		return put_list(&c->screen_reject, SEPARATORS, is_dotted, "names of modules and calls", s, f);
	return conf_refuse_unknown(s, f, known, ARRAY_LEN(known));
}

static int apply_protect(struct conf *c, const struct conf_setting *s, struct conf_fault *f)
{
	static const char *const known[] = { "require", "allow_missing" };

	if (strcmp(s->key, "require") == 0)
		return put_list(&c->require, SEPARATORS, is_wall, "names of protections", s, f);
	if (strcmp(s->key, "allow_missing") == 0)
		return put_list(&c->allow_missing, SEPARATORS, is_wall, "names of protections", s, f);
	return conf_refuse_unknown(s, f, known, ARRAY_LEN(known));
}

/* put_group() - a group's name as the system takes it; whether it is there is seen when it is used */
static int put_group(char **group, const struct conf_setting *s, struct conf_fault *f)
{
	size_t len = strlen(s->value);

	if (len < 1 || len > 32 || !is_wall(s->value, len) || s->value[0] == '-')
		return conf_refuse(s, f, "the name of a group");
	return conf_put_text(group, s);
}

/* What [server] counts. */
static const struct {
	const char *key;
	size_t offset;
	uint32_t min;
	uint32_t max;
} server_numbers[] = {
	{ "max_running", offsetof(struct conf_server, max_running), 1, RUNNING_CEILING },
	{ "queue_max", offsetof(struct conf_server, queue_max), 0, QUEUE_CEILING },
	{ "pool_min", offsetof(struct conf_server, pool_min), 0, RUNNING_CEILING },
	{ "pool_max", offsetof(struct conf_server, pool_max), 0, RUNNING_CEILING },
	{ "zygote_max_runs", offsetof(struct conf_server, zygote_max_runs), 1, 1000000 },
};

static int apply_server(struct conf_server *v, const struct conf_setting *s, struct conf_fault *f)
{
	static const char *const known[] = { "max_running",	"queue_max",	 "grace",	"group", "pool_min", "pool_max",
					     "zygote_max_runs", "share_zygotes", "tenant_idle", "log" };
	uint64_t number = 0;

	if (strcmp(s->key, "grace") == 0)
		return put_time(&v->grace_ns, s, f);
	if (strcmp(s->key, "tenant_idle") == 0)
		return put_time(&v->tenant_idle_ns, s, f);
	if (strcmp(s->key, "share_zygotes") == 0)
		return conf_put_bool(&v->share_zygotes, s, f);
	if (strcmp(s->key, "log") == 0) {
		if (strcmp(s->value, "text") != 0 && strcmp(s->value, "json") != 0)
			return conf_refuse(s, f, "text or json");
		v->logs_json = s->value[0] == 'j';
		return 0;
	}
	if (strcmp(s->key, "group") == 0)
		return put_group(&v->group, s, f);
	for (size_t i = 0; i < ARRAY_LEN(server_numbers); i++) {
		if (strcmp(s->key, server_numbers[i].key) != 0)
			continue;
		if (parse_u64(s->value, server_numbers[i].min, server_numbers[i].max, &number) < 0)
			return conf_refuse(s, f, "a whole number, at least %u, at most %u", server_numbers[i].min,
					   server_numbers[i].max);
		*(uint32_t *)(void *)((char *)v + server_numbers[i].offset) = (uint32_t)number;
		return 0;
	}
	return conf_refuse_unknown(s, f, known, ARRAY_LEN(known));
}

/* is_host() - a name or an address as it stands in Host; a port may follow */
static bool is_host(const char *s, size_t len)
{
	return len > 0 && strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]") >= len;
}

static bool is_origin(const char *s, size_t len)
{
	size_t skip = strncmp(s, "https://", 8) == 0 ? 8 : strncmp(s, "http://", 7) == 0 ? 7 : len;

	return skip < len && is_host(s + skip, len - skip);
}

static int apply_http(struct conf_http *h, const struct conf_setting *s, struct conf_fault *f)
{
	static const char *const known[] = { "socket",	 "listen",	  "behind_tls_proxy",
					     "patience", "allowed_hosts", "allowed_origins" };

	if (strcmp(s->key, "socket") == 0)
		return s->value[0] == '/' ? conf_put_text(&h->socket, s) : conf_refuse(s, f, "an absolute path");
	if (strcmp(s->key, "listen") == 0) {
		const char *colon = strrchr(s->value, ':');

		if (!colon || !is_host(s->value, strlen(s->value)))
			return conf_refuse(s, f, "HOST:PORT, as in 127.0.0.1:7411");
		return conf_put_text(&h->listen, s);
	}
	if (strcmp(s->key, "behind_tls_proxy") == 0)
		return conf_put_bool(&h->is_behind_tls_proxy, s, f);
	if (strcmp(s->key, "patience") == 0)
		return put_time(&h->patience_ns, s, f);
	if (strcmp(s->key, "allowed_hosts") == 0)
		return put_list(&h->allowed_hosts, SEPARATORS, is_host, "names as they stand in Host", s, f);
	if (strcmp(s->key, "allowed_origins") == 0)
		return put_list(&h->allowed_origins, SEPARATORS, is_origin, "origins, as in https://run.example.org", s, f);
	return conf_refuse_unknown(s, f, known, ARRAY_LEN(known));
}

int conf_apply(struct conf *c, const struct conf_setting *s, struct conf_fault *f)
{
	if (!conf_section_ok(s->section, f))
		return -EINVAL;
	if (strcmp(s->section, "limits") == 0)
		return apply_limits(c, s, f);
	if (strcmp(s->section, "screen") == 0)
		return apply_screen(c, s, f);
	if (strcmp(s->section, "protect") == 0)
		return apply_protect(c, s, f);
	if (strcmp(s->section, "server") == 0)
		return apply_server(&c->server, s, f);
	if (strcmp(s->section, "http") == 0)
		return apply_http(&c->http, s, f);
	if (strcmp(s->section, "history") == 0)
		return conf_history_apply(&c->history, s, f);
	return apply_environment(c, s, f);
}
