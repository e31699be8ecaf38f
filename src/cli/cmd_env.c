/* SPDX-License-Identifier: Apache-2.0 */
/* cloche env: which Pythons scripts may use, and what a server keeps ready of them. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "cli/cli.h"
#include "cli/engine.h"
#include "cli/options.h"
#include "cli/say.h"
#include "cli/setup.h"
#include "run/environments.h"
#include "run/remote.h"

static const char usage[] = "Usage: cloche env [--json]\n"
			    "\n"
			    "Lists the configured environments: the Pythons that scripts may use.  When a server "
			    "answers, its list is shown,\n"
			    "with what it keeps ready.\n"
			    "\n";

static const char examples[] = "\n"
			       "Examples:\n"
			       "  cloche env\n"
			       "  cloche env --json | jq '.environments[].name'\n"
			       "  cloche run --environment science plot.py\n";

struct command {
	struct options options;
	struct settings settings;
	struct engine engine;
	struct refusal no;
};

/* {"environments": [...], "server": {...} or null}: the server's words, or our own.  Return: 0 or -errno with @e set */
static int get_list(struct command *c, char **ret, struct err *e)
{
	auto_free char *list = NULL;
	auto_fd int fd = -1;

	if (c->engine.is_remote) {
		fd = c->engine.idle[--c->engine.n_idle];
		return remote_environments(fd, ret, e);
	}
	list = environments_write(&c->settings.conf, NULL, 0);
	if (!list || asprintf(ret, "{\"environments\": %s, \"server\": null}", list) < 0)
		return err_set(e, ERR_HOST, ENOMEM, "list the environments");
	return 0;
}

static const char *text_of(const json_t *o, const char *name, const char *otherwise)
{
	const char *s = json_string_value(json_object_get(o, name));

	return s && *s ? s : otherwise;
}

static void print_preload(const json_t *list)
{
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *s = json_string_value(json_array_get(list, i));
		char text[SHOWN_SIZE];

		(void)printf("%s%s", i ? " " : "", shown(text, s ? s : "?"));
	}
	(void)fputs(json_array_size(list) ? "\n" : "-\n", stdout);
}

/* "-" for what is not known, or not there */
static void print_number(const json_t *v, double scale, const char *unit)
{
	char text[32] = "-";

	if (json_is_number(v))
		(void)snprintf(text, sizeof(text), "%.0f%s", json_number_value(v) / scale, unit);
	(void)printf("%-8s ", text);
}

static void print(const json_t *root)
{
	const json_t *list = json_object_get(root, "environments");
	const json_t *server = json_object_get(root, "server");

	(void)printf("%-16s %-28s %-8s %-5s %-8s %-8s %-8s %s\n", "NAME", "PYTHON", "VERSION", "MODE", "AGE", "RUNS",
		     "MEMORY", "PRELOAD");
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *v = json_array_get(list, i);
		char text[4][SHOWN_SIZE];

		(void)printf("%-16s %-28s %-8s %-5s ", shown(text[0], text_of(v, "name", "-")),
			     shown(text[1], text_of(v, "python", "-")), shown(text[2], text_of(v, "version", "-")),
			     shown(text[3], text_of(v, "mode", "-")));
		print_number(json_object_get(v, "zygote_age"), 1, "s");
		print_number(json_object_get(v, "zygote_runs"), 1, "");
		print_number(json_object_get(v, "zygote_memory_bytes"), 1 << 20, "m");
		print_preload(json_object_get(v, "preload"));
	}
	if (json_is_object(server))
		(void)printf("\nserver: process %lld, %lld running, %lld waiting\n",
			     (long long)json_integer_value(json_object_get(server, "pid")),
			     (long long)json_integer_value(json_object_get(server, "running")),
			     (long long)json_integer_value(json_object_get(server, "waiting")));
}

static int execute(struct command *c, bool is_json)
{
	struct err e = { .kind = ERR_NONE };
	auto_free char *text = NULL;
	json_t *root;

	if (get_list(c, &text, &e) < 0) {
		(void)refuse_err(&c->no, 0, "server", &e);
		return refusal_tell(&c->no, is_json);
	}
	if (is_json) {
		(void)puts(text);
		return CLI_OK;
	}
	root = json_loads(text, 0, NULL);
	if (!root) {
		say("the list of environments is no JSON");
		return CLI_COULD_NOT;
	}
	print(root);
	json_decref(root);
	return CLI_OK;
}

static int prepare(struct command *c, int argc, char **argv)
{
	int r = options_parse(argc, argv, ON_ENV, &c->options, &c->no);

	if (r < 0)
		return r;
	if (options_have(&c->options, OPT_HELP)) {
		(void)fputs(usage, stdout);
		options_help(ON_ENV);
		(void)fputs(examples, stdout);
		return 1;
	}
	if (c->options.n_operands)
		return refuse(&c->no, "argument", c->options.operands[0], "none");
	r = setup_load(&c->settings, &c->options, &c->no);
	return r < 0 ? r : engine_find(&c->engine, &c->options, &c->settings, &c->no);
}

int cmd_env(int argc, char **argv)
{
	struct command c = { .no = { .status = CLI_OK } };
	int r = prepare(&c, argc, argv);
	bool is_json = options_have(&c.options, OPT_JSON);
	int status = r < 0 ? refusal_tell(&c.no, is_json) : r > 0 ? CLI_OK : execute(&c, is_json);

	engine_done(&c.engine);
	settings_done(&c.settings);
	options_done(&c.options);
	return status;
}
