/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cloche - run an unreviewed Python script in a fresh sandbox and say honestly what happened.
 *
 * The command line.  It parses, shows and stores; sandboxes are the work of a supervisor process (run/run.h).
 *
 *	main.c         which command
 *	cmd_run.c      run      one script, its output is ours
 *	cmd_trigger.c  trigger  one request object in, one result object out
 *	cmd_batch.c    batch    many of them, as they finish
 *	cmd_doctor.c   doctor   what protects a run here
 *	cmd_config.c   config   is the configuration valid
 *	cmd_env.c      env      which Pythons scripts may use
 *	cmd_bench.c    bench    what a run costs here
 *	bench.c        ... measured
 *	cmd_serve.c    serve    becomes the server, a program of its own
 *	cmd_mcp.c      mcp      becomes cloche-door, a program of its own
 *	cmd_history.c  history  what ran at a server
 *	cmd_token.c    token    who may ask a server over the network
 *	become.c       a command that becomes a program of its own
 *	options.c      the one table of options: getopt, --help
 *	setup.c        the configuration (run/settings.h) with the options laid over it
 *	build.c        options and operands of `run` to a valid struct job
 *	engine.c       where runs are made: a supervisor of our own, or a server
 *	request.c      a job as JSON for it
 *	answer.c       its answer back to a result
 *	lines.c        a reader of lines: requests of batch
 *	drive.c        one run in a poll loop: input, output, signals, a reader that goes away
 *	progress.c     the line about a run under way
 *	signals.c      signals as something to poll, and writes that do not miss them
 *	deliver.c      artifacts into a folder of the user's
 *	say.c          words on standard error, the error object, exit statuses
 *
 * A run's way: options_parse() - setup_load() - engine_find() - build_job() - engine_start() - drive() - report.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/macro.h"
#include "cli/cli.h"
#include "cli/say.h"
#include "cli/signals.h"

static const struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *synopsis;
	const char *help;
} commands[] = {
	{ "run", cmd_run, "run [OPTIONS] SCRIPT|- [ARGS...]",
	  "run a script: its output is our output, its exit status ours" },
	{ "trigger", cmd_trigger, "trigger [--request FILE|-]", "one request object in, one result object out" },
	{ "batch", cmd_batch, "batch [-j N] FILE|-", "one request a line in, one result a line out as they finish" },
	{ "doctor", cmd_doctor, "doctor [--json]", "what protects a run on this host, what is missing, the remedy" },
	{ "serve", cmd_serve, "serve [--listen HOST:PORT]", "the server that run, trigger and batch find by themselves" },
	{ "mcp", cmd_mcp, "mcp [--local|--server SOCKET]", "the tool run_python for clients of the Model Context Protocol" },
	{ "history", cmd_history, "history [show ID]", "what ran at a server" },
	{ "token", cmd_token, "token add NAME|list|remove NAME", "who may ask a server over the network" },
	{ "env", cmd_env, "env [--json]", "which Pythons scripts may use" },
	{ "bench", cmd_bench, "bench [--json]", "what a run costs here, beside plain python3" },
	{ "config", cmd_config, "config check [FILE...]", "is the configuration valid, and what does it come to" },
};

static void print_usage(FILE *to)
{
	(void)fputs("Usage: cloche COMMAND [OPTIONS] ...\n"
		    "\n"
		    "Runs an unreviewed Python script in a fresh sandbox that the kernel enforces.\n"
		    "\n",
		    to);
	for (size_t i = 0; i < ARRAY_LEN(commands); i++)
		(void)fprintf(to, "  cloche %-33s %s\n", commands[i].synopsis, commands[i].help);
	(void)fputs("\n"
		    "  cloche COMMAND --help    the options of a command, with examples\n"
		    "  cloche --help            this text\n"
		    "  cloche --version         the version\n"
		    "\n"
		    "Examples:\n"
		    "  cloche run hello.py\n"
		    "  echo 'print(6 * 7)' | cloche run -t 10 -\n"
		    "  cloche trigger --request examples/hello_world.json\n",
		    to);
}

static int dispatch(int argc, char **argv)
{
	struct refusal no;
	char known[160] = "";

	if (argc < 2) {
		print_usage(stderr);
		return CLI_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
		print_usage(stdout);
		return CLI_OK;
	}
	if (strcmp(argv[1], "--version") == 0) {
		(void)puts("cloche " CLOCHE_VERSION);
		return CLI_OK;
	}
	for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
		if (strcmp(argv[1], commands[i].name) == 0)
			return commands[i].run(argc - 1, argv + 1);
	}
	for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
		(void)strncat(known, commands[i].name, sizeof(known) - strlen(known) - 1);
		(void)strncat(known, ", ", sizeof(known) - strlen(known) - 1);
	}
	(void)refuse(&no, argv[1][0] == '-' ? "option" : "command", argv[1], "%s--help, --version", known);
	return refusal_tell(&no, false);
}

int main(int argc, char **argv)
{
	int status;

	if (signals_guard_standard() < 0)
		return CLI_COULD_NOT;
	status = dispatch(argc, argv);
	if ((fflush(stdout) != 0 || ferror(stdout)) && status == CLI_OK) {
		say("standard output can't be written");
		status = CLI_COULD_NOT;
	}
	return status;
}
