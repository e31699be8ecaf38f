/* SPDX-License-Identifier: Apache-2.0 */
/* cloche history: what ran at a server.  A program of its own reads it: this one links no database. */
#include <stdio.h>
#include <string.h>

#include "base/macro.h"
#include "cli/become.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/say.h"

static const char usage[] =
	"Usage: cloche history [OPTIONS]\n"
	"       cloche history show ID [--json|--script|--stdout|--stderr]\n"
	"\n"
	"Lists the runs that a server (cloche serve) has written down, newest first; or shows one: ID is "
	"its run_id, or\n"
	"the beginning of it.\n"
	"\n";

static const char examples[] = "\n"
			       "Examples:\n"
			       "  cloche history --status timeout --since 2h\n"
			       "  cloche history --name 'report*' --limit 5 --json\n"
			       "  cloche history --follow\n"
			       "  cloche history show 3fa9c1 --stderr\n";

/* What of it goes with a list, and what with one run. */
static const enum option_id of_list[] = { OPT_STATUS, OPT_SINCE, OPT_NAME, OPT_TENANT, OPT_LIMIT, OPT_FOLLOW };
static const enum option_id of_show[] = { OPT_SCRIPT, OPT_STDOUT, OPT_STDERR };

static int check(const struct options *o, struct refusal *no)
{
	bool is_show = o->n_operands > 0 && strcmp(o->operands[0], "show") == 0;

	if (o->n_operands && !is_show)
		return refuse(no, "argument", o->operands[0], "nothing, or show ID");
	if (is_show && o->n_operands < 2)
		return refuse(no, "ID", NULL, "a run_id, or its beginning");
	if (o->n_operands > 2)
		return refuse(no, "argument", o->operands[2], "one ID");
	for (size_t i = 0; is_show && i < ARRAY_LEN(of_list); i++) {
		if (options_have(o, of_list[i]))
			return refuse(no, option_name(of_list[i]), "show", "only for the list");
	}
	for (size_t i = 0; !is_show && i < ARRAY_LEN(of_show); i++) {
		if (options_have(o, of_show[i]))
			return refuse(no, option_name(of_show[i]), "the list", "only with show ID");
	}
	for (size_t i = 0; is_show && i < ARRAY_LEN(of_show); i++) {
		if (options_have(o, OPT_JSON) && options_have(o, of_show[i]))
			return refuse(no, option_name(of_show[i]), "--json", "one of the two");
	}
	return 0;
}

static int execute(const struct options *o)
{
	const char *argv[40] = { "history" };
	size_t n = 1;

	/* the last one of each is what counts; values are looked at where they are used */
	for (size_t i = 0; i < o->n; i++) {
		const char *value = options_last(o, o->items[i].id);
		bool is_told = false;

		for (size_t k = 0; k < i; k++)
			is_told |= o->items[k].id == o->items[i].id;
		if (is_told)
			continue;
		argv[n++] = option_name(o->items[i].id);
		if (value)
			argv[n++] = value;
	}
	argv[n++] = "--";
	for (int i = 0; i < o->n_operands; i++)
		argv[n++] = o->operands[i];
	return become_program("cloche-door", argv);
}

int cmd_history(int argc, char **argv)
{
	static const struct become b = {
		.command = ON_HISTORY, .usage = usage, .examples = examples, .check = check, .execute = execute
	};

	return become_command(&b, argc, argv);
}
