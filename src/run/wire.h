/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "run/run.h"
#include "sandbox/spec.h"
#include "zygote/wire.h"

/*
 * What crosses between a front and its supervisor: SEQPACKET messages, one struct wire_head each, longer bodies in sealed memfds.
 *
 * On the control socket (supervisor's descriptor 3):
 *   front -> supervisor   WIRE_SETUP once, with one memfd (a pack of the WIRE_SETUP_* kinds); then WIRE_JOB and WIRE_PROBE,
 *                         each with descriptors: the run's channel, its bundle (a short one is behind the struct instead),
 *                         and for a screened job the screen's bundle and the script.  Its end: no more will come; end when the last run has ended
 *                         WIRE_STATE asks for one
 *   supervisor -> front   WIRE_WALLS, then WIRE_READY; or WIRE_FAILED and its end; WIRE_STATE for each that was asked for
 * On a run's channel (its own socket pair, so that a slow reader delays nobody else):
 *   front -> supervisor   WIRE_INPUT (empty: the end of standard input); a shut-down or closed socket cancels the run
 *   supervisor -> front   WIRE_OUTPUT, WIRE_ARTIFACTS, WIRE_FINDINGS, then WIRE_OUTCOME and its end; the last of them
 *                         may be one message, WIRE_LAST, so that their reader is woken once: wire_next()
 */
enum wire_type {
	WIRE_SETUP = 1,
	WIRE_JOB,
	WIRE_PROBE,
	WIRE_STATE, /* a question, and its answer */
	WIRE_WALLS,
	WIRE_READY,
	WIRE_FAILED,
	WIRE_INPUT,
	WIRE_OUTPUT,
	WIRE_ARTIFACTS,
	WIRE_FINDINGS,
	WIRE_OUTCOME,
	WIRE_LAST, /* several messages, each behind a struct wire_part */
};

enum wire_setup {
	WIRE_SETUP_ENVIRONMENT = 1, /* data: its name; what follows up to the next one is about it */
	WIRE_SETUP_PATH,            /* data: a folder that it needs */
	WIRE_SETUP_COVER,           /* name: a file's absolute path; data: what is there instead */
	WIRE_SETUP_PYTHON,          /* data: its interpreter */
	WIRE_SETUP_ENV,             /* data: "K=V" of every job */
	WIRE_SETUP_MODULE,          /* data: a module to preload */
	WIRE_SETUP_POOL,            /* data: struct pool_plan */
	WIRE_SETUP_REQUIRE,         /* data: a protection's name */
	WIRE_SETUP_ALLOW,
	WIRE_SETUP_SINGLE,          /* no data: one run at a time */
};

/* What is kept ready for an environment. */
struct pool_plan {
	struct sandbox_spec spec; /* of the parked ones */
	uint32_t min;             /* parked ones, at least */
	uint32_t max;             /* at most; 0: no zygote at all */
	uint32_t max_runs;        /* forks of one zygote until another takes its place */
	uint32_t pad;
};

#define WIRE_DATA_MAX 61440 /* bytes of output, input or artifacts in one message */
#define WIRE_BODY_MAX ZYGOTE_BODY_MAX /* bytes of a bundle that travels in its job's message */
#define WIRE_CONTROL  3     /* the supervisor's end of the control socket */

struct wire_head {
	uint32_t type; /* enum wire_type */
	uint32_t stream; /* WIRE_OUTPUT: 1 or 2 */
};

struct wire_part {
	uint32_t len; /* of the message behind it, which is followed by what it takes to a multiple of eight */
	uint32_t pad;
};
#define WIRE_ALIGNED(len) (((size_t)(len) + 7u) & ~(size_t)7u)

/*
 * wire_next() - the messages in what came as one; call it until it says 0
 * @message: aligned as a struct wire_head
 * @at:      start with 0
 *
 * Return: the next one's length, it is at *@ret; 0: there is no other; -EBADMSG.
 */
ssize_t wire_next(const void *message, size_t len, size_t *at, const struct wire_head **ret) MUST_CHECK;

struct wire_job {
	struct wire_head head;
	struct sandbox_spec spec;
	uint32_t environment; /* index, in the order of WIRE_SETUP */
	uint8_t has_artifacts;
	uint8_t is_screened;
	uint8_t mode;     /* enum wire_mode */
	uint8_t has_figures; /* FIGURE_FIRST is looked for, too */
	uint16_t n_reject; /* the screen's first rules are those that reject */
	uint8_t has_no_input; /* standard input is at its end from the beginning; no WIRE_INPUT comes */
	uint8_t pad_2[5];
	uint64_t timeout_ns;
	uint64_t output_max; /* bytes of both streams together */
	uint64_t arrived_ns; /* CLOCK_MONOTONIC */
};

struct wire_job_message {
	struct wire_job job;
	char body[WIRE_BODY_MAX]; /* as much as was sent */
};

/* The artifacts that nobody has to ask for; the first one's name tells whether there are any. */
#define FIGURE_FIRST    "figure-1.png"
#define FIGURE_PATTERN  "figure-[0-9]*.png"
#define FIGURE_VARIABLE "MPLBACKEND=template" /* src/inside/figures.py is in its place */

enum wire_mode { WIRE_AUTO, WIRE_WARM, WIRE_COLD };

/* Why the supervisor ended a run; WIRE_CAUSE_NONE: it did not. */
enum wire_cause {
	WIRE_CAUSE_NONE,
	WIRE_CAUSE_TIMEOUT,
	WIRE_CAUSE_CPU,
	WIRE_CAUSE_MEMORY,
	WIRE_CAUSE_OUTPUT,
	WIRE_CAUSE_CANCELLED,
	WIRE_CAUSE_REJECTED,
	WIRE_CAUSE_FAILED, /* our fault or the host's: err tells */
};

struct wire_outcome {
	struct wire_head head;
	uint32_t cause;  /* enum wire_cause, written down before the first SIGKILL */
	int32_t code;    /* as waitid tells: CLD_EXITED, CLD_KILLED, CLD_DUMPED; 0: the script never ran */
	int32_t status;  /* exit status or signal */
	uint8_t has_peak;
	uint8_t is_screen_dead; /* the screen died: nothing was learned */
	uint8_t is_artifacts_cut; /* the collector died or ran out of time */
	uint8_t is_warm;
	uint64_t execution_ns;
	uint64_t queue_ns;
	uint64_t cpu_ns;
	uint64_t peak_bytes;
	uint64_t oom_kills;
	uint64_t processes_refused;
	uint64_t output_bytes[2]; /* written by the script on 1 and 2 */
	int32_t wall; /* WIRE_CAUSE_FAILED: the wall (its place in WIRE_WALLS) that could not be had; -1: none alone */
	uint32_t pad_2;
	struct err err;
	char remedy[320]; /* for it */
	char note[200]; /* for warnings: why a run went cold that need not; empty: nothing */
};

struct wire_walls {
	struct wire_head head;
	struct wall_report walls[WALL_REPORTS_MAX]; /* those with a name */
};

#define WIRE_POOLS_MAX 32

struct wire_state {
	struct wire_head head;
	uint32_t n;
	uint32_t pad;
	struct run_pool_state pools[WIRE_POOLS_MAX];
};

struct wire_failed {
	struct wire_head head;
	struct err err;
};
