/* SPDX-License-Identifier: Apache-2.0 */
/* cloche token: who may ask a server over the network.  The door that they ask keeps the file. */
#include <stdio.h>
#include <string.h>

#include "base/macro.h"
#include "cli/become.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/say.h"

static const char usage[] =
	"Usage: cloche token add NAME [OPTIONS]\n"
	"       cloche token list [--json]\n"
	"       cloche token remove NAME\n"
	"\n"
	"Says who may ask a server over the network (cloche serve --listen).  A new token is printed once; "
	"what is kept\n"
	"is its hash.  A server sees a change at once.\n"
	"\n";

static const char examples[] = "\n"
			       "Examples:\n"
			       "  cloche token add grader --max-concurrent 8 --rate 100/s\n"
			       "  cloche token add notebook --environments science --expires 30d\n"
			       "  cloche token remove notebook\n";

static const enum option_id of_add[] = { OPT_MAX_CONCURRENT, OPT_RATE, OPT_ENVIRONMENTS, OPT_EXPIRES };

static int check(const struct options *o, struct refusal *no)
{
	const char *what = o->n_operands ? o->operands[0] : NULL;
	bool is_add = what && strcmp(what, "add") == 0;
	bool is_list = what && strcmp(what, "list") == 0;

	if (!is_add && !is_list && !(what && strcmp(what, "remove") == 0))
		return refuse(no, "argument", what, "add NAME, list, or remove NAME");
	if (!is_list && o->n_operands < 2)
		return refuse(no, "NAME", NULL, "the token's name");
	if (o->n_operands > (is_list ? 1 : 2))
		return refuse(no, "argument", o->operands[is_list ? 1 : 2], "none");
	for (size_t i = 0; !is_add && i < ARRAY_LEN(of_add); i++) {
		if (options_have(o, of_add[i]))
			return refuse(no, option_name(of_add[i]), what, "only with add");
	}
	if (!is_list && options_have(o, OPT_JSON))
		return refuse(no, "--json", what, "only with list");
	return 0;
}

static int execute(const struct options *o)
{
	const char *argv[20] = { "token" };
	size_t n = 1;

	for (size_t i = 0; i < ARRAY_LEN(of_add); i++) {
		if (!options_have(o, of_add[i]))
			continue;
		argv[n++] = option_name(of_add[i]);
		argv[n++] = options_last(o, of_add[i]);
	}
	if (options_have(o, OPT_JSON))
		argv[n++] = "--json";
	argv[n++] = "--";
	for (int i = 0; i < o->n_operands; i++)
		argv[n++] = o->operands[i];
	return become_program("cloche-door", argv);
}

int cmd_token(int argc, char **argv)
{
	static const struct become b = {
		.command = ON_TOKEN, .usage = usage, .examples = examples, .check = check, .execute = execute
	};

	return become_command(&b, argc, argv);
}
