/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "base/err.h"
#include "sandbox/cgroup.h"
#include "sandbox/home.h"
#include "sandbox/sample.h"
#include "sandbox/spec.h"
#include "sandbox/step.h"

/* One sandbox, seen from outside.  Every descriptor is owned; -1: none. */
struct sandbox {
	unsigned slot;
	struct sandbox_spec spec;
	pid_t init; /* 0: gone (reaped) */
	int init_fd;
	int init_sock; /* poll it: init's words (sandbox_hear()) */
	int lane;      /* which of outside's it has until its first word; -1: none */
	int tmp_dir;   /* the folders of the sandbox, to be looked at only: no path is ever opened through them */
	int shm_dir;
	int proc_dir; /* -1: no private proc */
	bool is_ready;
	bool has_proc;
	uint64_t init_cpu_ns; /* what init itself used for the mounts */
	int network;          /* its network namespace; -1: not kept open */
	bool is_counted;      /* sandbox_count() */
	bool is_watched;      /* its only process tells before it makes a socket */
	bool has_socket;      /* one was made, or may have been */
	struct cgroup cgroup;
};

#define SANDBOX_EMPTY                                                                                                  \
	{                                                                                                              \
		.init_fd = -1, .init_sock = -1, .lane = -1, .tmp_dir = -1, .shm_dir = -1, .proc_dir = -1,              \
		.network = -1,                                                                                         \
		.cgroup = CGROUP_EMPTY                                                                                 \
	}

/*
 * outside_capture() - the files of environment number @env: the allow-list and @paths (root.h)
 * outside_cover() - in it, @text is shown in the place of the file @path; both are borrowed until outside_build()
 * outside_build() - when the ids are those of our root: a mount namespace per environment, and what the host has
 * (@home)
 *
 * In this order, once, before the supervisor executes itself again.
 */
#define OUTSIDE_PATHS_MAX 32
int outside_capture(int env, const char *const *paths, size_t n_paths, struct err *e) MUST_CHECK;
void outside_cover(int env, const char *path, const char *text, size_t len);
int outside_build(struct home *home, struct err *e) MUST_CHECK;

#define OUTSIDE_NETWORKS 64
#define OUTSIDE_LANES    8

/*
 * outside_open() - @path of other files than ours, whose root is open at @root; links lead nowhere out of them
 *
 * Return: an O_PATH descriptor or -errno.
 */
int outside_open(int root, const char *path) MUST_CHECK;

/* What a sandbox takes of our descriptors, with two for a moment; the first ones more, their group's for good. */
#define SANDBOX_FDS       19
#define SANDBOX_FDS_AWAKE 8
#define SANDBOX_AWAKE     64

/* What every sandbox_create() needs. */
struct outside {
	struct home *home;      /* borrowed */
	int pid;                /* our own process namespace */
	int proc;               /* the home's /proc */
	int go;                 /* owned: where our control groups come from; -1: they are known */
	bool is_pooled;         /* long-lived: what can be used again is kept */
	bool has_fresh_network; /* the network namespace that we are in was never given to a sandbox; its lo is up */
	int networks[OUTSIDE_NETWORKS]; /* owned; namespaces with lo up in which no socket was ever made, and no process
					   is */
	unsigned n_networks;
	/*
	 * owned; low descriptors, opened with the first sandbox of a pool.  An init shares our table until it takes the first
	 * few of it for its own: a copy of all that a thousand sandboxes have costs more than the rest of it.  Its end of its
	 * socket stays at one of these meanwhile.
	 */
	int lanes[OUTSIDE_LANES];
	bool is_lane_taken[OUTSIDE_LANES];
	struct cgroup *groups; /* owned; by slot: open groups that no sandbox uses now (a slot's first run opens it) */
};

/*
 * outside_prepare() - once per supervisor, in its network namespace
 * @go: where cgroup_host_send()'s message comes; -1: home->cgroup is filled
 */
int outside_prepare(struct outside *o, struct home *home, int go, struct err *e) MUST_CHECK;

/* outside_know_groups() - wait for the control groups, the first time */
int outside_know_groups(struct outside *o, struct err *e) MUST_CHECK;

/*
 * sandbox_create() - namespaces, init, control group (the first time it waits for them); does not wait for init
 * @env: index of the environment whose files it sees
 *
 * Network namespaces are made here, by the supervisor, and so belong to the home: nobody in the sandbox can configure
 * them. The supervisor has no use for a network and stays in the one that it made last (making one is the dearest step
 * of all). On failure nothing is left.
 */
int sandbox_create(struct outside *o, unsigned slot, unsigned env, const struct sandbox_spec *spec, struct sandbox *ret,
		   struct err *e) MUST_CHECK;

enum sandbox_said { SANDBOX_SAID_NOTHING, SANDBOX_SAID_READY, SANDBOX_SAID_SWEPT, SANDBOX_SAID_END };

/*
 * sandbox_hear() - one word of init, when init_sock is readable
 * @ret_step: 24 bytes; the name of the step that has failed
 *
 * Return: enum sandbox_said, or -errno with @e (a failed step).
 */
int sandbox_hear(struct outside *o, struct sandbox *s, char *ret_step, struct err *e) MUST_CHECK;

enum sandbox_role {
	SANDBOX_MAIN,    /* the script: accounted, all limits */
	SANDBOX_SCREEN,  /* the screen: accounted, less memory and time */
	SANDBOX_COLLECT, /* the artifact collector: our own code, not accounted */
	SANDBOX_PROBE,   /* doctor's look from inside */
};

struct sandbox_child {
	pid_t pid;
	int pidfd; /* owned */
	/*
	 * owned; poll it.  EPOLLIN: the child wants to make a socket (sandbox_let_socket(); warm ones only); EPOLLHUP: every
	 * process of the script has begun to exit.  -1: nothing is told
	 */
	int listener;
	int status; /* owned; poll it: sandbox_told(); a warm child's is the zygote's business (zygote_parked()) */
	int line;   /* owned; its line in proc, by which sandbox_foresee() knows; -1: it never will */
};

#define SANDBOX_CHILD_EMPTY                                                                                            \
	{                                                                                                              \
		.pidfd = -1, .listener = -1, .status = -1, .line = -1                                                            \
	}

/* What a new process is for; all borrowed. */
struct sandbox_task {
	enum sandbox_role role;
	const char *bundle; /* a pack of the kinds of spec.h */
	size_t bundle_len;
	int fds[3]; /* become its 0, 1, 2 */
};

/*
 * sandbox_spawn() - a new process in the sandbox, locked down, then the work of its role
 *
 * It is the supervisor's own child: sandbox_reap() tells how it ended.
 */
int sandbox_spawn(struct outside *o, struct sandbox *s, const struct sandbox_task *task, struct sandbox_child *ret,
		  struct err *e) MUST_CHECK;

/*
 * sandbox_told() - what its process says of its beginning, when @c->status is readable
 *
 * Return: 1: exec has succeeded, or the helper has ended; 0: nothing more yet; -ECANCELED: the step in @ret has failed.
 */
int sandbox_told(struct sandbox_child *c, struct step_fail *ret) MUST_CHECK;

/* sandbox_count() - what is used from here on is the run's; none of its processes has begun its work.  Return: 0 or -errno with @e */
int sandbox_count(struct sandbox *s, struct err *e) MUST_CHECK;

/* sandbox_usage() - since then; nothing, if that never came */
void sandbox_usage(const struct sandbox *s, struct cgroup_usage *ret);

/*
 * sandbox_dress() - other limits for a child that is locked down and has not begun its work (NULL: for one to come)
 * @spec: differs from the sandbox's own in memory, CPU time, processes and open files at most
 *
 * Return: 0 or -errno with @e.  Where a limit of its group changes, peak and counters start anew.
 */
int sandbox_dress(struct outside *o, struct sandbox *s, const struct sandbox_child *c, const struct sandbox_spec *spec,
		  struct err *e) MUST_CHECK;

/*
 * sandbox_rouse() - open what a process joins the sandbox's control group by.  Return: 0 or -errno with @e
 * sandbox_rest() - close it, for all but the first sandboxes: those shall not wait for it, many shall fit
 */
int sandbox_rouse(const struct outside *o, struct sandbox *s, struct err *e) MUST_CHECK;
void sandbox_rest(struct sandbox *s);

/* sandbox_reap() - Return: 1 reaped, 0 still there, -errno */
int sandbox_reap(struct sandbox_child *c, siginfo_t *ret_info, struct rusage *ret_usage);

/*
 * sandbox_let_socket() - @c->listener is readable: let the call go on; from then on it is init's to do so
 *
 * Closes the listener: it must not be watched any more.  A script that makes many sockets so keeps its own init busy.
 */
void sandbox_let_socket(struct sandbox *s, struct sandbox_child *c);

/*
 * sandbox_watch_end() - have sandbox_foresee() know of @c, which is alive, if that can be
 * sandbox_foresee() - what @c, not reaped, will have exited with, when it has begun to exit.  Return: 1 with what waitpid() will tell,
 * 0: not known
 */
void sandbox_watch_end(const struct outside *o, struct sandbox_child *c);
int sandbox_foresee(const struct outside *o, const struct sandbox_child *c, int *ret_status) MUST_CHECK;

/* sandbox_signal() - to a child that is not reaped yet.  Return: 0 or -errno */
int sandbox_signal(const struct sandbox_child *c, int sig);

/* sandbox_pipe_owner() - give a pipe's end to the sandbox's user, so that it may open /dev/stdout again */
int sandbox_pipe_owner(const struct outside *o, const struct sandbox *s, int fd) MUST_CHECK;

/* sandbox_sweep() - ask init to kill and reap everything else; the answer comes by sandbox_hear() */
int sandbox_sweep(struct sandbox *s) MUST_CHECK;

/* sandbox_kill() - SIGKILL for init, and so for everything in the sandbox.  Children must be reaped before init can be.
 */
void sandbox_kill(struct sandbox *s);

/* sandbox_reap_init() - Return: 1 reaped, 0 still there */
int sandbox_reap_init(struct outside *o, struct sandbox *s, struct rusage *ret_usage);

/* sandbox_is_empty() - for sure, nothing is left in it but init (which may go on ending) */
bool sandbox_is_empty(const struct sandbox *s);

/* sandbox_has_file() - is @name, one component, a file in its /tmp; a look at it, nothing is opened */
bool sandbox_has_file(const struct sandbox *s, const char *name);

/* sandbox_is_sampled() - memory is not held by a control group */
bool sandbox_is_sampled(const struct sandbox *s);

/* sandbox_sample() - memory and CPU by looking (sample.h); @is_fair: the dear, exact way */
int sandbox_sample(const struct sandbox *s, bool is_fair, struct sample *ret) MUST_CHECK;

/* sandbox_destroy() - kill, reap (waits for init), give everything back; takes half-built ones */
void sandbox_destroy(struct outside *o, struct sandbox *s);
