/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "job/request.h"
#include "run/run.h"

/* The measuring half of `cloche bench`: bench.c.  Times are milliseconds. */

#define BENCH_CLIENTS 8

/* One row of latencies. */
struct bench_row {
	const char *name;
	size_t n;
	double ms[512]; /* sorted by bench_sort() */
};

struct bench_rate {
	double per_second;
	double cpu_ms; /* of all our processes, this one included, for each run */
};

/* bench_spawn() - start a program without arguments but @arg (NULL: none), read its output to the end, reap it.  Return: 0 or -errno */
int bench_spawn(const char *program, const char *arg, double *ret_ms) MUST_CHECK;

/* bench_run() - one run of @j in a sandbox.  Return: 0 or -errno with @e (also: it did not exit with 0, or was not warm) */
int bench_run(struct supervisor *s, const struct job *j, double *ret_ms, struct err *e) MUST_CHECK;

/* bench_rate_runs(), bench_rate_spawn() - BENCH_CLIENTS at a time for @seconds */
int bench_rate_runs(struct supervisor *s, const struct job *j, double seconds, struct bench_rate *ret, struct err *e)
	MUST_CHECK;
int bench_rate_spawn(const char *program, const char *arg, double seconds, struct bench_rate *ret) MUST_CHECK;

/*
 * bench_fresh() - BENCH_CLIENTS runs of @j at a time, several times over
 * @j: prints the inodes of its namespaces and what else is in its /tmp, and stays for a moment
 * @ret_n: how many runs said so; all of them: no two that lived together had one of those in common, and none found anything
 *
 * Return: 0 or -errno with @e, which also tells of a run that was not fresh.
 */
int bench_fresh(struct supervisor *s, const struct job *j, unsigned *ret_n, struct err *e) MUST_CHECK;

/* bench_parked() - KiB (PSS) of one parked sandbox, all its processes, on average; 0: can't be read here */
unsigned long bench_parked(unsigned *ret_n);

void bench_sort(struct bench_row *r);
double bench_quantile(const struct bench_row *r, double q);
