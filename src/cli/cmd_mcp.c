/* SPDX-License-Identifier: Apache-2.0 */
/* cloche mcp: becomes the server of one client of the Model Context Protocol. */
#include <stdio.h>

#include "cli/become.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/say.h"

static const char usage[] = "Usage: cloche mcp [OPTIONS]\n"
			    "\n"
			    "Offers the tool run_python to the program that started it, in the Model Context Protocol: "
			    "messages on standard\n"
			    "input and output, one a line.  It ends when its input does.  See cloche-mcp(7).\n"
			    "\n";

static const char examples[] =
	"\n"
	"A server (cloche serve) is used when one is found, as `cloche trigger` has it; else runs are made here, warm\n"
	"after the first moment.\n"
	"\n"
	"Examples:\n"
	"  cloche mcp\n"
	"  cloche mcp --local\n"
	"  {\"mcpServers\": {\"cloche\": {\"command\": \"cloche\", \"args\": [\"mcp\"]}}}    in a client's settings\n";

static int check(const struct options *o, struct refusal *no)
{
	if (o->n_operands)
		return refuse(no, "argument", o->operands[0], "none");
	if (options_have(o, OPT_SERVER) && options_have(o, OPT_LOCAL))
		return refuse(no, "--server", options_last(o, OPT_SERVER), "not together with --local");
	return 0;
}

static int execute(const struct options *o)
{
	const char *argv[4] = { "mcp" };

	if (options_have(o, OPT_LOCAL)) {
		argv[1] = "--local";
	} else if (options_have(o, OPT_SERVER)) {
		argv[1] = "--server";
		argv[2] = options_last(o, OPT_SERVER);
	}
	return become_program("cloche-door", argv);
}

int cmd_mcp(int argc, char **argv)
{
	static const struct become b = {
		.command = ON_MCP, .usage = usage, .examples = examples, .check = check, .execute = execute
	};

	return become_command(&b, argc, argv);
}
