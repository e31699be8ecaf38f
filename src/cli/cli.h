/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What every command of the command line shares: exit statuses and entry points. */

/* Exit statuses of our own; a script's are its own (result_exit_status()). */
enum cli_exit {
	CLI_OK = 0,
	CLI_USAGE = 2,       /* the request or the command line breaks a rule */
	CLI_WEAKER = 3,      /* doctor: scripts run, some protection holds by weaker means */
	CLI_NONE = 4,        /* doctor: no script can run on this host */
	CLI_COULD_NOT = 125, /* cloche or the host failed */
	CLI_NO_ACCESS = 126, /* SCRIPT or the interpreter can't be read or executed */
	CLI_NOT_FOUND = 127, /* SCRIPT, the environment or its interpreter is not there */
	CLI_CANCELLED = 130, /* a signal, or nobody reads our output any more */
};

/* One command each; argv[0] is the command's name.  Return: the exit status */
int cmd_run(int argc, char **argv);
int cmd_trigger(int argc, char **argv);
int cmd_batch(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_config(int argc, char **argv);
int cmd_env(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_mcp(int argc, char **argv);
int cmd_history(int argc, char **argv);
int cmd_token(int argc, char **argv);
