/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "sandbox/cgroup.h"
#include "sandbox/spec.h"

/*
 * The home: the supervisor's own user namespace, with process, mount and network namespaces.
 *
 * Theory of operation.  The supervisor program starts with the caller's ids ("outer"), clones a child into new
 * namespaces, writes its id maps and waits for its end.  The network namespace takes as long as all the others and
 * more: a process of outer's makes it meanwhile, and the child enters it before it makes any sandbox.  The child
 * ("inner") captures the allowed files, becomes root of the new user namespace, builds the roots, and executes its own
 * program again: only then does the kernel count its memory as the new namespace's, so that the inits forked from it
 * can be joined although they are not dumpable.  It is PID 1: when it dies, everything below it dies.
 *
 *   as root   0..HOME_IDS-1 maps to a range of host uids that nobody uses; every slot has two of them
 *   else      0 maps to the caller alone (root without a proc to write maps through: to one id of such a range)
 */
#define HOME_IDS         8192
#define HOME_ENVS_MAX    32
#define HOME_INIT_ID(s)  (1000 + 2 * (s))
#define HOME_SLOT_ID(s)  (1001 + 2 * (s))
#define HOME_SANDBOX_UID 1000 /* inside a sandbox, always */

struct home_ids {
	uid_t uid; /* the host id that is root inside */
	gid_t gid;
	uint32_t count;    /* 1: this one alone */
	uint32_t is_given; /* not the caller's own: the outer process writes the map */
};

/* home_ids() - which ids this process can give to its namespace: a range as root where one can be mapped, else its own
 */
void home_ids(struct home_ids *ret);

/* What the inner program finds; plain data, it survives its exec. */
struct home {
	struct home_ids ids;
	struct cgroup_host cgroup;
	int32_t life;    /* end-of-file: the outer process is gone */
	int32_t network; /* where the network namespace comes from */
	int32_t n_envs;
	int32_t mnt[HOME_ENVS_MAX]; /* mount namespaces by environment; -1: the one we are in */
	uint64_t ipc_ino;           /* of the home's own namespace, which no sandbox may be in */
	uint8_t has_proc;           /* a fresh proc could be mounted */
	uint8_t has_landlock;
	uint8_t has_cgroup_ns;
	uint8_t pad;
};

/* The child, as the outer process has it. */
struct home_child {
	pid_t pid;
	int pidfd;   /* owned */
	int network; /* owned: where it waits for its network namespace */
	pid_t maker; /* of that namespace; 0: none */
};

/*
 * home_clone() - the outer half: a child in the new namespaces (and in our own leaf of a v2 hierarchy)
 * @home: in the child home->network is filled
 *
 * Return: 0 in the child; 1; -errno with @e.  In the parent home_child_done() when the child has ended.
 */
int home_clone(struct home *home, struct home_child *ret, struct err *e) MUST_CHECK;
void home_child_done(struct home_child *c);

/* home_map() - the outer half: give the child its ids */
int home_map(const struct home_child *c, const struct home_ids *ids, struct err *e) MUST_CHECK;

/* home_make_network() - the outer half: begin to make the child's network namespace, owned by its user namespace, lo up
 */
void home_make_network(struct home_child *c);

/* home_reap_maker() - the outer half, when there is nothing else to do: nothing is left of that */
void home_reap_maker(struct home_child *c);

/* home_enter_network() - the inner half: wait for that namespace and step into it.  Return: 0 or -errno with @e */
int home_enter_network(struct home *home, struct err *e) MUST_CHECK;

/* home_raise_lo() - bring lo up in the network namespace that we are in.  Return: 0 or -errno */
int home_raise_lo(void) MUST_CHECK;

/* home_become_root() - the inner half, when the ids are mapped (alone: it maps itself) */
int home_become_root(const struct home_ids *ids, struct err *e) MUST_CHECK;

/* home_exec() - run our own program again, with @state in a memfd as HOME_STATE_FD; returns only on failure */
#define HOME_STATE_FD 4
int home_exec(int self, const void *state, size_t len, struct err *e);
