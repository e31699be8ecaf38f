/* SPDX-License-Identifier: Apache-2.0 */
/* cloche trigger: one request object in, one result object out. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "cli/cli.h"
#include "cli/drive.h"
#include "cli/engine.h"
#include "cli/options.h"
#include "cli/say.h"
#include "cli/setup.h"

static const char usage[] =
	"Usage: cloche trigger [OPTIONS]\n"
	"\n"
	"Reads one request, a JSON object, runs its script in a fresh sandbox, and prints the result,\n"
	"one JSON object.\n"
	"\n";

static const char examples[] =
	"\n"
	"Exit status: 0 whenever a result was given, whatever the script did; 2 the request breaks a rule (an\n"
	"object with \"error\" is printed); 130 cancelled;\n"
	"125 to 127 cloche, the host or the configured Python failed.\n"
	"\n"
	"Examples:\n"
	"  cloche trigger --request examples/hello_world.json\n"
	"  echo '{\"script_content\": \"print(6 * 7)\", \"timeout\": 10}' | cloche trigger\n";

struct command {
	struct options options;
	struct settings settings;
	struct engine engine;
	struct asked q; /* points to what follows */
	char *text;     /* owned; the request */
	struct job job;
	bool has_job;
	struct refusal no;
};

static int read_request(struct command *c)
{
	const char *path = options_last(&c->options, OPT_REQUEST);
	bool is_stdin = !path || strcmp(path, "-") == 0;
	auto_fd int fd = is_stdin ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	int r;

	if (!is_stdin && fd < 0)
		return refuse_option_file(&c->no, "--request", path, errno);
	r = fd_read_all(is_stdin ? STDIN_FILENO : fd, JOB_REQUEST_MAX, &c->text, &c->q.len);
	if (r == -EFBIG)
		return refuse(&c->no, "request", is_stdin ? "standard input" : path, "at most %llu bytes",
			      (unsigned long long)JOB_REQUEST_MAX);
	if (r < 0)
		return refuse_option_file(&c->no, "--request", is_stdin ? "standard input" : path, -r);
	c->q.json = c->text;
	if (c->engine.is_remote) /* it looks through the request itself */
		return 0;
	r = setup_parse(&c->settings, c->text, c->q.len, &c->job, &c->no);
	c->has_job = r == 0;
	c->q.job = &c->job;
	return r;
}

static int prepare(struct command *c, int argc, char **argv)
{
	int r = options_parse(argc, argv, ON_TRIGGER, &c->options, &c->no);

	if (r < 0)
		return r;
	if (options_have(&c->options, OPT_HELP)) {
		(void)fputs(usage, stdout);
		options_help(ON_TRIGGER);
		(void)fputs(examples, stdout);
		return 1;
	}
	if (c->options.n_operands)
		return refuse(&c->no, "argument", c->options.operands[0], "none (a request in a file: --request FILE)");
	engine_begin(&c->options);
	r = setup_load(&c->settings, &c->options, &c->no);
	if (r == 0)
		r = engine_find(&c->engine, &c->options, &c->settings, &c->no);
	return r < 0 ? r : read_request(c);
}

static int print(struct drive *d, struct answer *a)
{
	auto_free char *json = answer_json(a);

	if (!json) {
		say("out of memory");
		return CLI_COULD_NOT;
	}
	if (!d->lost && drive_put(d, json) < 0)
		return drive_exit(d, CLI_COULD_NOT);
	return drive_exit(d, CLI_OK);
}

/* Our fault or the host's is a result, too. */
static int print_failure(struct command *c, struct drive *d, const struct err *why)
{
	struct err e = { .kind = ERR_NONE };
	struct answer a;
	int status;

	if (engine_failed(&c->q, why, &a, &e) < 0) {
		say("%s", e.msg);
		return CLI_COULD_NOT;
	}
	status = print(d, &a);
	answer_done(&a);
	return status;
}

static int execute(struct command *c)
{
	struct signals signals = { .fd = -1 };
	struct drive d = { .signals = &signals, .input = -1 };
	struct answer a = { .is_refused = false };
	struct err e = { .kind = ERR_NONE };
	int r = engine_start(&c->engine, true, &e);
	int opened = signals_open(&signals, &(struct err) { .kind = ERR_NONE });
	int status;

	if (r == 0 && opened < 0)
		r = err_set(&e, ERR_HOST, -opened, "signalfd");
	if (r == 0)
		r = drive(&d, &c->engine, &c->q, &a, &e);
	if (e.kind != ERR_NONE && cli_exit_of(&e) != CLI_COULD_NOT) {
		/* the configured Python or a demanded protection is not there: nothing that a retry would mend */
		(void)refuse_err(&c->no, 0, "environment", &e);
		status = refusal_tell(&c->no, true);
	} else if (r < 0) {
		status = print_failure(c, &d, &e);
	} else {
		status = a.is_refused ? refusal_tell(&a.no, true) : print(&d, &a);
	}
	answer_done(&a);
	signals_close(&signals);
	return status;
}

int cmd_trigger(int argc, char **argv)
{
	struct command c = { .has_job = false };
	int r = prepare(&c, argc, argv);
	int status = r < 0 ? refusal_tell(&c.no, true) : r > 0 ? CLI_OK : execute(&c);

	engine_done(&c.engine);
	if (c.has_job)
		job_done(&c.job);
	free(c.text);
	settings_done(&c.settings);
	options_done(&c.options);
	return status;
}
