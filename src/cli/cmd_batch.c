/* SPDX-License-Identifier: Apache-2.0 */
/* cloche batch: one request a line in, one result a line out as they finish, a few at the same time. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/parse.h"
#include "cli/cli.h"
#include "cli/drive.h"
#include "cli/engine.h"
#include "cli/lines.h"
#include "cli/options.h"
#include "cli/say.h"
#include "cli/setup.h"

#define JOBS_MAX ENGINE_TASKS_MAX
#define RETRY_NS (100 * NS_PER_MS) /* when a server was busy */

static const char usage[] =
	"Usage: cloche batch [OPTIONS] FILE|-\n"
	"\n"
	"Reads one request (a JSON object) a line and prints one result a line, in the order in which they finish,\n"
	"with the number of the request's line as \"line\".  Lines are read as runs end: any number may come.\n"
	"\n";

static const char examples[] =
	"\n"
	"Exit status: 0 each line got its result; 2 some line was no valid request (its own line says\n"
	"why: {\"error\", \"line\"}; the others ran); 130 cancelled;\n"
	"125 to 127 cloche, the host or the configured Python failed.\n"
	"\n"
	"Examples:\n"
	"  cloche batch -j 4 requests.jsonl > results.jsonl\n"
	"  generate | cloche batch - | jq -c '[.line, .status]'\n";

struct slot {
	bool is_taken;
	struct task *task; /* NULL: free, or to be tried again */
	uint64_t retry_ns; /* when */
	struct asked q;    /* points to what follows */
	struct job job;
	bool has_job;
	char *text; /* owned; of a request to a server */
	size_t line;
};

struct batch {
	struct options options;
	struct settings settings;
	struct refusal no;
	struct engine engine;
	struct signals signals;
	struct drive d; /* what became of our output */
	struct lines lines;
	struct slot *slots;    /* owned */
	struct pollfd *polled; /* owned: AT_SLOTS and one for each slot */
	size_t n_slots;
	size_t n_active;
	size_t n_done;
	size_t n_refused;
	int input;  /* owned; -1: standard input */
	int status; /* of the worst line so far */
	bool is_stopping;
	bool has_progress;
	uint64_t progress_ns;
};

enum { AT_SIGNAL, AT_READER, AT_INPUT, AT_SLOTS };

/* One line that is rewritten in place, at most ten times a second. */
static void show_progress(struct batch *b, bool is_end)
{
	uint64_t now = clock_now_ns();

	if (!b->has_progress || (!is_end && now - b->progress_ns < 100 * NS_PER_MS))
		return;
	b->progress_ns = now;
	if (is_end)
		(void)fputs("\r\033[K", stderr);
	else
		(void)fprintf(stderr, "\r\033[K%zu done, %zu running, %zu refused", b->n_done, b->n_active,
			      b->n_refused);
}

static void stop(struct batch *b)
{
	if (b->is_stopping)
		return;
	b->is_stopping = true;
	for (size_t i = 0; i < b->n_slots; i++) {
		if (b->slots[i].task)
			task_cancel(b->slots[i].task);
	}
}

/* Print @json, an object that we own, with "line" as its last member; frees it. */
static void put(struct batch *b, char *json, size_t line)
{
	size_t len = json ? strlen(json) : 0;
	char *whole = len ? realloc(json, len + 48) : NULL;

	if (!whole) {
		say("line %zu: out of memory", line);
		b->status = CLI_COULD_NOT;
		free(json);
		return;
	}
	(void)snprintf(whole + len - 1, 48, ", \"line\": %zu}", line);
	if (!b->d.lost && drive_put(&b->d, whole) < 0)
		stop(b);
	free(whole);
}

static void put_refusal(struct batch *b, size_t line)
{
	b->n_refused++;
	if (b->status == CLI_OK || b->no.status == CLI_USAGE)
		b->status = b->no.status;
	put(b, job_error_write(&b->no.why), line);
}

static void put_answer(struct batch *b, struct answer *a, size_t line)
{
	if (a->is_refused) {
		b->no = a->no;
		put_refusal(b, line);
	} else {
		put(b, answer_json(a), line);
	}
	answer_done(a);
}

/* There is no answer: because of what was asked for, or because of us or the host, which is a result, too. */
static void put_failure(struct batch *b, const struct slot *slot, const struct err *why)
{
	struct err e = { .kind = ERR_NONE };
	struct answer a;

	if (cli_exit_of(why) != CLI_COULD_NOT) {
		(void)refuse_err(&b->no, 0, "environment", why);
		put_refusal(b, slot->line);
	} else if (engine_failed(&slot->q, why, &a, &e) < 0) {
		say("line %zu: %s", slot->line, e.msg);
		b->status = CLI_COULD_NOT;
	} else {
		put_answer(b, &a, slot->line);
	}
}

static void release(struct batch *b, struct slot *slot)
{
	if (slot->has_job)
		job_done(&slot->job);
	free(slot->text);
	*slot = (struct slot) { .is_taken = false };
	b->n_active--;
	b->n_done++;
}

static void try_start(struct batch *b, struct slot *slot)
{
	struct err e = { .kind = ERR_NONE };

	slot->task = NULL;
	if (task_start(&b->engine, &slot->q, NULL, &slot->task, &e) == 0)
		return;
	put_failure(b, slot, &e);
	release(b, slot);
}

/* Keep the line: as a job that can be run here, or as it is for a server.  Return: 0 or -errno with b->no filled */
static int take_line(struct batch *b, struct slot *slot, const struct line *line)
{
	int r = 0;

	if (line->is_too_long)
		return refuse(&b->no, "request", "a line", "at most %llu bytes", (unsigned long long)JOB_REQUEST_MAX);
	if (b->engine.is_remote) {
		slot->text = malloc(line->len + 1);
		if (!slot->text)
			return refuse_memory(&b->no);
		memcpy(slot->text, line->text, line->len);
		slot->q = (struct asked) { .json = slot->text, .len = line->len };
		return 0;
	}
	r = setup_parse(&b->settings, line->text, line->len, &slot->job, &b->no);
	slot->has_job = r == 0;
	slot->q = (struct asked) { .job = &slot->job };
	return r;
}

static void start(struct batch *b, struct slot *slot, const struct line *line)
{
	*slot = (struct slot) { .is_taken = true, .line = line->number };
	b->n_active++;
	if (take_line(b, slot, line) < 0) {
		put_refusal(b, line->number);
		release(b, slot);
		b->n_done--;
		return;
	}
	try_start(b, slot);
}

static void finish(struct batch *b, struct slot *slot, const struct err *why)
{
	struct err e = { .kind = ERR_NONE };
	struct answer a;
	int r = task_finish(slot->task, &a, &e);

	slot->task = NULL;
	if (r == 0 && a.is_busy && !b->is_stopping) {
		answer_done(&a);
		slot->retry_ns = clock_now_ns() + RETRY_NS;
		return;
	}
	if (r < 0) {
		b->status = cli_exit_of(&e);
		say("line %zu: %s", slot->line, e.msg);
	} else if (why->kind != ERR_NONE && cli_exit_of(why) != CLI_COULD_NOT) {
		answer_done(&a);
		put_failure(b, slot, why);
	} else {
		put_answer(b, &a, slot->line);
	}
	release(b, slot);
}

static struct slot *free_slot(struct batch *b)
{
	for (size_t i = 0; i < b->n_slots && b->n_active < b->n_slots; i++) {
		if (!b->slots[i].is_taken)
			return &b->slots[i];
	}
	return NULL;
}

static bool is_blank(const struct line *l)
{
	for (size_t i = 0; i < l->len; i++) {
		if (!strchr(" \t\r", l->text[i]) || !l->text[i])
			return false;
	}
	return !l->is_too_long;
}

/* Start what is there, as far as there is room.  Return: whether more input would be of use */
static bool start_lines(struct batch *b)
{
	struct slot *slot;
	struct line line;

	while (!b->is_stopping && (slot = free_slot(b))) {
		if (!lines_next(&b->lines, &line))
			return !b->lines.is_ended;
		if (!is_blank(&line))
			start(b, slot, &line);
		show_progress(b, false);
	}
	return false;
}

static void read_lines(struct batch *b)
{
	int r = lines_fill(&b->lines);

	if (r < 0) {
		say("requests: %s", strerror(-r));
		b->status = CLI_COULD_NOT;
	}
}

/* Milliseconds until what a busy server put off is tried again, or a run is given up; -1: there is none. */
static int wait_ms(const struct batch *b)
{
	uint64_t now = clock_now_ns();
	uint64_t next = UINT64_MAX;

	for (size_t i = 0; i < b->n_slots; i++) {
		if (b->slots[i].is_taken && !b->slots[i].task && b->slots[i].retry_ns < next)
			next = b->slots[i].retry_ns;
		if (b->slots[i].task) {
			int ms = task_wait_ms(b->slots[i].task);

			if (ms >= 0 && now + (uint64_t)ms * NS_PER_MS < next)
				next = now + (uint64_t)ms * NS_PER_MS;
		}
	}
	if (next == UINT64_MAX)
		return -1;
	return next > now ? (int)((next - now) / NS_PER_MS) + 1 : 0;
}

static void step(struct batch *b, struct slot *slot, bool has_event)
{
	struct err e = { .kind = ERR_NONE };

	has_event = has_event || (slot->task && task_wait_ms(slot->task) == 0);
	if (slot->task && has_event && task_step(slot->task, &e) != 0) {
		finish(b, slot, &e);
	} else if (slot->is_taken && !slot->task && b->is_stopping) {
		release(b, slot);
	} else if (slot->is_taken && !slot->task && slot->retry_ns <= clock_now_ns()) {
		try_start(b, slot);
	}
}

/* Wait for something to happen, and let it happen. */
static void turn(struct batch *b, bool wants_input)
{
	struct pollfd *p = b->polled;

	p[AT_SIGNAL] = (struct pollfd) { .fd = b->signals.fd, .events = POLLIN };
	p[AT_READER] = (struct pollfd) { .fd = b->is_stopping ? -1 : STDOUT_FILENO }; /* whether it went away */
	p[AT_INPUT] = (struct pollfd) { .fd = wants_input ? b->lines.fd : -1, .events = POLLIN };
	for (size_t i = 0; i < b->n_slots; i++) {
		const struct task *t = b->slots[i].task;

		p[AT_SLOTS + i] = (struct pollfd) { .fd = t ? task_fd(t) : -1, .events = t ? task_events(t) : 0 };
	}
	if (poll(p, (nfds_t)(AT_SLOTS + b->n_slots), wait_ms(b)) < 0)
		return;
	if (p[AT_SIGNAL].revents && signals_take(&b->signals))
		stop(b);
	if (p[AT_READER].revents & (POLLERR | POLLHUP)) {
		b->d.lost = EPIPE;
		stop(b);
	}
	if (p[AT_INPUT].revents)
		read_lines(b);
	for (size_t i = 0; i < b->n_slots; i++)
		step(b, &b->slots[i], p[AT_SLOTS + i].revents != 0);
	if (b->signals.is_seen) /* one may have come while we wrote */
		stop(b);
	show_progress(b, false);
}

static int execute(struct batch *b)
{
	struct err e = { .kind = ERR_NONE };
	int r = engine_start(&b->engine, false, &e);

	if (r == 0)
		r = signals_open(&b->signals, &e);
	if (r < 0) {
		say("%s", e.msg);
		return cli_exit_of(&e);
	}
	b->d.signals = &b->signals;
	b->has_progress = isatty(STDERR_FILENO) && !isatty(STDOUT_FILENO) && !options_have(&b->options, OPT_QUIET);
	for (;;) {
		bool wants_input = start_lines(b);

		/* start_lines() left room empty only when there is no whole line */
		if (b->n_active == 0 && (b->is_stopping || b->lines.is_ended))
			break;
		turn(b, wants_input);
	}
	show_progress(b, true);
	return drive_exit(&b->d, b->status);
}

static int default_jobs(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

static int open_input(struct batch *b)
{
	const char *path;

	if (b->options.n_operands < 1)
		return refuse(&b->no, "FILE", NULL, "a file with one request a line, or - for standard input");
	if (b->options.n_operands > 1)
		return refuse(&b->no, "argument", b->options.operands[1], "one FILE");
	path = b->options.operands[0];
	if (strcmp(path, "-") != 0) {
		b->input = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
		if (b->input < 0)
			return refuse_option_file(&b->no, "FILE", path, errno);
	}
	lines_init(&b->lines, b->input >= 0 ? b->input : STDIN_FILENO, (size_t)JOB_REQUEST_MAX);
	return 0;
}

static int prepare(struct batch *b, int argc, char **argv)
{
	int r = options_parse(argc, argv, ON_BATCH, &b->options, &b->no);
	const char *jobs = options_last(&b->options, OPT_JOBS);
	uint64_t n = (uint64_t)default_jobs();

	if (r < 0)
		return r;
	if (options_have(&b->options, OPT_HELP)) {
		(void)fputs(usage, stdout);
		options_help(ON_BATCH);
		(void)fputs(examples, stdout);
		return 1;
	}
	if (jobs && parse_u64(jobs, 1, JOBS_MAX, &n) < 0)
		return refuse(&b->no, "--jobs", jobs, "1 to %d", JOBS_MAX);
	b->n_slots = n < JOBS_MAX ? (size_t)n : JOBS_MAX;
	b->slots = calloc(b->n_slots, sizeof(*b->slots));
	b->polled = calloc(AT_SLOTS + b->n_slots, sizeof(*b->polled));
	if (!b->slots || !b->polled)
		return refuse_memory(&b->no);
	r = setup_load(&b->settings, &b->options, &b->no);
	if (r == 0)
		r = engine_find(&b->engine, &b->options, &b->settings, &b->no);
	return r < 0 ? r : open_input(b);
}

int cmd_batch(int argc, char **argv)
{
	struct batch b = { .input = -1, .signals = { .fd = -1 } };
	int r = prepare(&b, argc, argv);
	int status = r < 0 ? refusal_tell(&b.no, false) : r > 0 ? CLI_OK : execute(&b);

	engine_done(&b.engine);
	signals_close(&b.signals);
	lines_done(&b.lines);
	free(b.slots);
	free(b.polled);
	settings_done(&b.settings);
	options_done(&b.options);
	fd_close(&b.input);
	return status;
}
