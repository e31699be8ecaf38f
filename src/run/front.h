/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <sys/types.h>

#include "job/artifacts.h"
#include "run/run.h"
#include "run/wire.h"

/* The front's half, shared by its files: spawn.c (the supervisor), bundle.c (bodies), run.c (a run), verdict.c (its words). */

struct supervisor {
	pid_t pid;
	int pidfd;   /* owned; -1: it is our child */
	const struct supervisor_launcher *launcher; /* borrowed; NULL: as above */
	int control; /* owned */
	int spare[2]; /* owned; the next run's channel, if one was made ahead of time; -1: none */
	bool is_ready;
	bool has_failed;
	struct err err; /* when it has */
	struct wall_report walls[WALL_REPORTS_MAX];
	size_t n_walls;
	struct front_environment {
		char *name;
		char *python;
		char **env; /* NULL-terminated */
		struct job_limits limits; /* of a job that says nothing */
		bool has_figures; /* matplotlib is there, with our backend */
	} *environments; /* owned */
	size_t n_environments;
	char **screen; /* owned; "reject:..." first, then "report:..."; NULL-terminated */
	size_t n_reject;
	size_t n_screen;
};

/* supervisor_hear() - take what has come on the control socket; @wait: until it is ready or has failed */
void supervisor_hear(struct supervisor *s, bool wait);

struct run {
	struct supervisor *s;
	const struct job *job; /* borrowed */
	struct run_hooks hooks;
	int channel; /* owned */
	bool is_streamed;
	bool is_input_over;
	size_t input_sent;
	bool is_done;
	bool is_lost;
	bool is_cancel_asked;
	bool is_cancel_timed;
	uint64_t patience_ns; /* when a supervisor that says nothing is given up */
	struct err err;
	struct result result;
	struct wire_outcome outcome;
	struct artifacts_reader artifacts;
	size_t findings_len;
	/* from here on not cleared when it is made */
	char findings[8192]; /* of the screen, hostile; NUL-terminated */
	struct {
		struct wire_head head;
		char data[WIRE_DATA_MAX];
	} message; /* the one that was received last */
};

/* python_paths() - the folders that an interpreter needs beyond /usr (a venv, its base, a pyenv version), absolute */
#define PYTHON_PATHS_MAX 8
struct python_paths {
	char *path[PYTHON_PATHS_MAX]; /* owned */
	size_t n;
};
int python_paths(const char *python, struct python_paths *ret, struct err *e) MUST_CHECK;
void python_paths_done(struct python_paths *p);

/*
 * figures_put() - where @env has matplotlib and is to keep figures: our backend as WIRE_SETUP_COVER records
 * @paths: what python_paths() found for it
 * @ret:   whether there is any
 *
 * Return: 0 or -ENOMEM.
 */
struct pack;
int figures_put(struct pack *p, const struct run_environment *env, const struct python_paths *paths,
		bool *ret) MUST_CHECK;

/*
 * bundle_job() - a job's files, argv, environment, artifact patterns
 * @room:    WIRE_BODY_MAX bytes for a short one; NULL: it is to be a memfd in any case
 * @ret_len: how many of them are used; 0: it is a memfd
 *
 * Return: the memfd, or 0; -errno with @e.
 */
int bundle_job(const struct job *j, const struct front_environment *env, char *room, size_t *ret_len, struct err *e) MUST_CHECK;

/* bundle_environment() - the variables of a job that sets none, as WIRE_SETUP_ENV records.  Return: 0 or -ENOMEM */
int bundle_environment(struct pack *p, const struct front_environment *env) MUST_CHECK;

/* bundle_spec() - limits and network in the sandbox's form */
void bundle_spec(const struct job_limits *l, enum job_network network, struct sandbox_spec *ret);

/* bundle_screen() - the memfd of its screen.  Return: the descriptor or -errno with @e */
int bundle_screen(const struct supervisor *s, const struct front_environment *env, struct err *e) MUST_CHECK;

/* verdict_make() - the outcome's facts into the result's words.  Return: 0 or -ENOMEM */
int verdict_make(struct run *r) MUST_CHECK;
