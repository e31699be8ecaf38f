/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "sandbox/outside.h"
#include "zygote/wire.h"

/*
 * The supervisor's hold on its zygotes (zygote/wire.h): starting one, asking it for a parked process, giving that a
 * job. Nothing here waits: poll sock and pidfd, and a child's status.
 */

struct zygote_plan {
	const char *python;         /* absolute, as a job's SANDBOX_EXEC and first SANDBOX_ARG name it */
	const char *const *env;     /* "K=V", NULL-terminated, in a job's order; with PYTHONUNBUFFERED=1 */
	const char *const *modules; /* NULL-terminated */
	int extension;              /* _cloche.abi3.so, open for reading; borrowed */
};

struct zygote {
	unsigned environment;
	pid_t pid; /* 0: gone (reaped) */
	int pidfd; /* owned; readable: it has ended */
	int sock;  /* owned; readable: zygote_hear() */
	int says;  /* owned, non-blocking; what it and its imports print */
	bool is_ready;
	bool is_plain;       /* all its modules are the standard library's */
	uint32_t version;    /* PY_VERSION_HEX */
	uint64_t started_ns; /* CLOCK_MONOTONIC */
	uint64_t began_ns;   /* by the clock that files have their times of */
	uint64_t forks;      /* asked for */
	unsigned n_failed;   /* the first so many of modules can't be imported */
	char *modules;       /* owned; names beyond a bare interpreter's, each with one NUL */
	size_t modules_len;
	const char *paths; /* behind the modules: folders and files that they come from, each with one NUL */
	size_t paths_len;
	char **env;   /* owned; of the plan */
	char *python; /* owned; of the plan */
};

#define ZYGOTE_EMPTY                                                                                                   \
	{                                                                                                              \
		.pidfd = -1, .sock = -1, .says = -1                                                                    \
	}

/*
 * zygote_start() - a new interpreter in the files of environment @env; it will say ZYGOTE_SAID_READY
 *
 * On failure nothing is left.  Return: 0 or -errno with @e.
 */
int zygote_start(struct outside *o, unsigned env, const struct zygote_plan *plan, struct zygote *ret,
		 struct err *e) MUST_CHECK;

enum zygote_said { ZYGOTE_SAID_NOTHING, ZYGOTE_SAID_READY, ZYGOTE_SAID_FORKED, ZYGOTE_SAID_END };

/* ZYGOTE_SAID_FORKED: @pid is a child of ours, or 0 and @sys tells why there is none. */
struct zygote_news {
	uint32_t tag;
	pid_t pid;
	int sys;
};

/*
 * zygote_hear() - one word of it, when sock is readable
 *
 * ZYGOTE_SAID_END: it is of no more use (z->says may tell why): zygote_stop() it.  Answers that are still due never
 * come; a child that was made for one has its job socket all the same, and is reaped by zygote_reap_strays(). Return:
 * enum zygote_said.
 */
int zygote_hear(struct zygote *z, struct zygote_news *ret) MUST_CHECK;

/* zygote_last_words() - the last line that it printed, "" if none; @ret: NUL-terminated */
void zygote_last_words(const struct zygote *z, char *ret, size_t size);

/*
 * zygote_ask() - a process of this zygote's for the sandbox @s, which must be ready
 * @tag:  comes back with ZYGOTE_SAID_FORKED
 * @fds:  become its 0, 1, 2 (pipes that the sandbox's user owns; borrowed)
 * @ret:  pid and pidfd are set by zygote_adopt(); status is the job socket
 *
 * Return: 0 or -errno with @e (-EAGAIN: too many are asked for already).
 */
int zygote_ask(const struct outside *o, struct zygote *z, struct sandbox *s, uint32_t tag, bool is_touched,
	       const int fds[3], struct sandbox_child *ret, struct err *e) MUST_CHECK;

/* zygote_adopt() - @pid, from ZYGOTE_SAID_FORKED, is this child.  Return: 0 or -errno with @e */
int zygote_adopt(struct sandbox_child *c, pid_t pid, struct err *e) MUST_CHECK;

/*
 * zygote_parked() - when a child's status is readable for the first time
 *
 * Return: 1 it is locked down and waits for zygote_go(), 0 nothing yet, -errno with @e (a failed step, or it has
 * ended).
 */
int zygote_parked(struct sandbox_child *c, struct err *e) MUST_CHECK;

/*
 * zygote_go() - give it the job; its time begins now
 * @bundle: a sealed memfd, as in struct sandbox_task; -1: it is the @len bytes at @body, at most ZYGOTE_BODY_MAX; borrowed
 *
 * Return: 0 or -errno.
 */
int zygote_go(struct sandbox_child *c, int bundle, const char *body, size_t len, bool is_buffered) MUST_CHECK;

/*
 * zygote_fits() - may this job be given to this zygote's children?
 * @ret_is_buffered: for zygote_go()
 *
 * Return: NULL, or why it must go cold: a sentence's end ("env sets PYTHONHASHSEED").
 */
const char *zygote_fits(const struct zygote *z, const char *bundle, size_t len, bool *ret_is_buffered);

/*
 * zygote_sources() - the interpreter's file and what modules come from, as they are now, as far as the zygote knows
 *
 * @sum is another number when one of them has changed; @newest_ns is of CLOCK_REALTIME, as @began_ns of the zygote: the last
 * time that one of them was written, put there or changed otherwise (what is to come, by a clock that was set, is left out).
 */
struct zygote_sources {
	uint64_t sum;
	uint64_t newest_ns;
};
struct zygote_sources zygote_sources(const struct outside *o, const struct zygote *z, const char *python);

/*
 * zygote_reap_strays() - reap ended children that nobody knows: those of a zygote that died before it could tell
 *
 * They must be gone before their sandbox's init can be reaped.  A known one that has ended stops the search until it is
 * reaped by its owner; call it again then.
 */
void zygote_reap_strays(bool (*is_known)(pid_t pid, void *arg), void *arg);

/* zygote_stop() - kill, reap, give everything back; takes half-built ones.  Its children are not touched. */
void zygote_stop(struct zygote *z);
