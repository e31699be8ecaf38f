/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <sys/types.h>

#include "base/pack.h"
#include "job/result.h"

/* A folder as a script may leave it, what the run asked for, and what came out. */
struct tree {
	char path[64];
	int root;
	struct pack bundle;
	struct result out;
};

/* For cmocka: a new folder, and its removal. */
int tree_setup(void **state);
int tree_teardown(void **state);

/* What the run asks for, and what is in its folder. */
void want(struct tree *t, const char *pattern);
void folder(struct tree *t, const char *name);
void file(struct tree *t, const char *name, const char *content);
void sized_file(struct tree *t, const char *name, off_t size);

/* Collect in a process of its own, as it is used.  @uid: to become first, 0: none; @descriptors: the limit, 0: none.
 * Return: 0 or the positive errno */
int collect_as(struct tree *t, uid_t uid, unsigned descriptors, int out);

/* The same, and the stream read into t->out. */
void collect_limited(struct tree *t, uid_t uid, unsigned descriptors);
void collect(struct tree *t);

/* The result's entry @i, and what it has to be. */
const struct artifact *at(const struct tree *t, size_t i);
void expect_file(const struct tree *t, size_t i, const char *name, const char *content);
void expect_left_out(const struct tree *t, size_t i, const char *name, const char *reason);
