/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "job/request.h"
#include "job/result.h"

/*
 * The caller's half: a job goes to a supervisor process, bytes and an outcome come back, a result is made of them.
 * No function here forks; the supervisor is a program of its own, started by posix_spawn.
 */

/* What a Python is made of; see cloche.ini(5). */
struct run_environment {
	const char *name;
	const char *python;        /* absolute path of the interpreter */
	const char *const *paths;  /* extra read-only paths, NULL-terminated */
	const char *const *env;    /* "K=V", NULL-terminated */
	const char *const *preload; /* modules for its zygote, NULL-terminated; empty: what every script imports soonest */
	struct job_limits limits;   /* of a job that says nothing */
	bool is_cold;               /* never a zygote */
	bool keeps_figures;         /* what matplotlib shows becomes artifacts */
};

/* What is kept ready for runs to come; for one that lives long enough to need it. */
struct run_pool {
	uint32_t min;      /* parked sandboxes for each environment, at least */
	uint32_t max;      /* at most; 0: nothing is kept ready, every run is cold */
	uint32_t max_runs; /* of one zygote, until another takes its place */
};

/*
 * Who makes a supervisor's process, where that is not its user: a server that has given up the rights that it takes.
 * @userdata: for both; it has to live as long as the supervisors
 */
struct supervisor_launcher {
	void *userdata;
	/*
	 * @control:   becomes the program's control socket; borrowed
	 * @ret_pidfd: the caller's
	 * Return: 0 or -errno with @e set
	 */
	int (*launch)(void *userdata, int control, pid_t *ret_pid, int *ret_pidfd, struct err *e);
	void (*signal)(void *userdata, pid_t pid, int sig);
};

struct run_options {
	const struct run_environment *environments;
	size_t n_environments;
	const char *const *require;       /* protections that must hold in full, NULL-terminated */
	const char *const *allow_missing; /* protections that may be missing, NULL-terminated */
	const char *const *screen_report; /* names, NULL-terminated */
	const char *const *screen_reject;
	struct run_pool pool;
	const struct supervisor_launcher *launcher; /* borrowed; NULL: by posix_spawn, as our child */
	bool is_single; /* one run at a time: another one meanwhile is refused */
};

/* How an environment's pool stands. */
struct run_pool_state {
	uint32_t environment;  /* its place in run_options.environments */
	uint32_t is_ready;     /* its zygote serves */
	uint32_t parked;       /* sandboxes that wait for a job */
	uint32_t runs;         /* forks of this zygote so far */
	uint64_t age_ns;       /* of the zygote */
	uint64_t memory_bytes; /* of the zygote, Pss */
};

/* A supervisor of our own. */
struct supervisor;

/*
 * supervisor_start() - start one; returns before it is ready (runs may be started at once)
 * @o: borrowed for the call
 *
 * Return: 0 or -errno with @e set.  supervisor_stop() ends it with everything in it.
 */
int supervisor_start(const struct run_options *o, struct supervisor **ret, struct err *e) MUST_CHECK;

/*
 * supervisor_begin() - start its process before what it is for is known: the next supervisor_start() takes it over
 * supervisor_begun_end() - none will: let it go
 *
 * For a program that most probably needs one and has something else to do first; the process waits.
 */
void supervisor_begin(void);
void supervisor_begun_end(void);

/* supervisor_spawn() - its process alone, as our child: a launcher's work.  @control: borrowed.  Return: 0 or -errno with @e set */
int supervisor_spawn(int control, pid_t *ret, struct err *e) MUST_CHECK;

void supervisor_stop(struct supervisor *s);

/* supervisor_leave() - as supervisor_stop(), but does not wait for its clean-up; for a process that ends now */
void supervisor_leave(struct supervisor *s);

/* supervisor_no_more() - no further run will be started: it may end as soon as the last one has */
void supervisor_no_more(struct supervisor *s);

/*
 * supervisor_state() - how it stands, without waiting; poll supervisor_fd() for POLLIN until it is ready or has failed,
 * then for no event (POLLHUP tells its end)
 *
 * Return: 1 ready; 0 not yet; -errno with @e set: it could not start, or has ended.
 */
int supervisor_state(struct supervisor *s, struct err *e) MUST_CHECK;
int supervisor_fd(const struct supervisor *s);

/* supervisor_takes_jobs() - else so many wait in its socket that one more might have to: poll supervisor_fd() for POLLOUT */
bool supervisor_takes_jobs(const struct supervisor *s);

/* supervisor_pid() - its process, a child of ours (or of who started it for us); 0: none any more */
pid_t supervisor_pid(const struct supervisor *s);

/*
 * supervisor_pools() - what it keeps ready; asks and waits for the answer, half a second at most
 *
 * Return: how many of @ret were filled; 0: nothing is kept ready, or it did not answer.
 */
size_t supervisor_pools(struct supervisor *s, struct run_pool_state *ret, size_t max);

/*
 * supervisor_end(), supervisor_has_ended() - supervisor_stop() in two halves, for who must not wait; the first returns at
 * once, and when the second has said yes, supervisor_stop() does, too
 * @sig: 0; or a signal that helps it along (SIGTERM: it kills everything and cleans up; SIGKILL)
 */
void supervisor_end(struct supervisor *s, int sig);
bool supervisor_has_ended(struct supervisor *s);

/* One protection of this host, as `cloche doctor` tells it; found by doing. */
enum wall_state { WALL_FULL, WALL_WEAK, WALL_MISSING };

struct wall_report {
	char name[24];
	int32_t state;    /* enum wall_state */
	char what[96];    /* what it protects */
	char detail[200]; /* how it holds here, or why not */
	char remedy[320]; /* empty when nothing is to be done */
};

#define WALL_REPORTS_MAX 24

/*
 * supervisor_walls() - wait until it is ready or has failed, and tell what holds
 *
 * Also filled as far as known when the supervisor could not start (then -errno with @e set).
 */
int supervisor_walls(struct supervisor *s, struct wall_report *ret, size_t max, size_t *ret_n, struct err *e) MUST_CHECK;

/* supervisor_known_walls() - what it knew when it became ready, without waiting and without trying; borrowed.  Return: how many */
size_t supervisor_known_walls(const struct supervisor *s, const struct wall_report **ret);

/* One run under way. */
struct run;

struct run_hooks {
	void *userdata;
	/* output as it comes (stream 1 or 2); when set, nothing is kept in the result.  Return: 0, or -errno to cancel the run */
	int (*on_output)(void *userdata, int stream, const void *data, size_t len);
	bool is_hasty; /* others are waiting: supervisor_takes_jobs() has just said yes, and is not asked, with patience, again */
	uint64_t arrived_ns; /* CLOCK_MONOTONIC; what queue_time counts from; 0: now */
	const char *run_id;  /* of run_make_id(), told somebody already; copied; NULL: one is made */
};

/* run_make_id() - 128 random bits as 32 hexadecimal digits.  Return: 0 or -EIO */
int run_make_id(char ret[33]) MUST_CHECK;

/*
 * run_start() - hand a valid job over; does not wait
 * @j:         borrowed until run_finish()
 * @is_streamed: standard input comes by run_input(), not from j->input
 */
int run_start(struct supervisor *s, const struct job *j, bool is_streamed, const struct run_hooks *hooks, struct run **ret, struct err *e) MUST_CHECK;

/* run_fd(), run_events() - poll it for these events, then call run_step() */
int run_fd(const struct run *r);
short run_events(const struct run *r);

/*
 * run_wait_ms() - milliseconds, more than 0, in which something has to come; 0: run_step() gives the run up
 *
 * A supervisor answers by the end of a run's timeout and its own clean-up.  One that says nothing for 40 seconds more is
 * stuck, and so would be who waits for it.
 */
int run_wait_ms(struct run *r);

/* run_step() - take some of what has arrived, without blocking (what is left makes run_fd() readable again).  Return: 0 go on, 1 done, -errno (the run is lost: still call run_finish()) */
int run_step(struct run *r, struct err *e) MUST_CHECK;

/*
 * run_input() - more standard input; len 0: its end
 *
 * Return: bytes taken (may be fewer), -EAGAIN: not now, poll run_fd() for POLLOUT; -EPIPE: the script takes no more.
 */
ssize_t run_input(struct run *r, const void *data, size_t len) MUST_CHECK;

/* run_cancel() - ask for its end; the result will say `cancelled`.  Async-signal-safe. */
void run_cancel(struct run *r);

/* run_finish() - the result (an internal_error one if the run was lost); frees @r.  -EINVAL: refused, nothing ran.  @ret belongs to the caller: result_done() */
int run_finish(struct run *r, struct result *ret, struct err *e) MUST_CHECK;

/* run_job() - struct job -> struct result, blocking: the whole story */
int run_job(struct supervisor *s, const struct job *j, struct result *ret, struct err *e) MUST_CHECK;
