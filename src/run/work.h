/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/clock.h"
#include "run/supervise.h"

/* One run, inside the supervisor: shared by work.c (birth and end), hear.c (what is heard), supervise.c (decisions), look.c (limits) and
 * pump.c (bytes). */

enum work_state {
	WORK_BUILDING,   /* init is mounting */
	WORK_SCREENING,  /* the screen reads the script */
	WORK_FORKING,    /* a zygote makes its process, which locks itself down */
	WORK_PARKED,     /* ready, without a job */
	WORK_STARTING,   /* the main process locks itself down; exec not yet seen */
	WORK_RUNNING,
	WORK_KILLING,    /* we have killed main: the cause is written down */
	WORK_SWEEPING,   /* main has ended; init kills the others */
	WORK_COLLECTING, /* the collector reads artifacts */
	WORK_ENDING,     /* everything is killed; reaping, pipes to their end */
	WORK_STATES,
};

enum work_event {
	EVENT_READY,       /* init has built the sandbox */
	EVENT_BROKEN,      /* a step failed, or init is gone */
	EVENT_PARKED,      /* the zygote's child waits for its job */
	EVENT_NO_FORK,     /* there will be no such child */
	EVENT_JOB,         /* a parked sandbox is given a job */
	EVENT_EXECUTED,    /* the child's exec has succeeded */
	EVENT_LEAVING,     /* all of the script's processes have begun to exit; main's status is known */
	EVENT_CHILD_ENDED, /* the child of this state was reaped (screen, main or collector) */
	EVENT_DEADLINE,    /* the clock of this state */
	EVENT_CPU,
	EVENT_MEMORY,
	EVENT_OUTPUT,      /* more output than allowed */
	EVENT_CANCEL,      /* the caller went away or asked */
	EVENT_SWEPT,
	EVENT_INIT_ENDED,
	EVENT_DRAINED,     /* a pipe came to its end */
	EVENTS,
};

/* One of the script's output pipes on its way to the channel. */
struct pump {
	int fd; /* owned; -1: at its end */
	uint64_t bytes;
	char *kept;  /* owned; a message that the channel has not taken yet; NULL: none */
	size_t held; /* its length */
	uint32_t type;
	uint32_t stream;
	bool is_counted; /* the bytes are the script's */
};

#define FINDINGS_MAX 8192
#ifdef CLOCHE_FAIL_STEPS
#define BUILD_NS (2 * NS_PER_SEC) /* as below: tests have no time */
#else
#define BUILD_NS (10 * NS_PER_SEC) /* a sandbox that is not built by then never will be */
#endif

struct work {
	struct supervise *s;
	enum work_state state;
	struct wire_job job;
	bool is_probe;
	bool has_job;
	struct pool *pool;  /* borrowed; NULL: cold */
	uint32_t tag;       /* what a zygote's answer names: the slot, and whose turn in it */
	bool is_parked;     /* the zygote's child has said so */
	bool is_buffered;   /* for zygote_go() */
	struct sandbox box;
	bool has_box;
	struct sandbox_child child;
	int channel; /* owned */
	int bundle_fd;      /* owned; -1: it came in its job's message */
	const char *bundle; /* owned if mapped (bundle_fd >= 0), else body */
	size_t bundle_len;
	const char *screen; /* the screen's bundle */
	size_t screen_len;
	int script; /* owned; a memfd: the screen's standard input */
	struct pump out[2];
	struct pump helper;
	int input;      /* owned; the script's standard input; -1: closed */
	int pipes[3];   /* owned; the script's ends until it is started */
	char *input_kept; /* owned; what the script has not taken yet; NULL: none */
	size_t input_held;
	size_t input_sent;
	bool is_channel_full;
	bool is_channel_gone;
	bool is_shut; /* the caller asked for the end */
	bool is_piped; /* the script has its pipes: they end by themselves */
	bool is_answered;
	int left_status;  /* at EVENT_LEAVING, as waitpid() will tell it */
	bool is_empty; /* no process of the run is left: init ends behind the answer */
	bool is_init_due; /* ... and is still to be killed */
	bool is_done; /* answered and gone; freed when the current events are through */
	char *findings; /* owned; of the screen, FINDINGS_MAX bytes; hostile */
	size_t findings_len;
	uint64_t deadline_ns; /* of this state; 0: none */
	uint64_t listen_ns;   /* when output is listened to; 0: it is, or never will be */
	uint64_t look_ns;     /* when CPU and memory are to be looked at; 0: never */
	uint64_t started_ns;
	uint64_t usage_ns;    /* of what was reaped, where no group counts */
	uint64_t peak_sampled;
	struct wire_outcome outcome;
	struct watch watch[WATCH_MAX];
	char body[WIRE_BODY_MAX]; /* a short bundle; not cleared */
};

/* work_event() - supervise.c: something happened to a run */
void work_event(struct work *w, enum work_event ev);

/*
 * Between supervise.c and warm.c
 *
 * work_enter()      enter a state; it has @ns to get on, 0: any time
 * work_start_main() the script's process by exec, in a sandbox that is ready
 * work_begin()      the script has begun, at @now: its limits hold from here on
 * work_build_late() the sandbox was not built in time
 */
void work_enter(struct work *w, enum work_state state, uint64_t ns);
void work_start_main(struct work *w);
void work_begin(struct work *w, uint64_t now);
void work_build_late(struct work *w);

/*
 * warm.c
 *
 * warm_fork()      ask the zygote for a child in a sandbox that is ready; where there can be none the run goes cold in it
 * warm_parked()    the child waits for its job
 * warm_hand_over() it gets one: its limits, the bundle; the clock starts
 * warm_lost()      no warm child after all
 * warm_late()      the zygote does not answer
 */
void warm_fork(struct work *w);
void warm_parked(struct work *w);
void warm_hand_over(struct work *w);
void warm_lost(struct work *w);
void warm_late(struct work *w);

/* work_blame() - the wall that could not be had because of @e, which is told to name it; -1: none alone */
void work_blame(struct work *w, int wall, struct err *e);

/* work_fail() - our fault, or the host's: the run ends, nothing is claimed about the script */
void work_fail(struct work *w, const struct err *e);

/* work_forked() - hear.c: the zygote's answer for this work */
struct zygote_news;
void work_forked(struct work *w, const struct zygote_news *news);

/* work_finish() - work.c: when all is killed, reaped and drained, answer; then the work is done */
void work_finish(struct work *w);

/* pump_open() - make the three pipes.  Return: 0 or -errno */
int pump_open(struct work *w) MUST_CHECK;

/* pump_start() - the child has its ends: close ours of them and listen, at once or (due_now()) in @patience_ns */
void pump_start(struct work *w, uint64_t patience_ns);

/* pump_listen() - now; the run fails where that can't be had */
void pump_listen(struct work *w);

/* pump_output() - move what one pipe has to the channel; at its end it is closed and EVENT_DRAINED raised */
void pump_output(struct work *w, struct pump *p, struct watch *watch);

/* pump_rest() - nobody can write any more: what the pipes hold.  Return: whether all of it was handed on and they are closed */
bool pump_rest(struct work *w) MUST_CHECK;

/* pump_resume() - go on reading the pipes, where nothing stands against it */
void pump_resume(struct work *w);

/* pump_channel() - the channel may be written again, or has something for us */
void pump_channel(struct work *w, uint32_t events);

/* pump_input() - standard input may be written again */
void pump_input(struct work *w);

/* pump_watch() - what the channel is watched for: room, while something is held back; input, while there is room for it */
void pump_watch(struct work *w);

/* pump_send() - one message on the channel, waiting for room is the caller's business.  Return: 0 or -errno */
int pump_send(struct work *w, const void *message, size_t len) MUST_CHECK;

/*
 * pump_hold()      - what is sent from here on, in the same event, waits for pump_send_last() if it is short
 * pump_send_last() - pump_send(), with what was held before it
 * pump_release()   - it is not the last after all: what was held is sent
 */
void pump_hold(struct work *w);
int pump_send_last(struct work *w, const void *message, size_t len) MUST_CHECK;
void pump_release(struct work *w);

/* pump_is_dry() - every byte was read and handed on */
bool pump_is_dry(const struct work *w);

void pump_close(struct work *w);
