/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/macro.h"

/* The socket that a server listens on. */
struct listener {
	int fd;            /* owned; -1: none */
	int lock;          /* owned; -1: none, the manager has opened the socket */
	char path[108];    /* empty: not ours to remove */
	char address[108]; /* where clients find it */
	dev_t dev;         /* of the socket in the file system */
	ino_t ino;
	bool is_roots;  /* its mode says who is let in; another user's serves its owner and root */
	bool is_others; /* somebody else removes it */
};

/*
 * listener_open() - the manager's socket (LISTEN_FDS), or one at @path
 * @path:  NULL: the usual place
 * @group: who may use root's, besides root; NULL: nobody ...
 * @front: ... but this group, which is the server's own; (gid_t)-1: none
 *
 * The folder must be ours or root's and not writable by others; a lock beside the socket keeps a second server away; a
 * socket that is there is replaced when nobody answers.
 * Return: 0, or -errno with @e set (ERR_INVALID: the path is wrong; ERR_HOST: another server, ...).
 */
int listener_open(struct listener *ret, const char *path, const char *group, gid_t front, struct err *e) MUST_CHECK;

/* listener_close() - no more connections; the socket is removed, if it is still ours */
void listener_close(struct listener *l);

/*
 * listener_remove() - take the socket's file away alone, if it is still ours
 * listener_remove_late() - the same when who held the lock has ended: not if another server has it by now
 */
void listener_remove(const struct listener *l);
void listener_remove_late(const struct listener *l);

/* listener_accept() - the next connection and its user; not blocking.  Return: the descriptor (the caller's) or -errno
 */
int listener_accept(const struct listener *l, uid_t *ret_uid) MUST_CHECK;
