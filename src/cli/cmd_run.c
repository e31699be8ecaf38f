/* SPDX-License-Identifier: Apache-2.0 */
/* cloche run: a script's output is our output, its exit status ours. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "cli/build.h"
#include "cli/cli.h"
#include "cli/deliver.h"
#include "cli/drive.h"
#include "cli/engine.h"
#include "cli/options.h"
#include "cli/request.h"
#include "cli/say.h"
#include "cli/setup.h"

static const char usage[] =
	"Usage: cloche run [OPTIONS] SCRIPT|- [ARGS...]\n"
	"\n"
	"Runs a Python script in a fresh sandbox.  Its output is our output and its exit status ours; standard input\n"
	"goes to it unless that is a terminal, or SCRIPT is - (then the script itself is read from there).\n"
	"Options stand before SCRIPT; what follows it is the script's.\n"
	"\n";

static const char examples[] =
	"\n"
	"Exit status: the script's own; 128+N killed by signal N; 124 timeout; 137 a limit; 130 cancelled;\n"
	"125 cloche or the host failed, or screening rejected the script; 126 SCRIPT or the interpreter can't be\n"
	"read; 127 SCRIPT or the environment is not there; 2 the command line is wrong.\n"
	"\n"
	"Examples:\n"
	"  cloche run hello.py\n"
	"  cloche run -t 10 -m 256m --network none job.py --its-own-option\n"
	"  echo 'print(6 * 7)' | cloche run -\n"
	"  sort data.txt | cloche run --cpus 2 count.py > counts.txt\n"
	"  cloche run --file sales.csv --artifact '*.png' -o charts plot.py\n"
	"  cloche run --json hello.py | jq .execution_time\n";

struct command {
	struct options options;
	struct settings settings;
	struct engine engine;
	struct job job;
	char *request; /* owned; the same for a server; NULL: it runs here */
	bool has_job;
	bool is_json;
	bool is_quiet;
	int output; /* owned: where artifacts go; -1: nowhere */
	int input;  /* the script's standard input; -1: none */
	int owned_input;
	struct refusal no;
};

static int open_ends(struct command *c)
{
	const char *dir = options_last(&c->options, OPT_OUTPUT);
	const char *input = options_last(&c->options, OPT_STDIN);

	if (dir) {
		c->output = deliver_open(dir, &c->no);
		if (c->output < 0)
			return c->output;
	}
	if (input) {
		c->owned_input = open(input, O_RDONLY | O_CLOEXEC | O_NOCTTY);
		if (c->owned_input < 0)
			return refuse_option_file(&c->no, "--stdin", input, errno);
		c->input = c->owned_input;
	} else if (strcmp(c->options.operands[0], "-") != 0 && !isatty(STDIN_FILENO)) {
		c->input = STDIN_FILENO;
	}
	return 0;
}

/* What a server gets.  What JSON can't carry runs here, unless a server was asked for by name. */
static int make_request(struct command *c)
{
	int r = c->engine.is_remote ? request_write(&c->job, &c->options, &c->request) : 0;

	if (r == -EILSEQ && !c->engine.server) {
		engine_leave_server(&c->engine);
		return 0;
	}
	if (r == -EILSEQ)
		return refuse(&c->no, "ARGS", "bytes", "UTF-8 text, for a server (--local takes any bytes)");
	return r < 0 ? refuse_memory(&c->no) : 0;
}

/* Everything that can be refused, before anything is started. */
static int prepare(struct command *c, int argc, char **argv)
{
	int r = options_parse(argc, argv, ON_RUN, &c->options, &c->no);

	c->is_json = options_have(&c->options, OPT_JSON);
	c->is_quiet = options_have(&c->options, OPT_QUIET);
	if (r < 0)
		return r;
	if (options_have(&c->options, OPT_HELP)) {
		(void)fputs(usage, stdout);
		options_help(ON_RUN);
		(void)fputs(examples, stdout);
		return 1;
	}
	engine_begin(&c->options);
	r = setup_load(&c->settings, &c->options, &c->no);
	if (r < 0)
		return r;
	r = engine_find(&c->engine, &c->options, &c->settings, &c->no);
	if (r == 0)
		r = build_job(&c->options, &c->settings, c->engine.is_remote, &c->job, &c->no);
	if (r < 0)
		return r;
	c->has_job = true;
	r = make_request(c);
	return r < 0 ? r : open_ends(c);
}

static double seconds(uint64_t ns)
{
	return (double)ns / (double)NS_PER_SEC;
}

/* How it ended, in words: nothing when the script ended by itself, or when we ended it because our output was lost. */
static void tell(const struct command *c, const struct drive *d, const struct result *r)
{
	bool is_own_end = r->status == STATUS_OK || r->status == STATUS_ERROR || r->status == STATUS_SIGNALED;

	if (!c->is_quiet && !c->is_json) {
		for (size_t i = 0; i < r->n_warnings; i++)
			say("warning: %s", r->warnings[i]);
		if (!is_own_end && !d->lost)
			say("%s", r->message && *r->message ? r->message : status_name(r->status));
	}
	if (options_have(&c->options, OPT_VERBOSE)) {
		char memory[48] = "";

		if (r->has_peak_memory)
			(void)snprintf(memory, sizeof(memory), ", peak memory %.1f MiB",
				       (double)r->peak_memory_bytes / (1 << 20));
		say("%s, return code %d, %.3f s, CPU %.3f s%s, started after %.3f s, %s, run %s",
		    status_name(r->status), r->return_code, seconds(r->execution_ns), seconds(r->cpu_ns), memory,
		    seconds(r->queue_ns), job_mode_name(r->mode), r->run_id);
	}
}

/* A result was given: hand it over.  Return: the exit status */
static int report(const struct command *c, struct drive *d, struct answer *a, const struct err *e)
{
	const struct result *r = &a->result;
	int status = e->kind == ERR_NONE ? result_exit_status(r) : cli_exit_of(e);
	auto_free char *json = NULL;

	if (d->input_lost && !c->is_quiet)
		say("warning: standard input: %s", strerror(d->input_lost));
	tell(c, d, r);
	if (c->output < 0 && !c->is_json && !c->is_quiet && r->n_artifacts) /* nobody asked for others */
		say("%zu figure%s left out (with --output DIR %s kept)", r->n_artifacts, r->n_artifacts == 1 ? "" : "s",
		    r->n_artifacts == 1 ? "it is" : "they are");
	if (c->output >= 0 &&
	    deliver(r, c->output, options_last(&c->options, OPT_OUTPUT), options_have(&c->options, OPT_FORCE),
		    c->is_quiet) < 0 &&
	    status == 0)
		status = CLI_COULD_NOT;
	if (c->is_json && !d->lost) {
		json = answer_json(a);
		if (!json) {
			say("out of memory");
			return CLI_COULD_NOT;
		}
		if (drive_put(d, json) < 0)
			return drive_exit(d, status);
	}
	return drive_exit(d, status);
}

/* There is no result: the host's or our fault is one all the same, for who reads JSON. */
static int report_failure(struct command *c, struct drive *d, const struct asked *q, const struct err *e)
{
	struct err none = { .kind = ERR_NONE };
	struct answer a;
	int status;

	if (!c->is_json || cli_exit_of(e) != CLI_COULD_NOT || engine_failed(q, e, &a, &none) < 0) {
		(void)refuse_err(&c->no, 0, "environment", e);
		return refusal_tell(&c->no, c->is_json);
	}
	status = report(c, d, &a, e);
	answer_done(&a);
	return status;
}

/* A server's refusal, with the exit status that the same has here. */
static int report_refusal(struct command *c, const struct answer *a)
{
	c->no = a->no;
	if (strcmp(c->no.why.field, "environment") == 0 && c->no.status == CLI_USAGE)
		c->no.status = CLI_NOT_FOUND;
	return refusal_tell(&c->no, c->is_json);
}

/* A server that was asked for by name has defaults of its own. */
static uint64_t timeout_of(const struct command *c)
{
	return c->engine.server && !options_have(&c->options, OPT_TIMEOUT) ? 0 : c->job.timeout_ns;
}

static int execute(struct command *c)
{
	struct signals signals = { .fd = -1 };
	struct progress progress;
	struct drive d = {
		.signals = &signals, .input = c->input, .copies_output = !c->is_json, .progress = &progress
	};
	struct asked q = { .job = &c->job,
			   .json = c->request,
			   .len = c->request ? strlen(c->request) : 0,
			   .is_streamed = c->input >= 0 };
	struct err e = { .kind = ERR_NONE };
	struct answer a = { .is_refused = false };
	int r = engine_start(&c->engine, true, &e);
	int status;
	int opened;

	progress_init(&progress, options_have(&c->options, OPT_PROGRESS), timeout_of(c));
	/* After the start, and even when that failed: the result is written with the same care. */
	opened = signals_open(&signals, &(struct err) { .kind = ERR_NONE });
	if (r == 0 && opened < 0)
		r = err_set(&e, ERR_HOST, -opened, "signalfd");
	if (r == 0)
		r = drive(&d, &c->engine, &q, &a, &e);
	if (r == 0 && a.json)
		r = answer_read(&a, &e);
	if (r < 0)
		status = report_failure(c, &d, &q, &e);
	else
		status = a.is_refused ? report_refusal(c, &a) : report(c, &d, &a, &e);
	answer_done(&a);
	signals_close(&signals);
	return status;
}

int cmd_run(int argc, char **argv)
{
	struct command c = { .output = -1, .input = -1, .owned_input = -1 };
	int r = prepare(&c, argc, argv);
	int status = r < 0 ? refusal_tell(&c.no, c.is_json) : r > 0 ? CLI_OK : execute(&c);

	engine_done(&c.engine);
	free(c.request);
	if (c.has_job)
		job_done(&c.job);
	settings_done(&c.settings);
	options_done(&c.options);
	fd_close(&c.output);
	fd_close(&c.owned_input);
	return status;
}
