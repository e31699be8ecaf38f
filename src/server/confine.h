/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/macro.h"

/* Who root's server becomes: the user `cloche`, or `nobody` where that is not there. */
struct front_user {
	uid_t uid;
	gid_t gid;
	bool is_own; /* nobody else's processes are this user's */
};

void confine_find_user(struct front_user *ret);

/*
 * confine() - give up every right of root's, for good
 *
 * After:   what is opened and started as root; the launcher's start
 * Before:  the first byte of a client; the first thread
 * Should:  become that user without groups, lose all capabilities, be able to get none, be looked into by nobody, and
 *          have no use of system calls that neither the server nor its libraries make
 *
 * Return: 1; 0: all of it but another user, since this root has no other (a user namespace); -errno with @e set
 */
int confine(const struct front_user *u, struct err *e) MUST_CHECK;
