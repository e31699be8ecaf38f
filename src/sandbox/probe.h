/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "sandbox/home.h"

/* The walls and limits of a sandbox, in the order in which they are told. */
enum probe_wall {
	PROBE_USER,
	PROBE_OWN_UID,
	PROBE_PID,
	PROBE_MOUNT,
	PROBE_NETWORK,
	PROBE_IPC,
	PROBE_UTS,
	PROBE_CGROUP_NS,
	PROBE_PROC,
	PROBE_CAPABILITIES,
	PROBE_NO_NEW_PRIVS,
	PROBE_SECCOMP,
	PROBE_LANDLOCK,
	PROBE_MEMORY,
	PROBE_PROCESSES,
	PROBE_CPU,
	PROBE_DISK,
	PROBE_WALLS,
};

enum probe_state { PROBE_FULL, PROBE_WEAK, PROBE_MISSING };

struct probe_report {
	int32_t state;
	char detail[200]; /* how it holds here, or why it does not */
	char remedy[320];
};

/* probe_name(), probe_what() - "landlock", and what it protects */
const char *probe_name(enum probe_wall w);
const char *probe_what(enum probe_wall w);

/* probe_home() - what the set-up already showed: fills every report with the home's state */
void probe_home(const struct home *home, struct probe_report *ret);

/*
 * probe_demand() - does this host's state satisfy what the caller asks?
 * @require: names that must hold in full ("cgroup": memory, processes and cpu by control groups), NULL-terminated
 * @allow:   names that may be missing, NULL-terminated; never the user, mount, pid, seccomp or no_new_privs walls
 *
 * Return: 0, or -errno with @e naming the wall, why it is not there and the remedy.
 */
int probe_demand(const struct probe_report *reports, const char *const *require, const char *const *allow,
		 struct err *e) MUST_CHECK;

/*
 * probe_inside() - look from inside: called in a locked-down child, tries what each wall must refuse
 *
 * Writes one byte per wall (enum probe_state) on @out, nothing else.  Return: 0 or -errno.
 */
int probe_inside(const struct home *home, int out);

/* probe_wall_of_step() - which wall a failed step of the set-up or the lock-down belongs to; -1: none alone */
int probe_wall_of_step(const char *step);

/*
 * probe_namespaces() - namespaces could not be made all at once: try each alone, in a process that ends at once
 * @is_outer: with a user namespace, as an ordinary user must
 *
 * Return: the first that is refused, or -1.
 */
int probe_namespaces(bool is_outer);

/* probe_failed() - nothing can run because of @wall (-1: none alone): fills every report; the remedy goes into @e too
 */
void probe_failed(int wall, struct probe_report *reports, struct err *e);

/*
 * probe_remedy() - what helps when @wall can't be had
 * @sys: errno of what failed, 0: unknown.  After a refusal this host is looked at for who refuses.
 *
 * Return: a constant of at most 319 bytes.
 */
const char *probe_remedy(enum probe_wall wall, int sys);

/* probe_why_no_home() - the supervisor's namespaces could not be made (@sys: errno): say what is in the way, with the
 * remedy */
void probe_why_no_home(int sys, struct probe_report *reports, struct err *e);
