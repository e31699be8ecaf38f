/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "cli/say.h"

/*
 * The options of every command, in one table: getopt_long, --help and the order in which they are applied come from it.
 * The man page and the completion are compared with --help by a test.
 */

enum option_command {
	ON_RUN = 1 << 0,
	ON_TRIGGER = 1 << 1,
	ON_BATCH = 1 << 2,
	ON_DOCTOR = 1 << 3,
	ON_CONFIG = 1 << 4,
	ON_SERVE = 1 << 5,
	ON_ENV = 1 << 6,
	ON_BENCH = 1 << 7,
	ON_MCP = 1 << 8,
	ON_TOKEN = 1 << 9,
	ON_HISTORY = 1 << 10,
};

enum option_id {
	OPT_TIMEOUT = 0x100, /* beyond every short option */
	OPT_MEMORY,
	OPT_CPUS,
	OPT_CPU_TIME,
	OPT_PIDS_LIMIT,
	OPT_DISK,
	OPT_OPEN_FILES,
	OPT_OUTPUT_LIMIT,
	OPT_ENV,
	OPT_FILE,
	OPT_STDIN,
	OPT_ARTIFACT,
	OPT_OUTPUT,
	OPT_FORCE,
	OPT_NETWORK,
	OPT_ENVIRONMENT,
	OPT_MODE,
	OPT_BUFFERED,
	OPT_REQUEST,
	OPT_JOBS,
	OPT_LOCAL,
	OPT_SERVER,
	OPT_SOCKET,
	OPT_JSON,
	OPT_REQUIRE,
	OPT_ALLOW_MISSING,
	OPT_SCREEN_REPORT,
	OPT_SCREEN_REJECT,
	OPT_STATUS,
	OPT_SINCE,
	OPT_NAME,
	OPT_TENANT,
	OPT_LIMIT,
	OPT_FOLLOW,
	OPT_SCRIPT,
	OPT_STDOUT,
	OPT_STDERR,
	OPT_DB,
	OPT_MAX_CONCURRENT,
	OPT_RATE,
	OPT_ENVIRONMENTS,
	OPT_EXPIRES,
	OPT_LISTEN,
	OPT_HTTP_SOCKET,
	OPT_BEHIND_TLS_PROXY,
	OPT_PROGRESS,
	OPT_QUIET,
	OPT_VERBOSE,
	OPT_HELP,
};

struct option_value {
	enum option_id id;
	const char *value; /* borrowed from argv; NULL: the option takes none */
};

struct options {
	struct option_value *items; /* owned; in the order given */
	size_t n;
	char **operands; /* borrowed from argv, NULL-terminated */
	int n_operands;
};

/*
 * options_parse() - argv of one command (reordered but for `run`, whose options end at SCRIPT); "--" ends options
 *
 * Return: 0, -EINVAL or -ENOMEM with @no filled; @ret is then still valid for options_have() (was --json given?).
 * options_done() in every case.
 */
int options_parse(int argc, char **argv, enum option_command command, struct options *ret,
		  struct refusal *no) MUST_CHECK;
void options_done(struct options *o);

bool options_have(const struct options *o, enum option_id id);

/* options_last() - the value given last; NULL: not given */
const char *options_last(const struct options *o, enum option_id id);

/* option_name() - "--timeout" */
const char *option_name(enum option_id id);

/* options_help() - one line per option of @command to standard output */
void options_help(enum option_command command);
