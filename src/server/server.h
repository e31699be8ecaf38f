/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "job/request.h"
#include "job/result.h"
#include "run/hint.h"
#include "run/native.h"
#include "run/run.h"
#include "run/settings.h"
#include "server/launch.h"
#include "server/listen.h"
#include "server/record.h"

/*
 * The server: clients, the queue, runs, and the supervisors that make them, in one thread and one epoll loop.
 *
 *	serve.c   the loop, signals, the end
 *	listen.c  the socket
 *	client.c  a connection: messages in and out, in bounded memory
 *	intake.c  a request to a valid job, or to an error
 *	admit.c   who waits, who is next
 *	work.c    a run under way: its output, its result
 *	launch.c, launcher.c, confine.c
 *	          root's server: the rights, and how all the rest goes without them
 *	door.c    the HTTP door's process
 *	keeper.c  supervisors: started, replaced, drained
 *	shared.c  their settings
 *	stats.c   what was counted, as JSON
 *	record.c  runs that have ended, into the history
 *	log.c     lines of the log
 *	notify.c  words for the service manager
 *
 * The way of a request: client_event() - intake() - admit_add() - admit_next() - work_start() - work_event() -
 * client_send().
 */

#define CLIENTS_MAX 1024

enum source_kind {
	SOURCE_LISTENER,
	SOURCE_SIGNAL,
	SOURCE_CLIENT,
	SOURCE_RUN,
	SOURCE_KEEPER,
	SOURCE_LAUNCHER,
	SOURCE_DOOR
};

/* A descriptor in the epoll set. */
struct source {
	enum source_kind kind;
	void *owner;
	int fd;          /* borrowed; -1: none */
	uint32_t events; /* watched for now; 0: not in the set */
};

/* Whose requests they are: a user's of this machine, or who a door says that they come from. */
struct tenant {
	struct tenant *next;
	uid_t uid;                        /* of the peer */
	char name[NATIVE_TENANT_MAX + 1]; /* NATIVE_TENANT; empty: the peer itself */
	uint64_t served;                  /* turn in which it was served last */
	unsigned n_clients;
	unsigned n_waiting;
	unsigned n_running;
	size_t waiting_bytes;   /* of the requests that wait */
	struct keeper *current; /* takes new runs; NULL: none is wanted, could be started, or the last one died */
	uint64_t start_at_ns;   /* when to try again to start one, if it is wanted; 0: at once */
	unsigned n_failures;    /* of supervisors, in a row */
	uint64_t no_place_ns;   /* since when there is no place for one that is wanted; 0: there is */
};

/* Settings that are in force, or were when a run began. */
struct shared {
	struct settings settings;
	uint64_t digest;
	unsigned refs;
};

/* A supervisor and what runs in it. */
struct keeper {
	struct keeper *next;
	struct tenant *tenant; /* whose current one it is; NULL: nobody's */
	struct shared *shared;
	struct supervisor *supervisor; /* owned */
	struct source source;
	unsigned n_runs;
	bool is_ready;
	uint64_t full_ns; /* since when it takes no more jobs; 0: it does */
	uint64_t started_ns;
	uint64_t idle_ns;   /* since when nothing runs in it; 0: something does */
	uint64_t ending_ns; /* since when it was told to end; 0: it was not */
	int sent;           /* the last signal that was to help */
};

/* One message on its way to a client. */
struct outgoing {
	struct outgoing *next;
	int fd; /* owned; -1: none */
	size_t len;
	char data[];
};

enum client_state { CLIENT_IDLE, CLIENT_WAITING, CLIENT_RUNNING };

/* A connection, and the one request that it may have under way. */
struct client {
	struct client *next;
	struct server *server; /* borrowed */
	struct source source;
	struct tenant *tenant;
	uid_t uid;
	enum client_state state;
	bool is_shut;         /* its sending half is: nothing more comes */
	bool is_gone;         /* the connection is closed: freed as soon as its run has ended */
	bool has_given;       /* an answer in a file, which it may not have taken yet */
	uint64_t served;      /* turn in which it was served last, or came */
	struct outgoing *out; /* owned, first to last; while there is one, nothing that would make more is read */
	struct outgoing **out_end;
	uint64_t patience_ns; /* when we give up on a client that does not read */
	/* The request: */
	uint32_t flags; /* enum native_flags */
	struct job job; /* owned, but while CLIENT_IDLE */
	size_t bytes;   /* of its text */
	uint64_t arrived_ns;
	char run_id[33]; /* of its result, whatever becomes of it */
	/* The run: */
	struct keeper *keeper;
	struct run *run; /* owned; NULL: none */
	struct source run_source;
	char *input; /* owned; standard input that the run did not take yet */
	size_t input_at;
	size_t input_len;
	bool is_input_held;   /* there is some, or its end */
	char tail[HINT_TAIL]; /* the end of stderr, of a streamed run */
	size_t tail_len;
};

/* Seconds are counted in STATS_BUCKETS, the last of them without an upper bound; see stats.c. */
#define STATS_BUCKETS 16
struct histogram {
	uint64_t counts[STATS_BUCKETS]; /* each its own, not those below it */
	uint64_t sum_ns;
};

struct stats {
	uint64_t started_ns;          /* CLOCK_MONOTONIC */
	int64_t started_at;           /* seconds since 1970 */
	uint64_t runs[STATUS_MAX][2]; /* [1]: warm */
	uint64_t n_busy;
	uint64_t n_invalid;
	struct histogram execution;
	struct histogram queue;
	struct histogram total; /* from a request's arrival to its result */
};

/* Who is asked over HTTP; see door.c. */
struct door {
	struct source source;
	pid_t pid; /* 0: it does not run */
	int pidfd; /* owned */
	uint64_t started_ns;
	uint64_t start_at_ns; /* when to try again to start it; 0: no need */
	unsigned n_failures;  /* in a row */
};

struct server {
	uid_t uid;            /* whose server it is */
	uid_t trusted;        /* who may speak for others, besides root */
	struct launch launch; /* root's: who starts supervisors */
	struct listener listener;
	struct source launch_source;
	struct source listen_source;
	struct source signal_source;
	int epoll;
	struct client *clients;
	unsigned n_clients;
	struct tenant *tenants;
	uint64_t turn;
	unsigned n_waiting;
	unsigned n_running;
	size_t waiting_bytes;
	struct stats stats;
	struct record record;
	struct door door;
	struct tenant *own;    /* the server's own user; has always a supervisor */
	struct keeper *coming; /* own's next, of settings that were read again, not ready yet */
	struct keeper *old;    /* no new runs */
	struct shared *shared; /* in force */
	uint64_t accept_at_ns; /* out of descriptors: when to accept again; 0: now */
	bool is_stopping;
	uint64_t look_at_ns;  /* when to look for runs that say nothing any more */
	uint64_t stop_at_ns;  /* when runs are cancelled */
	uint64_t flush_at_ns; /* when the last answers must have been read */
	bool has_stalled;     /* some client has something to read */
	bool is_over;
	int status; /* what we exit with */
};

/* serve.c */
int serve(const char *path);
void serve_fail_waiting(struct server *s, const struct tenant *host, const char *why);
int source_set(struct server *s, struct source *src, int fd, uint32_t events);

/* client.c */
void client_add(struct server *s, int fd, uid_t uid);
void client_event(struct server *s, struct client *c, uint32_t events);
void client_send(struct server *s, struct client *c, const struct native_head *head, const void *body, size_t len);
void client_send_text(struct server *s, struct client *c, const struct native_head *head, const char *text);
void client_watch(struct server *s, struct client *c);
void client_close(struct server *s, struct client *c);
void client_reap(struct server *s);

/* intake.c */
int intake(struct server *s, struct client *c, const char *json, size_t len);
void intake_refuse(struct server *s, struct client *c, enum err_kind kind, const struct job_error *why);
void intake_busy(struct server *s, struct client *c);
void intake_environments(struct server *s, struct client *c);

/* admit.c */
void admit_add(struct server *s, struct client *c);
void admit_leave(struct server *s, struct client *c);
void admit_next(struct server *s);
/* tenant_name() - as it named itself, or "uid-1000".  Return: @buf or borrowed */
const char *tenant_name(const struct tenant *t, char *buf, size_t size);
struct tenant *admit_tenant(struct server *s, uid_t uid, const char *name);
void admit_done(struct server *s);
unsigned admit_max(const struct server *s);

/* stats.c */
void stats_start(struct stats *st);
void stats_run(struct stats *st, const struct result *r, uint64_t total_ns);
void stats_refused(struct stats *st, enum err_kind kind);
char *stats_write(struct server *s, const struct tenant *only);

/* work.c */
void work_release(struct client *c);
void work_start(struct server *s, struct client *c);
void work_feed(struct server *s, struct client *c);
void work_input(struct server *s, struct client *c, const char *data, size_t len);
void work_event(struct server *s, struct client *c, uint32_t events);
void work_watch(struct server *s, struct client *c);
void work_cancel(struct client *c);
void work_fail(struct server *s, struct client *c, enum status status, const char *why);

/* door.c */
void door_start(struct server *s);
void door_event(struct server *s);
void door_tick(struct server *s);
void door_stop(struct server *s, int sig);
void door_end(struct server *s);

/* keeper.c */
int keeper_load(struct server *s, struct err *e) MUST_CHECK;
int keeper_start(struct server *s, struct err *e) MUST_CHECK;
void keeper_reload(struct server *s);
void keeper_event(struct server *s, struct keeper *k);
void keeper_doubt(struct server *s, struct keeper *k, const struct err *e);
void keeper_tick(struct server *s);
void keeper_join(struct keeper *k);
void keeper_leave(struct keeper *k);
struct tenant *keeper_host(const struct server *s, struct tenant *t);
struct keeper *keeper_of(const struct server *s, struct tenant *t);
bool keeper_takes(struct server *s, struct keeper *k);
uint64_t keeper_next_tick(const struct server *s);
void keeper_done(struct server *s);

/* shared.c */
struct shared *shared_load(struct server *s, struct err *e);
void shared_leave(struct shared *sh);
void shared_explain(const struct server *s, struct err *e);
