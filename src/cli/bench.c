/* SPDX-License-Identifier: Apache-2.0 */
/* What `cloche bench` measures, and how.  One thread; CLOCK_MONOTONIC. */
#include "cli/bench.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/macro.h"

#define FRESH_ROUNDS 5
#define WORDS_MAX    16

/* A spawned program and the pipe that it writes to. */
struct spawned {
	pid_t pid;
	int out; /* owned; -1: none */
	uint64_t begin_ns;
};

static double ms_since(uint64_t begin_ns)
{
	return (double)(clock_now_ns() - begin_ns) / (double)NS_PER_MS;
}

static int spawn(const char *program, const char *arg, struct spawned *ret)
{
	char *argv[] = { (char *)(uintptr_t)program, (char *)(uintptr_t)arg, NULL }; /* execve does not write them */
	char *env[] = { (char[]){ "PATH=/usr/local/bin:/usr/bin:/bin" }, (char[]){ "LANG=C.UTF-8" }, NULL };
	posix_spawn_file_actions_t actions;
	int pair[2];
	int r;

	if (pipe2(pair, O_CLOEXEC) < 0)
		return -errno;
	r = posix_spawn_file_actions_init(&actions);
	if (r == 0) {
		r = posix_spawn_file_actions_adddup2(&actions, pair[1], STDOUT_FILENO);
		ret->begin_ns = clock_now_ns();
		if (r == 0)
			r = posix_spawn(&ret->pid, program, &actions, NULL, argv, env);
		(void)posix_spawn_file_actions_destroy(&actions);
	}
	(void)close(pair[1]);
	if (r != 0) {
		(void)close(pair[0]);
		return -r;
	}
	ret->out = pair[0];
	return 0;
}

/* Return: 1 it has ended well, 0 not yet, -errno */
static int spawned_step(struct spawned *p)
{
	char text[512];
	int status;
	ssize_t n;

	do {
		n = read(p->out, text, sizeof(text));
	} while (n < 0 && errno == EINTR);
	if (n > 0)
		return 0;
	fd_close(&p->out);
	while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR)
		;
	return status == 0 ? 1 : -EPROTO;
}

int bench_spawn(const char *program, const char *arg, double *ret_ms)
{
	struct spawned p = { .out = -1 };
	int r = spawn(program, arg, &p);

	while (r == 0)
		r = spawned_step(&p);
	*ret_ms = ms_since(p.begin_ns);
	return r < 0 ? r : 0;
}

/* A run that is not what was to be measured is no measurement. */
static int check(const struct result *r, struct err *e)
{
	if (r->status != STATUS_OK)
		return err_set(e, ERR_HOST, 0, "a run ended as %s: %s", status_name(r->status), r->message ? r->message : "");
	if (r->mode != JOB_MODE_WARM)
		return err_set(e, ERR_HOST, 0, "a run went cold: %s", r->n_warnings ? r->warnings[0] : "no reason was given");
	return 0;
}

int bench_run(struct supervisor *s, const struct job *j, double *ret_ms, struct err *e)
{
	uint64_t begin_ns = clock_now_ns();
	struct result result;
	int r = run_job(s, j, &result, e);

	if (r < 0)
		return r;
	*ret_ms = ms_since(begin_ns);
	r = check(&result, e);
	result_done(&result);
	return r;
}

/* One process's CPU seconds, with those of the children that it has reaped; and who its parent is. */
static double cpu_of(const char *pid, unsigned long *ret_parent)
{
	unsigned long t[4] = { 0 };
	char path[64];
	char text[1024];
	char *at;

	*ret_parent = 0;
	(void)snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
	if (fd_read_at(AT_FDCWD, path, text, sizeof(text)) <= 0)
		return 0;
	at = strrchr(text, ')');
	if (!at || sscanf(at, ") %*c %lu %*s %*s %*s %*s %*s %*s %*s %*s %*s %lu %lu %lu %lu", ret_parent, &t[0], &t[1], &t[2],
			  &t[3]) != 5)
		return 0;
	return (double)(t[0] + t[1] + t[2] + t[3]) / (double)sysconf(_SC_CLK_TCK);
}

/* How many generations below us; 0: not ours */
static unsigned generation(unsigned long parent)
{
	for (unsigned n = 1; parent > 1; n++) {
		char pid[24];

		if (parent == (unsigned long)getpid())
			return n;
		(void)snprintf(pid, sizeof(pid), "%lu", parent);
		(void)cpu_of(pid, &parent);
	}
	return 0;
}

/* CPU seconds of ours and of everything that we have started, living or reaped. */
static double busy(void)
{
	DIR *d = opendir("/proc");
	struct dirent *entry;
	struct rusage u[2];
	double sum = 0;

	(void)getrusage(RUSAGE_SELF, &u[0]);
	(void)getrusage(RUSAGE_CHILDREN, &u[1]);
	for (size_t i = 0; i < ARRAY_LEN(u); i++)
		sum += (double)(u[i].ru_utime.tv_sec + u[i].ru_stime.tv_sec) +
		       (double)(u[i].ru_utime.tv_usec + u[i].ru_stime.tv_usec) / 1e6;
	while (d && (entry = readdir(d)) != NULL) {
		unsigned long parent;
		double own;

		if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
			continue;
		own = cpu_of(entry->d_name, &parent);
		if (generation(parent) > 0)
			sum += own;
	}
	if (d)
		(void)closedir(d);
	return sum;
}

static void rate(double seconds, double cpu, unsigned long n, struct bench_rate *ret)
{
	ret->per_second = (double)n / seconds;
	ret->cpu_ms = n ? cpu * 1e3 / (double)n : 0;
}

/* What is to become of a result.  Return: 0 or -errno with @e */
typedef int (*use_fn)(const struct result *r, void *arg, struct err *e);

/* Take one run on if it has something to say.  Return: 1 it is over, 0 not yet, -errno */
static int step(struct run **run, use_fn use, void *arg, struct err *e)
{
	struct err lost = { 0 };
	struct result result;
	int r;

	if (run_step(*run, &lost) == 0)
		return 0;
	r = run_finish(*run, &result, e);
	*run = NULL;
	if (r < 0)
		return r;
	r = check(&result, e);
	if (r == 0 && use)
		r = use(&result, arg, e);
	result_done(&result);
	return r < 0 ? r : 1;
}

/* Wait for some of the runs and take them on.  Return: how many are over, or -errno */
static int steps(struct run **runs, use_fn use, void *arg, struct err *e)
{
	struct pollfd p[BENCH_CLIENTS];
	int over = 0;
	int r = 0;

	for (size_t i = 0; i < ARRAY_LEN(p); i++)
		p[i] = (struct pollfd){ .fd = runs[i] ? run_fd(runs[i]) : -1, .events = runs[i] ? run_events(runs[i]) : 0 };
	(void)poll(p, ARRAY_LEN(p), -1);
	for (size_t i = 0; i < ARRAY_LEN(p) && r >= 0; i++) {
		r = runs[i] && p[i].revents ? step(&runs[i], use, arg, e) : 0;
		over += r > 0;
	}
	return r < 0 ? r : over;
}

static void abandon(struct run **runs)
{
	struct result result;
	struct err e = { 0 };

	for (size_t i = 0; i < BENCH_CLIENTS; i++) {
		if (!runs[i])
			continue;
		run_cancel(runs[i]);
		while (run_step(runs[i], &e) == 0) {
			struct pollfd p = { .fd = run_fd(runs[i]), .events = run_events(runs[i]) };

			(void)poll(&p, 1, -1);
		}
		if (run_finish(runs[i], &result, &e) == 0)
			result_done(&result);
		runs[i] = NULL;
	}
}

int bench_rate_runs(struct supervisor *s, const struct job *j, double seconds, struct bench_rate *ret, struct err *e)
{
	struct run *runs[BENCH_CLIENTS] = { NULL };
	uint64_t begin_ns = clock_now_ns();
	uint64_t end_ns = begin_ns + (uint64_t)(seconds * (double)NS_PER_SEC);
	double cpu = busy();
	unsigned long n = 0;
	unsigned alive = 0;
	int r = 0;

	do {
		for (size_t i = 0; i < BENCH_CLIENTS && r >= 0 && clock_now_ns() < end_ns; i++) {
			if (runs[i])
				continue;
			r = run_start(s, j, false, NULL, &runs[i], e);
			alive += r == 0;
		}
		if (r >= 0 && alive > 0)
			r = steps(runs, NULL, NULL, e);
		if (r > 0) {
			n += (unsigned)r;
			alive -= (unsigned)r;
		}
	} while (r >= 0 && alive > 0);
	abandon(runs);
	rate(ms_since(begin_ns) / 1e3, busy() - cpu, n, ret);
	return r < 0 ? r : 0;
}

int bench_rate_spawn(const char *program, const char *arg, double seconds, struct bench_rate *ret)
{
	struct spawned all[BENCH_CLIENTS];
	uint64_t begin_ns = clock_now_ns();
	double cpu = busy();
	unsigned long n = 0;
	unsigned alive = 0;
	int r = 0;

	for (size_t i = 0; i < BENCH_CLIENTS; i++)
		all[i].out = -1;
	do {
		struct pollfd p[BENCH_CLIENTS];

		for (size_t i = 0; i < BENCH_CLIENTS; i++) {
			if (all[i].out < 0 && r >= 0 && ms_since(begin_ns) < seconds * 1e3) {
				r = spawn(program, arg, &all[i]);
				alive += r == 0;
			}
			p[i] = (struct pollfd){ .fd = all[i].out, .events = POLLIN };
		}
		(void)poll(p, ARRAY_LEN(p), -1);
		for (size_t i = 0; i < BENCH_CLIENTS; i++) {
			int k = all[i].out >= 0 && p[i].revents ? spawned_step(&all[i]) : 0;

			n += k > 0;
			alive -= k != 0;
			r = k < 0 ? k : r;
		}
	} while (alive > 0);
	rate(ms_since(begin_ns) / 1e3, busy() - cpu, n, ret);
	return r;
}

/* What runs of one round have said so far. */
struct said {
	unsigned n;
	unsigned n_words; /* how many inodes each of them tells */
	char words[BENCH_CLIENTS][WORDS_MAX][24];
};

static int take_said(const struct result *r, void *arg, struct err *e)
{
	struct said *s = arg;
	auto_free char *text = NULL;
	char *save = NULL;
	size_t len;
	unsigned n = 0;

	if (keep_bytes(&r->out, &text, &len) < 0)
		return err_set(e, ERR_HOST, ENOMEM, "compare runs");
	for (char *w = strtok_r(text, " \n", &save); w && n < WORDS_MAX; w = strtok_r(NULL, " \n", &save))
		(void)snprintf(s->words[s->n][n++], sizeof(s->words[0][0]), "%s", w);
	if (n < 2 || (s->n > 0 && n != s->n_words))
		return err_set(e, ERR_BUG, 0, "a run found what was not its own, or could not tell: %.100s", text ? text : "");
	for (unsigned i = 0; i < s->n; i++) {
		for (unsigned k = 0; k < n; k++) {
			if (strcmp(s->words[i][k], s->words[s->n][k]) == 0)
				return err_set(e, ERR_BUG, 0, "two runs at the same time share namespace %s", s->words[i][k]);
		}
	}
	s->n_words = n;
	s->n++;
	return 0;
}

int bench_fresh(struct supervisor *s, const struct job *j, unsigned *ret_n, struct err *e)
{
	struct run *runs[BENCH_CLIENTS] = { NULL };
	int r = 0;

	*ret_n = 0;
	for (unsigned round = 0; round < FRESH_ROUNDS && r >= 0; round++) {
		struct said said = { .n = 0 };
		unsigned alive = 0;

		for (; alive < BENCH_CLIENTS && r >= 0; alive += r >= 0)
			r = run_start(s, j, false, NULL, &runs[alive], e);
		while (r >= 0 && alive > 0) {
			r = steps(runs, take_said, &said, e);
			alive -= r > 0 ? (unsigned)r : 0;
		}
		*ret_n += said.n;
	}
	abandon(runs);
	return r < 0 ? r : 0;
}

/* Its place in nested process namespaces: how deep, and its number in the innermost.  Return: whether it could be read */
static bool place(const char *pid, unsigned *ret_depth, unsigned long *ret_inner)
{
	char path[64];
	char text[4096];
	char *at;

	*ret_depth = 0;
	(void)snprintf(path, sizeof(path), "/proc/%.20s/status", pid);
	if (fd_read_at(AT_FDCWD, path, text, sizeof(text)) <= 0)
		return false;
	at = strstr(text, "\nNSpid:");
	if (!at)
		return false;
	at += sizeof("\nNSpid:") - 1;
	while (*at == '\t') {
		*ret_inner = strtoul(at, &at, 10);
		(*ret_depth)++;
	}
	return true;
}

static unsigned long pss_kib(const char *pid)
{
	unsigned long kib = 0;
	char path[64];
	char text[2048];
	char *at;

	(void)snprintf(path, sizeof(path), "/proc/%.20s/smaps_rollup", pid);
	if (fd_read_at(AT_FDCWD, path, text, sizeof(text)) <= 0)
		return 0;
	at = strstr(text, "\nPss:");
	return at && sscanf(at, "\nPss: %lu", &kib) == 1 ? kib : 0;
}

unsigned long bench_parked(unsigned *ret_n)
{
	unsigned own = 0;
	unsigned long inner = 0;
	unsigned long kib = 0;
	bool is_whole = true;
	DIR *d = opendir("/proc");
	struct dirent *entry;

	*ret_n = 0;
	if (!place("self", &own, &inner))
		is_whole = false;
	while (d && is_whole && (entry = readdir(d)) != NULL) {
		unsigned long parent;
		unsigned long one;
		unsigned depth;

		/* two namespaces below us, the supervisor's and the sandbox's; and our supervisor's inner half's child */
		if (entry->d_name[0] < '1' || entry->d_name[0] > '9' || !place(entry->d_name, &depth, &inner) ||
		    depth != own + 2)
			continue;
		(void)cpu_of(entry->d_name, &parent);
		if (generation(parent) != 3)
			continue;
		one = pss_kib(entry->d_name);
		is_whole = one > 0;
		kib += one;
		*ret_n += inner == 1;
	}
	if (d)
		(void)closedir(d);
	return is_whole && *ret_n ? kib / *ret_n : 0;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a;
	double y = *(const double *)b;

	return (x > y) - (x < y);
}

void bench_sort(struct bench_row *r)
{
	qsort(r->ms, r->n, sizeof(r->ms[0]), compare);
}

double bench_quantile(const struct bench_row *r, double q)
{
	size_t at = (size_t)(q * (double)r->n);

	return r->n ? r->ms[at < r->n ? at : r->n - 1] : 0;
}
