/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

#define ROOT_BINDS_MAX  48
#define ROOT_COVERS_MAX 16

/*
 * The files of an environment: an empty tmpfs and an allow-list of read-only binds on it.  It is built once per
 * environment in a mount namespace that every sandbox of it copies; a sandbox's init adds only its private mounts.
 */
struct root_tree {
	char path[512]; /* inside, without the leading slash */
	int fd;         /* owned; a detached, read-only, nosuid copy of the host's tree */
	bool is_device;
	bool is_folder;
};

/* A text that is shown in the place of one of the host's files. */
struct root_cover {
	const char *path; /* borrowed, absolute */
	const char *text; /* borrowed */
	size_t len;
};

struct root_plan {
	struct root_tree trees[ROOT_BINDS_MAX];
	size_t n;
	struct root_cover covers[ROOT_COVERS_MAX];
	size_t n_covers;
};

void root_plan_init(struct root_plan *p);
void root_plan_done(struct root_plan *p);

/*
 * root_capture() - take detached copies of everything in the allow-list and of @paths (absolute)
 *
 * Called in the new user and mount namespace, but still with the host ids of the caller: as root, folders that only root
 * may enter (a Python below /root) can be captured here and nowhere later.
 * After: clone into the namespaces.   Before: ids are changed.
 * Return: 0; -errno with @e (ERR_NOT_FOUND, ERR_ACCESS: one of @paths).
 */
int root_capture(struct root_plan *p, const char *const *paths, size_t n_paths, struct err *e) MUST_CHECK;

/* root_cover() - show @c instead; what it points to stays until root_build().  One that is too many is left out */
void root_cover(struct root_plan *p, const struct root_cover *c);

/*
 * root_build() - mount the tmpfs, put the trees in their places, make /etc and /dev, pivot, forget the host
 * @ret_has_proc: a proc of our own process namespace could be mounted at /proc; else the inherited one is kept there
 *                until each sandbox's init covers it
 *
 * After: root_capture(), ids are those of our root.   Before: the program is executed again.
 * Mustn't: look anything up in the host's tree.
 */
int root_build(struct root_plan *p, bool *ret_has_proc, struct err *e) MUST_CHECK;
