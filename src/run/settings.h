/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "job/conf.h"
#include "run/run.h"

/*
 * The configuration in force, laid together in the order of its precedence, and what a supervisor is started with.  The
 * command line and the server read the same one.
 */
struct settings {
	struct conf conf;
	struct run_options options; /* after settings_finish(); points into conf and the arrays below */
	struct run_environment *environments; /* owned */
	const char **lists;                   /* owned; every NULL-terminated list, one behind the other */
};

/*
 * settings_load() - /etc/cloche/cloche.ini, the user's cloche.ini, then CLOCHE_SECTION_KEY variables
 * @variables: "K=V", NULL-terminated; CLOCHE_CONFIG, XDG_CONFIG_HOME and HOME of it say where the user's file is
 *
 * Return: 0, or -errno with @e set (ERR_INVALID: a file or setting is wrong).  settings_done() in every case.
 */
int settings_load(struct settings *ret, char *const *variables, struct err *e) MUST_CHECK;

/* The two files of settings_load(). */
enum settings_file { SETTINGS_SYSTEM, SETTINGS_USER };

/* settings_open() - one of them, as @variables name it.  Return: a descriptor (the caller's); -ENOENT: none; -errno */
int settings_open(enum settings_file which, char *const *variables) MUST_CHECK;

/*
 * settings_load_by() - as settings_load(), with files that somebody else opens
 * @open_file: returns what settings_open() does
 */
int settings_load_by(struct settings *ret, char *const *variables, int (*open_file)(void *userdata, enum settings_file which),
		     void *userdata, struct err *e) MUST_CHECK;

/* settings_load_files() - these files alone over the defaults, as an administrator's (maxima allowed); NULL-terminated */
int settings_load_files(struct settings *ret, char *const *files, struct err *e) MUST_CHECK;

/* settings_finish() - check the whole and fill @s->options; after it @s->conf stays as it is.  Return: as settings_load() */
int settings_finish(struct settings *s, struct err *e) MUST_CHECK;

void settings_done(struct settings *s);

/*
 * settings_digest() - the same number for the same settings of runs ([server], [http] and [history] are left out), never 0
 *
 * By it a caller and a server find out whether a run would be the same there.  No protection against forgery.
 */
uint64_t settings_digest(const struct settings *s);
