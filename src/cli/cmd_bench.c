/* SPDX-License-Identifier: Apache-2.0 */
/* cloche bench: what a warm run costs on this host, beside plain python3 and /bin/true, all measured here and now. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "cli/bench.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/say.h"
#include "cli/setup.h"

#define ROUNDS       200
#define PAUSE_MS     5
#define RATE_SECONDS 4.0
#define WARM_TRIES   200 /* of 50 ms, until a zygote is there */

#define HELLO   "print('hello')"
#define IMPORTS "import json, re, collections, datetime, random, math, hashlib\\nprint('hello')"
/* one word is an answer that bench_fresh() does not take */
#define WHO_AM_I                                                                                                       \
	"import os, time\\n"                                                                                           \
	"if os.listdir('/tmp') != ['unnamed_script.py'] or os.listdir('/dev/shm'): print('leftovers')\\n"              \
	"else: print(*[os.stat('/proc/self/ns/' + n).st_ino for n in 'pid mnt user ipc uts net'.split()])\\n"          \
	"open('/tmp/left', 'w').close()\\n"                                                                            \
	"open('/dev/shm/left', 'w').close()\\n"                                                                        \
	"time.sleep(0.05)"

static const char usage[] = "Usage: cloche bench [--json]\n"
			    "\n"
			    "Measures warm runs on this host beside plain python3 and /bin/true, in turn and in one go, in less "
			    "than a minute.\n"
			    "It starts a supervisor of its own, as a server does; nothing is compared that was not measured "
			    "in this call.\n"
			    "\n";

static const char examples[] = "\n"
			       "Examples:\n"
			       "  cloche bench\n"
			       "  cloche bench --json | jq .latency\n";

enum row { TRUE, PLAIN, WARM, WARM_IMPORTS, ROWS };

struct bench {
	struct options options;
	struct settings settings;
	struct refusal no;
	struct supervisor *s;
	struct job jobs[3]; /* hello, imports, who am I */
	size_t n_jobs;
	const char *python;
	char script[64]; /* hello.py for the plain interpreter */
	struct bench_row rows[ROWS];
	struct bench_rate rate_true, rate_plain, rate_warm;
	unsigned n_fresh;
	unsigned n_parked;
	unsigned long parked_kib;
};

static int write_script(struct bench *b, struct err *e)
{
	const char *text = HELLO "\n";
	int fd;
	int r;

	(void)snprintf(b->script, sizeof(b->script), "/tmp/cloche-bench-XXXXXX");
	fd = mkstemp(b->script);
	if (fd < 0) {
		b->script[0] = '\0';
		return err_set(e, ERR_HOST, errno, "write a script into /tmp");
	}
	r = fd_write_all(fd, text, strlen(text));
	(void)close(fd);
	return r < 0 ? err_set(e, ERR_HOST, -r, "write a script into /tmp") : 0;
}

static int make_jobs(struct bench *b)
{
	static const char *const requests[] = { "{\"script_content\": \"" HELLO "\"}",
						"{\"script_content\": \"" IMPORTS "\"}",
						"{\"script_content\": \"" WHO_AM_I "\"}" };

	for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
		int r = setup_parse(&b->settings, requests[i], strlen(requests[i]), &b->jobs[i], &b->no);

		if (r < 0)
			return r;
		b->n_jobs++;
	}
	return 0;
}

/* Until the zygote serves, runs are cold; then the pool fills. */
static int wait_until_warm(struct bench *b, struct err *e)
{
	double ms;
	int r = -EAGAIN;

	for (unsigned i = 0; i < WARM_TRIES && r < 0; i++) {
		*e = (struct err){ .kind = ERR_NONE };
		(void)poll(NULL, 0, 50);
		r = bench_run(b->s, &b->jobs[0], &ms, e);
	}
	for (unsigned i = 0; i < 20 && r >= 0; i++)
		r = bench_run(b->s, &b->jobs[i % 2], &ms, e);
	return r;
}

static int spawn_once(struct bench *b, enum row row, const char *program, const char *arg, double *ret, struct err *e)
{
	int r = bench_spawn(program, arg, ret);

	b->rows[row].name = row == TRUE ? "/bin/true" : "plain python3";
	return r < 0 ? err_set(e, ERR_HOST, -r, "run %s", program) : 0;
}

static int measure_latency(struct bench *b, struct err *e)
{
	int r = 0;

	b->rows[WARM].name = "cloche, warm";
	b->rows[WARM_IMPORTS].name = "cloche, imports";
	for (unsigned i = 0; i < ROUNDS && r >= 0; i++) {
		for (unsigned turn = 0; turn < ROWS && r >= 0; turn++) {
			/* forth and back: a plain interpreter leaves cold caches to whoever comes after it */
			unsigned row = i % 2 ? ROWS - 1 - turn : turn;
			double *ms = &b->rows[row].ms[i];

			(void)poll(NULL, 0, PAUSE_MS);
			if (row == TRUE)
				r = spawn_once(b, TRUE, "/bin/true", NULL, ms, e);
			else if (row == PLAIN)
				r = spawn_once(b, PLAIN, b->python, b->script, ms, e);
			else
				r = bench_run(b->s, &b->jobs[row == WARM ? 0 : 1], ms, e);
			b->rows[row].n += r >= 0;
		}
	}
	for (int row = 0; row < ROWS; row++)
		bench_sort(&b->rows[row]);
	return r;
}

static int measure(struct bench *b, struct err *e)
{
	int r = wait_until_warm(b, e);

	if (r == 0) {
		(void)poll(NULL, 0, 1200); /* the pool is at its size, and at rest */
		b->parked_kib = bench_parked(&b->n_parked);
		r = measure_latency(b, e);
	}
	if (r == 0)
		r = bench_fresh(b->s, &b->jobs[2], &b->n_fresh, e);
	if (r == 0)
		r = bench_rate_runs(b->s, &b->jobs[0], RATE_SECONDS, &b->rate_warm, e);
	if (r == 0 && bench_rate_spawn(b->python, b->script, RATE_SECONDS, &b->rate_plain) < 0)
		r = err_set(e, ERR_HOST, 0, "run %s", b->python);
	if (r == 0 && bench_rate_spawn("/bin/true", NULL, RATE_SECONDS / 2, &b->rate_true) < 0)
		r = err_set(e, ERR_HOST, 0, "run /bin/true");
	return r;
}

static double ratio(double a, double b)
{
	return b > 0 ? a / b : 0;
}

static void print_table(const struct bench *b)
{
	const double plain = bench_quantile(&b->rows[PLAIN], 0.5);

	(void)printf("%-18s %8s %8s %8s %8s %10s\n", "LATENCY, ms", "MIN", "P50", "P95", "P99", "P50/PLAIN");
	for (int i = 0; i < ROWS; i++) {
		const struct bench_row *r = &b->rows[i];

		(void)printf("%-18s %8.2f %8.2f %8.2f %8.2f %10.3f\n", r->name, r->ms[0], bench_quantile(r, 0.5),
			     bench_quantile(r, 0.95), bench_quantile(r, 0.99), ratio(bench_quantile(r, 0.5), plain));
	}
	(void)printf("\n%-18s %8s %10s %16s\n", "THROUGHPUT", "RUNS/s", "TO PLAIN", "CPU ms A RUN");
	(void)printf("%-18s %8.0f %10.2f %16.2f\n", "/bin/true", b->rate_true.per_second,
		     ratio(b->rate_true.per_second, b->rate_plain.per_second), b->rate_true.cpu_ms);
	(void)printf("%-18s %8.0f %10.2f %16.2f\n", "plain python3", b->rate_plain.per_second, 1.0, b->rate_plain.cpu_ms);
	(void)printf("%-18s %8.0f %10.2f %16.2f\n", "cloche, warm", b->rate_warm.per_second,
		     ratio(b->rate_warm.per_second, b->rate_plain.per_second), b->rate_warm.cpu_ms);
}

/* How many runs took how long; each line is a quarter longer than the one before it. */
static void print_distribution(const struct bench_row *r)
{
	static const char bar[] = "########################################";
	size_t at = 0;
	double to = r->ms[0];

	(void)printf("\nDISTRIBUTION of %zu warm runs\n", r->n);
	while (at < r->n) {
		size_t n = 0;
		size_t width;

		to *= 1.25;
		while (at < r->n && r->ms[at] <= to) {
			at++;
			n++;
		}
		width = (n * 2 * (sizeof(bar) - 1) + r->n - 1) / r->n;
		(void)printf("%8.2f ms %5zu %.*s\n", to, n, (int)(width < sizeof(bar) ? width : sizeof(bar) - 1), bar);
	}
}

static void print(const struct bench *b)
{
	print_table(b);
	print_distribution(&b->rows[WARM]);
	(void)printf("\nFresh: %u runs, %u alive at a time, each in process, mount, user, ipc, uts and network namespaces of its\n"
		     "own (their inodes differ), none found a file that another had left in /tmp or /dev/shm.\n",
		     b->n_fresh, (unsigned)BENCH_CLIENTS);
	if (b->parked_kib)
		(void)printf("Memory: a parked sandbox holds %lu KiB (PSS of all its processes, mean of %u).\n", b->parked_kib,
			     b->n_parked);
	else
		(void)printf("Memory: not readable here (as root it is).\n");
	(void)printf("Driver: one thread; latency %d rounds of all four in turn, %d ms apart, from the request to the result\n"
		     "or from posix_spawn to the end of output and wait; throughput %d at a time for %.0f s.  %ld CPUs; CPU is that\n"
		     "of all processes of ours, the driver included.  The ratios count: the milliseconds are this machine's.\n",
		     ROUNDS, PAUSE_MS, BENCH_CLIENTS, RATE_SECONDS, sysconf(_SC_NPROCESSORS_ONLN));
}

static void print_rate(const char *name, const struct bench_rate *r, const char *end)
{
	(void)printf("\"%s\": {\"runs_per_second\": %.1f, \"cpu_ms_per_run\": %.4f}%s", name, r->per_second, r->cpu_ms,
		     end);
}

static void print_json(const struct bench *b)
{
	static const char *const names[] = { "true", "plain", "warm", "warm_imports" };

	(void)printf("{\"rounds\": %d, \"pause_ms\": %d, \"clients\": %d, \"cpus\": %ld, \"latency\": {", ROUNDS, PAUSE_MS,
		     BENCH_CLIENTS, sysconf(_SC_NPROCESSORS_ONLN));
	for (int i = 0; i < ROWS; i++) {
		const struct bench_row *r = &b->rows[i];

		(void)printf("%s\"%s\": {\"min_ms\": %.4f, \"p50_ms\": %.4f, \"p95_ms\": %.4f, \"p99_ms\": %.4f, \"all_ms\": [",
			     i ? ", " : "", names[i], r->ms[0], bench_quantile(r, 0.5), bench_quantile(r, 0.95),
			     bench_quantile(r, 0.99));
		for (size_t k = 0; k < r->n; k++)
			(void)printf("%s%.4f", k ? ", " : "", r->ms[k]);
		(void)fputs("]}", stdout);
	}
	(void)fputs("}, \"throughput\": {", stdout);
	print_rate("true", &b->rate_true, ", ");
	print_rate("plain", &b->rate_plain, ", ");
	print_rate("warm", &b->rate_warm, "}, ");
	(void)printf("\"fresh_runs\": %u, \"parked\": %u, \"parked_pss_kib\": ", b->n_fresh, b->n_parked);
	(void)(b->parked_kib ? printf("%lu}\n", b->parked_kib) : printf("null}\n"));
}

static int execute(struct bench *b, bool is_json)
{
	struct err e = { .kind = ERR_NONE };
	int r = write_script(b, &e);

	b->python = b->settings.options.environments[0].python;
	b->settings.options.pool = (struct run_pool){ .min = BENCH_CLIENTS, .max = 4 * BENCH_CLIENTS, .max_runs = 100000 };
	if (r == 0)
		r = supervisor_start(&b->settings.options, &b->s, &e);
	if (r == 0)
		r = measure(b, &e);
	if (r < 0) {
		(void)refuse_err(&b->no, r, "bench", &e);
		return refusal_tell(&b->no, is_json);
	}
	if (is_json)
		print_json(b);
	else
		print(b);
	return CLI_OK;
}

static int prepare(struct bench *b, int argc, char **argv)
{
	int r = options_parse(argc, argv, ON_BENCH, &b->options, &b->no);

	if (r < 0)
		return r;
	if (options_have(&b->options, OPT_HELP)) {
		(void)fputs(usage, stdout);
		options_help(ON_BENCH);
		(void)fputs(examples, stdout);
		return 1;
	}
	if (b->options.n_operands)
		return refuse(&b->no, "argument", b->options.operands[0], "none");
	r = setup_load(&b->settings, &b->options, &b->no);
	return r < 0 ? r : make_jobs(b);
}

int cmd_bench(int argc, char **argv)
{
	static struct bench b; /* too large for a stack */
	int r = prepare(&b, argc, argv);
	bool is_json = options_have(&b.options, OPT_JSON);
	int status = r < 0 ? refusal_tell(&b.no, is_json) : r > 0 ? CLI_OK : execute(&b, is_json);

	supervisor_stop(b.s);
	if (b.script[0])
		(void)unlink(b.script);
	for (size_t i = 0; i < b.n_jobs; i++)
		job_done(&b.jobs[i]);
	settings_done(&b.settings);
	options_done(&b.options);
	return status;
}
