/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ON_EVERY (ON_RUN | ON_TRIGGER | ON_BATCH | ON_DOCTOR | ON_CONFIG | ON_SERVE | ON_ENV | ON_BENCH | ON_MCP | ON_TOKEN | ON_HISTORY)
#define ON_JOBS  (ON_RUN | ON_TRIGGER | ON_BATCH)

struct option_spec {
	enum option_id id;
	char letter; /* 0: none */
	const char *name; /* with its dashes */
	const char *arg; /* NULL: takes none */
	unsigned commands;
	const char *help;
};

static const struct option_spec specs[] = {
	{ OPT_TIMEOUT, 't', "--timeout", "TIME", ON_RUN, "wall clock: 10, 1.5, 250ms, 2m (default 60)" },
	{ OPT_MEMORY, 'm', "--memory", "SIZE", ON_RUN, "of the whole sandbox: 512m, 2g (default 512m)" },
	{ OPT_CPUS, 0, "--cpus", "NUMBER", ON_RUN, "how much of the processors: 0.5, 2 (default 1)" },
	{ OPT_CPU_TIME, 0, "--cpu-time", "TIME", ON_RUN, "CPU seconds of all its processes (default: no limit)" },
	{ OPT_PIDS_LIMIT, 0, "--pids-limit", "N", ON_RUN, "processes and threads (default 64)" },
	{ OPT_DISK, 0, "--disk", "SIZE", ON_RUN, "what fits into its /tmp (default 64m)" },
	{ OPT_OPEN_FILES, 0, "--open-files", "N", ON_RUN, "open descriptors per process (default 256)" },
	{ OPT_OUTPUT_LIMIT, 0, "--output-limit", "SIZE", ON_RUN, "end the run when it wrote more (default 64m)" },
	{ OPT_ENV, 'e', "--env", "K=V", ON_RUN, "set a variable; nothing of our own environment is passed" },
	{ OPT_FILE, 0, "--file", "SRC[:NAME]", ON_RUN, "put a file beside the script" },
	{ OPT_STDIN, 0, "--stdin", "FILE", ON_RUN, "the script's standard input, instead of ours" },
	{ OPT_ARTIFACT, 0, "--artifact", "GLOB", ON_RUN, "hand back files of its /tmp: 'out/*.png', '**'" },
	{ OPT_OUTPUT, 'o', "--output", "DIR", ON_RUN, "write them into DIR, without overwriting (alone: all files)" },
	{ OPT_FORCE, 0, "--force", NULL, ON_RUN, "let --output overwrite" },
	{ OPT_NETWORK, 0, "--network", "KIND", ON_RUN, "loopback (its own 127.0.0.1, nothing else) or none" },
	{ OPT_ENVIRONMENT, 0, "--environment", "NAME", ON_RUN, "which configured Python (default \"default\")" },
	{ OPT_MODE, 0, "--mode", "MODE", ON_RUN, "auto, warm (with a server) or cold" },
	{ OPT_BUFFERED, 0, "--buffered", NULL, ON_RUN, "let Python buffer its output" },
	{ OPT_REQUEST, 0, "--request", "FILE", ON_TRIGGER, "the request; - is standard input (default)" },
	{ OPT_JOBS, 'j', "--jobs", "N", ON_BATCH, "runs at the same time (default: the number of CPUs)" },
	{ OPT_SOCKET, 0, "--socket", "PATH", ON_SERVE, "listen there, not at the usual place" },
	{ OPT_LISTEN, 0, "--listen", "HOST:PORT", ON_SERVE, "HTTP as well, to who has a token: 127.0.0.1:7411" },
	{ OPT_HTTP_SOCKET, 0, "--http-socket", "PATH", ON_SERVE, "HTTP as well, on a Unix socket" },
	{ OPT_BEHIND_TLS_PROXY, 0, "--behind-tls-proxy", NULL, ON_SERVE, "let --listen be no loopback address" },
	{ OPT_MAX_CONCURRENT, 0, "--max-concurrent", "N", ON_TOKEN, "add: runs at the same time (default: no limit)" },
	{ OPT_RATE, 0, "--rate", "N/s", ON_TOKEN, "add: runs a second: 100/s, 0.5/s, 30/m (default: no limit)" },
	{ OPT_ENVIRONMENTS, 0, "--environments", "LIST", ON_TOKEN, "add: only these: default,science (default: all)" },
	{ OPT_EXPIRES, 0, "--expires", "TIME", ON_TOKEN, "add: good for so long: 30d, 12h (default: until removed)" },
	{ OPT_JSON, 0, "--json", NULL, ON_TOKEN, "list: one JSON object" },
	{ OPT_LOCAL, 0, "--local", NULL, ON_JOBS | ON_ENV | ON_MCP, "do without a server, even if there is one" },
	{ OPT_SERVER, 0, "--server", "SOCKET", ON_JOBS | ON_ENV | ON_MCP, "use this server and its settings, or fail" },
	{ OPT_JSON, 0, "--json", NULL, ON_RUN, "print the result as one JSON object" },
	{ OPT_JSON, 0, "--json", NULL, ON_DOCTOR, "print the report as one JSON object" },
	{ OPT_JSON, 0, "--json", NULL, ON_ENV, "print the list as one JSON object" },
	{ OPT_JSON, 0, "--json", NULL, ON_BENCH, "print every figure as one JSON object" },
	{ OPT_REQUIRE, 0, "--require", "LIST", ON_JOBS | ON_DOCTOR, "protections that must hold in full" },
	{ OPT_ALLOW_MISSING, 0, "--allow-missing", "LIST", ON_JOBS | ON_DOCTOR, "protections that may be missing" },
	{ OPT_SCREEN_REPORT, 0, "--screen-report", "LIST", ON_JOBS, "warn when the script uses ctypes,os.system,..." },
	{ OPT_SCREEN_REJECT, 0, "--screen-reject", "LIST", ON_JOBS, "do not run a script that uses ..." },
	{ OPT_STATUS, 0, "--status", "STATUS", ON_HISTORY, "only these: ok, error, timeout, ..." },
	{ OPT_SINCE, 0, "--since", "WHEN", ON_HISTORY, "2h, 7d (ago), or 2026-01-31T12:34:56Z" },
	{ OPT_NAME, 0, "--name", "GLOB", ON_HISTORY, "only scripts whose name fits: 'report*'" },
	{ OPT_TENANT, 0, "--tenant", "NAME", ON_HISTORY, "only this tenant's: uid-1000, ..." },
	{ OPT_LIMIT, 0, "--limit", "N", ON_HISTORY, "so many, the newest (default 50, with --follow 10)" },
	{ OPT_FOLLOW, 0, "--follow", NULL, ON_HISTORY, "go on with what is written meanwhile" },
	{ OPT_JSON, 0, "--json", NULL, ON_HISTORY, "one JSON object a line" },
	{ OPT_SCRIPT, 0, "--script", NULL, ON_HISTORY, "show ID: the script alone" },
	{ OPT_STDOUT, 0, "--stdout", NULL, ON_HISTORY, "show ID: what it wrote to standard output alone" },
	{ OPT_STDERR, 0, "--stderr", NULL, ON_HISTORY, "show ID: what it wrote to standard error alone" },
	{ OPT_DB, 0, "--db", "PATH", ON_HISTORY, "the database, not the configured one" },
	{ OPT_PROGRESS, 0, "--progress", NULL, ON_RUN, "on a terminal, a line about time and output meanwhile" },
	{ OPT_QUIET, 'q', "--quiet", NULL, ON_RUN, "no words of ours about how it ended" },
	{ OPT_QUIET, 'q', "--quiet", NULL, ON_BATCH, "no line about progress" },
	{ OPT_VERBOSE, 'v', "--verbose", NULL, ON_RUN, "a line about time and memory at the end" },
	{ OPT_HELP, 'h', "--help", NULL, ON_EVERY, "this text" },
};

/*
 * What getopt_long takes: ":" (tell a missing argument apart) and the long names.  For `run`, "+" before it: what
 * follows SCRIPT is the script's; the other commands take options in any place.
 */
static void build_getopt(unsigned command, char *letters, struct option *longs)
{
	if (command == ON_RUN)
		*letters++ = '+';
	*letters++ = ':';
	for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
		const struct option_spec *s = &specs[i];

		if (!(s->commands & command))
			continue;
		*longs++ = (struct option){ s->name + 2, s->arg ? required_argument : no_argument, NULL, (int)s->id };
		if (!s->letter)
			continue;
		*letters++ = s->letter;
		if (s->arg)
			*letters++ = ':';
	}
	*letters = 0;
	*longs = (struct option){ NULL, 0, NULL, 0 };
}

static const struct option_spec *find_given(unsigned command, int c)
{
	for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
		bool is_it = (int)specs[i].id == c || (c < OPT_TIMEOUT && specs[i].letter == (char)c);

		if (is_it && (specs[i].commands & command))
			return &specs[i];
	}
	return NULL;
}

/* getopt said '?' or ':': which option it meant, and why not. */
static int refuse_option(unsigned command, int c, const char *text, struct refusal *no)
{
	const struct option_spec *s = optopt ? find_given(command, optopt) : NULL;
	char given[64];

	if (c == ':' && s)
		return refuse(no, s->name, NULL, "%s, %s", s->arg, s->help);
	if (s)
		return refuse(no, s->name, text, "it takes no value");
	if (optopt || !text)
		(void)snprintf(given, sizeof(given), "-%c", optopt);
	else
		(void)snprintf(given, sizeof(given), "%.*s", (int)strcspn(text, "="), text);
	return refuse(no, "option", given, "one of those that --help lists (options of the script go behind its name)");
}

int options_parse(int argc, char **argv, enum option_command command, struct options *ret, struct refusal *no)
{
	struct option longs[ARRAY_LEN(specs) + 1];
	char letters[2 * ARRAY_LEN(specs) + 3];
	int r = 0;
	int c;

	*ret = (struct options){ .items = calloc((size_t)argc + 1, sizeof(*ret->items)) };
	if (!ret->items)
		return refuse_memory(no);
	build_getopt(command, letters, longs);
	optind = 0; /* start afresh */
	opterr = 0;
	while ((c = getopt_long(argc, argv, letters, longs, NULL)) != -1) {
		const struct option_spec *s = c == '?' || c == ':' ? NULL : find_given(command, c);

		if (s)
			ret->items[ret->n++] = (struct option_value){ s->id, optarg };
		else if (r == 0) /* go on: whether --json comes later decides how this is told */
			r = refuse_option(command, c, argv[optind - 1], no);
	}
	ret->operands = argv + optind;
	ret->n_operands = argc - optind;
	return r;
}

void options_done(struct options *o)
{
	free(o->items);
	*o = (struct options){ .items = NULL };
}

bool options_have(const struct options *o, enum option_id id)
{
	for (size_t i = 0; i < o->n; i++) {
		if (o->items[i].id == id)
			return true;
	}
	return false;
}

const char *options_last(const struct options *o, enum option_id id)
{
	for (size_t i = o->n; i > 0; i--) {
		if (o->items[i - 1].id == id)
			return o->items[i - 1].value;
	}
	return NULL;
}

const char *option_name(enum option_id id)
{
	for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
		if (specs[i].id == id)
			return specs[i].name;
	}
	return "";
}

void options_help(enum option_command command)
{
	for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
		const struct option_spec *s = &specs[i];
		char left[64];

		if (!(s->commands & (unsigned)command))
			continue;
		(void)snprintf(left, sizeof(left), "%c%c%s %s%s%s", s->letter ? '-' : ' ', s->letter ? s->letter : ' ',
			       s->letter ? "," : " ", s->name, s->arg ? " " : "", s->arg ? s->arg : "");
		(void)printf("  %-27s %s\n", left, s->help);
	}
}
