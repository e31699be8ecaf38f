/* SPDX-License-Identifier: Apache-2.0 */
/* cloche doctor: what protects a run on this host, what is missing, and the remedy; found by doing. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/say.h"
#include "cli/setup.h"

static const char usage[] =
	"Usage: cloche doctor [OPTIONS]\n"
	"\n"
	"Builds a sandbox on this host and tells, line by line, which protections it has.\n"
	"\n";

static const char examples[] =
	"\n"
	"Exit status: 0 every protection holds in full; 3 scripts run, some protection holds by weaker means or is\n"
	"missing and allowed to be; 4 no script can run here; 2 the command line or the configuration is wrong.\n"
	"\n"
	"Examples:\n"
	"  cloche doctor\n"
	"  cloche doctor --json | jq '.protections[] | select(.state != \"full\")'\n";

static const struct state_look {
	const char *json;
	const char *word;
	const char *colour;
} looks[] = {
	[WALL_FULL] = { "full", "ok", "\033[32m" },
	[WALL_WEAK] = { "weak", "weak", "\033[33m" },
	[WALL_MISSING] = { "missing", "MISSING", "\033[1;31m" },
};

struct report {
	struct wall_report walls[WALL_REPORTS_MAX];
	size_t n;
	bool can_run;
	struct err e; /* when it can't */
};

static const struct state_look *look(const struct wall_report *w)
{
	return &looks[w->state >= 0 && w->state <= WALL_MISSING ? w->state : WALL_MISSING];
}

static int exit_status(const struct report *r)
{
	if (!r->can_run)
		return CLI_NONE;
	for (size_t i = 0; i < r->n; i++) {
		if (r->walls[i].state != WALL_FULL)
			return CLI_WEAKER;
	}
	return CLI_OK;
}

static bool wants_colour(void)
{
	const char *no_colour = getenv("NO_COLOR");
	const char *term = getenv("TERM");

	return isatty(STDOUT_FILENO) && !(no_colour && *no_colour) && term && strcmp(term, "dumb") != 0;
}

static void print_text(const struct report *r)
{
	bool is_coloured = wants_colour();
	char why[SHOWN_SIZE];

	for (size_t i = 0; i < r->n; i++) {
		const struct wall_report *w = &r->walls[i];
		const struct state_look *l = look(w);
		char detail[SHOWN_SIZE];
		char remedy[SHOWN_SIZE];

		(void)printf("%s%-8s%s %-13s %s: %s%s%s\n", is_coloured ? l->colour : "", l->word,
			     is_coloured ? "\033[0m" : "", w->name, w->what, shown(detail, w->detail),
			     w->remedy[0] ? "; remedy: " : "", shown(remedy, w->remedy));
	}
	switch (exit_status(r)) {
	case CLI_OK:
		(void)puts("Scripts run here, and every protection holds in full.");
		break;
	case CLI_WEAKER:
		(void)puts("Scripts run here; what is not marked ok holds by weaker means or not at all.");
		break;
	default:
		(void)printf("No script can run here: %s\n", shown(why, r->e.msg));
	}
}

static json_t *text(const char *s)
{
	json_t *t = json_string(s);

	return t ? t : json_string(""); /* not UTF-8 */
}

static int print_json(const struct report *r)
{
	int status = exit_status(r);
	const char *verdict = status == CLI_OK ? "full" : status == CLI_WEAKER ? "weaker" : "none";
	json_t *list = json_array();
	json_t *root;
	auto_free char *out = NULL;

	for (size_t i = 0; i < r->n; i++) {
		const struct wall_report *w = &r->walls[i];
		json_t *o = json_pack("{s:o, s:s, s:o, s:o, s:o}", "name", text(w->name), "state", look(w)->json,
				      "what", text(w->what), "detail", text(w->detail), "remedy", text(w->remedy));

		if (json_array_append_new(list, o) < 0)
			break;
	}
	root = json_pack("{s:s, s:o, s:o}", "verdict", verdict, "message", text(r->can_run ? "" : r->e.msg),
			 "protections", list);
	out = json_dumps(root, JSON_COMPACT);
	json_decref(root);
	if (!out)
		return -ENOMEM;
	(void)puts(out);
	return 0;
}

static void examine(const struct settings *s, struct report *r)
{
	struct supervisor *supervisor = NULL;

	if (supervisor_start(&s->options, &supervisor, &r->e) < 0)
		return;
	r->can_run = supervisor_walls(supervisor, r->walls, ARRAY_LEN(r->walls), &r->n, &r->e) == 0;
	supervisor_stop(supervisor);
}

static int execute(const struct settings *s, bool is_json)
{
	struct report *r = calloc(1, sizeof(*r));
	int status = CLI_COULD_NOT;

	if (!r) {
		say("out of memory");
		return status;
	}
	examine(s, r);
	status = exit_status(r);
	if (!r->can_run && r->e.kind == ERR_INVALID) { /* what was asked for, not what the host has */
		struct refusal no;

		(void)refuse_err(&no, 0, "protect", &r->e);
		status = refusal_tell(&no, is_json);
	} else if (!is_json) {
		print_text(r);
	} else if (print_json(r) < 0) {
		say("out of memory");
		status = CLI_COULD_NOT;
	}
	free(r);
	return status;
}

static int prepare(struct options *o, struct settings *s, struct refusal *no, int argc, char **argv)
{
	int r = options_parse(argc, argv, ON_DOCTOR, o, no);

	if (r < 0)
		return r;
	if (options_have(o, OPT_HELP)) {
		(void)fputs(usage, stdout);
		options_help(ON_DOCTOR);
		(void)fputs(examples, stdout);
		return 1;
	}
	if (o->n_operands)
		return refuse(no, "argument", o->operands[0], "none");
	return setup_load(s, o, no);
}

int cmd_doctor(int argc, char **argv)
{
	struct options o = { .items = NULL };
	struct settings s = { .lists = NULL };
	struct refusal no = { .status = CLI_OK };
	int r = prepare(&o, &s, &no, argc, argv);
	bool is_json = options_have(&o, OPT_JSON);
	int status = r < 0 ? refusal_tell(&no, is_json) : r > 0 ? CLI_OK : execute(&s, is_json);

	settings_done(&s);
	options_done(&o);
	return status;
}
