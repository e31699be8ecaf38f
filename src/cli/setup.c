/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/setup.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"

#define SYSTEM_FILE "/etc/cloche/cloche.ini"
#define FILE_MAX    ((size_t)1 << 20)

/* One file over what is there; @is_needed: its absence is an error. */
static int load_file(struct conf *c, const char *path, bool is_trusted, bool is_needed, struct refusal *no)
{
	auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	auto_free char *text = NULL;
	struct err e = { .kind = ERR_NONE };
	size_t len = 0;
	int r;

	if (fd < 0 && !is_needed && (errno == ENOENT || errno == ENOTDIR))
		return 0;
	if (fd < 0)
		return refuse_option_file(no, "configuration", path, errno);
	r = fd_read_all(fd, FILE_MAX, &text, &len);
	if (r < 0)
		return refuse_option_file(no, "configuration", path, -r);
	r = conf_parse(c, text, len, path, is_trusted, &e);
	return r < 0 ? refuse_err(no, r, "configuration", &e) : 0;
}

static int load_user_file(struct conf *c, struct refusal *no)
{
	const char *given = getenv("CLOCHE_CONFIG");
	const char *base = getenv("XDG_CONFIG_HOME");
	const char *home = getenv("HOME");
	char path[4096];
	int n;

	if (given)
		return *given ? load_file(c, given, false, true, no) : 0;
	if (base && *base == '/') /* a relative one is to be ignored, says its specification */
		n = snprintf(path, sizeof(path), "%s/cloche/cloche.ini", base);
	else if (home && *home == '/')
		n = snprintf(path, sizeof(path), "%s/.config/cloche/cloche.ini", home);
	else
		return 0;
	if (n < 0 || (size_t)n >= sizeof(path))
		return 0;
	return load_file(c, path, false, false, no);
}

/* "LIMITS_MEMORY_BYTES" to "limits" and "memory_bytes", "ENVIRONMENT_DATA_PYTHON" to "environment data" and "python" */
static bool split_name(const char *name, size_t len, char *section, char *key, size_t size)
{
	static const char *const sections[] = { "LIMITS_", "SCREEN_", "PROTECT_", "ENVIRONMENT_" };
	char *underscore;

	for (size_t i = 0; i < ARRAY_LEN(sections); i++) {
		size_t head = strlen(sections[i]);

		if (len <= head || len >= size || strncmp(name, sections[i], head) != 0)
			continue;
		(void)snprintf(section, size, "%.*s", (int)head - 1, name);
		(void)snprintf(key, size, "%.*s", (int)(len - head), name + head);
		for (char *p = section; *p; p++)
			*p = (char)tolower((unsigned char)*p);
		for (char *p = key; *p; p++)
			*p = (char)tolower((unsigned char)*p);
		if (i != 3)
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

static int load_variables(struct conf *c, struct refusal *no)
{
	static const char prefix[] = "CLOCHE_";

	for (char **v = environ; v && *v; v++) {
		const char *equals = strchr(*v, '=');
		char section[256];
		char key[256];
		char name[256];
		struct err e = { .kind = ERR_NONE };
		size_t len;
		int r;

		if (!equals || strncmp(*v, prefix, sizeof(prefix) - 1) != 0)
			continue;
		len = (size_t)(equals - *v) - (sizeof(prefix) - 1);
		if (!split_name(*v + sizeof(prefix) - 1, len, section, key, sizeof(key)))
			continue; /* CLOCHE_CONFIG, or somebody else's */
		(void)snprintf(name, sizeof(name), "%.*s", (int)(equals - *v), *v);
		r = conf_set(c, section, key, equals + 1, name, false, &e);
		if (r < 0)
			return refuse_err(no, r, name, &e);
	}
	return 0;
}

/* A list option may be given several times: its values are one list. */
static int load_list(struct conf *c, const struct options *o, enum option_id id, const char *section, const char *key,
		     struct refusal *no)
{
	struct err e = { .kind = ERR_NONE };
	struct buf b;
	int r = 0;

	buf_init(&b, FILE_MAX);
	for (size_t i = 0; i < o->n && r == 0; i++) {
		if (o->items[i].id == id)
			r = buf_printf(&b, "%s%s", b.len ? "," : "", o->items[i].value);
	}
	if (r < 0) {
		r = refuse_memory(no);
	} else if (b.len) {
		r = conf_set(c, section, key, b.data, option_name(id), false, &e);
		if (r < 0)
			r = refuse_err(no, r, option_name(id), &e);
	}
	buf_done(&b);
	return r;
}

static int load_lists(struct conf *c, const struct options *o, struct refusal *no)
{
	int r = load_list(c, o, OPT_REQUIRE, "protect", "require", no);

	if (r == 0)
		r = load_list(c, o, OPT_ALLOW_MISSING, "protect", "allow_missing", no);
	if (r == 0)
		r = load_list(c, o, OPT_SCREEN_REPORT, "screen", "report", no);
	if (r == 0)
		r = load_list(c, o, OPT_SCREEN_REJECT, "screen", "reject", no);
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

/* The same settings in the shape that the supervisor takes. */
static int fill_options(struct setup *s, struct refusal *no)
{
	const struct conf *c = &s->conf;
	size_t total = c->require.n + c->allow_missing.n + c->screen_report.n + c->screen_reject.n + 4;
	const char **next;

	for (size_t i = 0; i < c->n_environments; i++)
		total += c->environments[i].paths.n + c->environments[i].env.n + 2;
	s->lists = calloc(total, sizeof(*s->lists));
	s->environments = calloc(c->n_environments + 1, sizeof(*s->environments));
	if (!s->lists || !s->environments)
		return refuse_memory(no);
	next = s->lists;
	for (size_t i = 0; i < c->n_environments; i++) {
		const struct conf_environment *from = &c->environments[i];

		s->environments[i] = (struct run_environment){ .name = from->name, .python = from->python };
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

static int finish(struct setup *s, struct refusal *no)
{
	struct err e = { .kind = ERR_NONE };
	int r = conf_check(&s->conf, &e);

	if (r < 0)
		return refuse_err(no, r, "configuration", &e);
	return fill_options(s, no);
}

int setup_load(struct setup *ret, const struct options *o, struct refusal *no)
{
	int r;

	*ret = (struct setup){ .lists = NULL };
	if (conf_init(&ret->conf) < 0)
		return refuse_memory(no);
	r = load_file(&ret->conf, SYSTEM_FILE, true, false, no);
	if (r == 0)
		r = load_user_file(&ret->conf, no);
	if (r == 0)
		r = load_variables(&ret->conf, no);
	if (r == 0)
		r = load_lists(&ret->conf, o, no);
	return r < 0 ? r : finish(ret, no);
}

int setup_load_files(struct setup *ret, char **files, struct refusal *no)
{
	int r = 0;

	*ret = (struct setup){ .lists = NULL };
	if (conf_init(&ret->conf) < 0)
		return refuse_memory(no);
	for (; *files && r == 0; files++)
		r = load_file(&ret->conf, *files, true, true, no);
	return r < 0 ? r : finish(ret, no);
}

void setup_done(struct setup *s)
{
	free(s->lists);
	free(s->environments);
	conf_done(&s->conf);
	*s = (struct setup){ .lists = NULL };
}

int setup_settle(const struct job *j, struct refusal *no)
{
	if (j->mode == JOB_MODE_WARM)
		return refuse(no, "mode", "warm", "auto or cold: warm needs a server, and there is no server");
	return 0;
}

int setup_parse(const struct setup *s, const char *json, size_t len, struct job *ret, struct refusal *no)
{
	struct job j;
	int r;

	*no = (struct refusal){ .status = CLI_USAGE };
	r = job_parse(json, len, &s->conf.rules, &j, &no->why);
	if (r < 0)
		return r == -ENOMEM ? refuse_memory(no) : r;
	r = setup_settle(&j, no);
	if (r < 0)
		job_done(&j);
	else
		*ret = j;
	return r;
}
