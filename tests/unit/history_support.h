/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <sqlite3.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "history/history.h"

#define MIB ((size_t)1 << 20)

/* What the tests of the history share: a folder of each test's own below /tmp, a history in it, and runs to add. */

#define HISTORY_TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
int set_up(void **state);
int tear_down(void **state);

extern char folder[64];
extern char path[128];    /* of the database */
extern char said[8][512]; /* what the history had to say */
extern atomic_int n_said; /* the writer's thread counts */

/* start() - opens a history at @path; what @given leaves 0 is wide enough for any test */
struct history *start(const struct history_options *given);

/* start_default() - the same, and scripts and output are stored */
struct history *start_default(void);

/* add() - a run number @i with @bytes of output, that arrived @ago_ns before now */
void add(struct history *h, unsigned i, size_t bytes, uint64_t ago_ns);

/* settled() - until everything is written or dropped */
struct history_stats settled(struct history *h);

/* reader() - opens one of the history at @path */
struct history_reader *reader(void);

/* other() - @sql on a connection of its own, which stays open */
sqlite3 *other(const char *sql);

/* number() - the one number that @sql gives */
int64_t number(const char *sql);
