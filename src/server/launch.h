/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/macro.h"
#include "run/run.h"
#include "run/settings.h"
#include "server/confine.h"
#include "server/listen.h"

/*
 * Root's server is two processes from before the first byte of a client: the front, which has no rights and is all of
 * the server but this, and the launcher, which keeps root's and reads nothing but struct launch_ask of the front's.
 *
 *	LAUNCH_SUPERVISOR  with one socket: start a supervisor with it; answered with its pid and pidfd
 *	LAUNCH_SIGNAL      pid, number: SIGTERM or SIGKILL to one that it has started
 *	LAUNCH_SETTINGS    number: enum settings_file; answered with the file, open for reading
 *	LAUNCH_UNLISTEN    remove the server's socket from the file system
 *	LAUNCH_DOOR        start the HTTP door; answered with its pid and pidfd
 *
 * It ends, and sees to the end of all that it has started, when the front does.
 */
enum launch_what { LAUNCH_SUPERVISOR = 1, LAUNCH_SIGNAL, LAUNCH_SETTINGS, LAUNCH_UNLISTEN, LAUNCH_DOOR };

struct launch_ask {
	uint32_t what;
	int32_t pid;
	int32_t number;
};

struct launch_answer {
	int32_t error; /* 0 or -errno, with err set */
	int32_t pid;
	struct err err;
};

/* The front's hold on the launcher. */
struct launch {
	int sock;  /* owned; -1: there is none, and nobody's rights were given up */
	pid_t pid; /* our child */
	struct supervisor_launcher by;
};

/*
 * launch_split() - fork the launcher, and become the front
 * @l: the socket, listening already; only the launcher can remove it from then on
 *
 * Return: as confine().  @ret must not be moved afterwards.
 */
int launch_split(struct launch *ret, struct listener *l, const struct front_user *u, struct err *e) MUST_CHECK;

/* launch_settings() - for settings_load_by(); @userdata: struct launch */
int launch_settings(void *userdata, enum settings_file which);

/* launch_door() - @ret_pidfd: the caller's.  Return: 0 or -errno with @e set */
int launch_door(struct launch *l, pid_t *ret_pid, int *ret_pidfd, struct err *e) MUST_CHECK;

/* launch_unlisten() - waits until it is done */
void launch_unlisten(struct launch *l);

/* launch_end() - waits until the launcher has ended */
void launch_end(struct launch *l);

/* launcher_run() - the launcher, in launcher.c */
_Noreturn void launcher_run(int sock, const struct listener *l);
