/* SPDX-License-Identifier: Apache-2.0 */
/* cloche mcp: becomes the server of one client of the Model Context Protocol. */
#include <stdio.h>

#include "cli/cli.h"
#include "cli/door.h"
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

static int execute(const struct options *o)
{
	const char *argv[4] = { "mcp" };

	if (options_have(o, OPT_LOCAL)) {
		argv[1] = "--local";
	} else if (options_have(o, OPT_SERVER)) {
		argv[1] = "--server";
		argv[2] = options_last(o, OPT_SERVER);
	}
	return door_become(argv);
}

int cmd_mcp(int argc, char **argv)
{
	struct options o = { .items = NULL };
	struct refusal no = { .status = CLI_OK };
	int r = options_parse(argc, argv, ON_MCP, &o, &no);
	int status = CLI_OK;

	if (r == 0 && options_have(&o, OPT_HELP)) {
		(void)fputs(usage, stdout);
		options_help(ON_MCP);
		(void)fputs(examples, stdout);
	} else {
		if (r == 0 && o.n_operands)
			r = refuse(&no, "argument", o.operands[0], "none");
		if (r == 0 && options_have(&o, OPT_SERVER) && options_have(&o, OPT_LOCAL))
			r = refuse(&no, "--server", options_last(&o, OPT_SERVER), "not together with --local");
		status = r < 0 ? refusal_tell(&no, false) : execute(&o);
	}
	options_done(&o);
	return status;
}
