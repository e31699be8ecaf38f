/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "run/supervise.h"
#include "run/zygote.h"

/*
 * Kept ready, per environment: a zygote, and sandboxes with a locked-down child of it that waits for a script.
 *
 * A parked sandbox is a work like any other, only that it has no job yet.  One that fits a job's limits is taken; else one
 * is built on demand around a fork of the zygote; and where there is no zygote (none wanted, or it has just died) the
 * run goes cold.  How many are kept follows the demand, between a minimum and a maximum.
 */
struct pool {
	struct supervise *s; /* borrowed */
	unsigned env;
	struct pool_plan plan;
	struct zygote_plan how;  /* its lists are owned; the strings are in the set-up's pack */
	struct zygote zygote;    /* serving */
	struct zygote next;      /* starting; takes its place when it is ready */
	struct watch watch[4];   /* of zygote: its word, its end; of next: the same */
	uint64_t retry_ns;       /* not started again before */
	unsigned n_deaths;       /* in a row, without one child that parked */
	uint64_t refill_ns;      /* none is made ahead before */
	unsigned n_lost;         /* of those made ahead, in a row, that did not park */
	unsigned target;         /* parked ones wanted now */
	uint64_t missed_ns;      /* when a job last found none */
	uint64_t changed;        /* of the files that it was made from; another number: they have changed */
	bool is_stale;           /* they have: what it has parked is of no use when the next one is there */
	char why[200];           /* why there is no zygote, for warnings */
};

/* pool_start() - the zygotes that the set-up asks for; @extension: -1: there is none, nothing is kept ready */
int pool_start(struct supervise *s, const char *setup, size_t len, int extension, struct err *e) MUST_CHECK;

/* pool_of() - NULL: that environment keeps nothing ready */
struct pool *pool_of(struct supervise *s, unsigned env);

/* pool_is_ready() - its zygote can be asked */
bool pool_is_ready(const struct pool *p);

/* pool_take() - a parked sandbox of these limits, or one that is being built without a job; NULL: none */
struct work *pool_take(struct pool *p, const struct wire_job *j);

/* pool_event() - of a zygote's descriptors */
void pool_event(struct supervise *s, struct watch *w, uint32_t events);

/* pool_tick() - once a second: start what is missing, replace what is old, grow and shrink */
void pool_tick(struct supervise *s);

/* pool_refill() - between two rounds of events: at most one more sandbox is begun */
void pool_refill(struct supervise *s);

/* pool_state() - for whoever asks.  Return: how many of @ret were filled */
size_t pool_state(const struct supervise *s, struct run_pool_state *ret, size_t max);

/* pool_lost() - its zygote is of no use any more: another is started, and whoever waits for a fork hears that there is none */
void pool_lost(struct pool *p, const char *what);

/*
 * pool_child_lost()   - one that was made ahead is of no use: the next one comes later, ever later
 * pool_child_parked() - a child got as far as waiting for its job: all is well
 */
void pool_child_lost(struct pool *p);
void pool_child_parked(struct pool *p);

void pool_end(struct supervise *s);
