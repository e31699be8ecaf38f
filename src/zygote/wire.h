/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "sandbox/spec.h"

/*
 * What crosses between the supervisor, a zygote and its children: SEQPACKET messages, plain structs.
 *
 * A zygote is an environment's own interpreter, started once, that forks the processes in which scripts run.
 *
 *   supervisor -> zygote   ZYGOTE_SETUP once, with the names of the modules to import; then ZYGOTE_FORK, each with
 *                          descriptors: the sandbox's init (pidfd), 0, 1, 2, the child's end of its job socket, then
 * the control group (v1: each `tasks`; v2: the folder).  Its end: the zygote ends. zygote -> supervisor   ZYGOTE_READY
 * once; then ZYGOTE_FORKED for each ZYGOTE_FORK, in their order child -> supervisor    on its job socket: struct
 * zygote_parked, or struct step_fail and its end supervisor -> child    struct zygote_go with the job's bundle (behind
 * it, or a sealed memfd).  Then the child speaks as a cold one does (sandbox/inside.h): end-of-file when the script begins, else
 * a struct step_fail.
 */
#define ZYGOTE_CONTROL   3              /* the zygote's end of its control socket */
#define ZYGOTE_EXTENSION 4              /* the extension module, open, until it is loaded */
#define ZYGOTE_NAMES     32768          /* bytes of module names, at most */
#define ZYGOTE_PATHS     16384          /* bytes of paths, at most */
#define ZYGOTE_BODY_MAX  4096           /* bytes of a bundle that travels in the message itself */
#define ZYGOTE_SCRIPT    "/tmp/main.py" /* where its own program is, in a mount namespace of its own */
#define ZYGOTE_PID_MIN   300 /* OpenSSL tells a fork by its pid: no sandbox's first processes have such a one */

enum zygote_word { ZYGOTE_SETUP = 1, ZYGOTE_READY, ZYGOTE_FORK, ZYGOTE_FORKED };

/* ZYGOTE_SETUP: names, each with one NUL.  ZYGOTE_READY: what is imported beyond a bare interpreter's, in the same
 * form. */
struct zygote_modules {
	uint32_t word;
	uint32_t version;  /* ZYGOTE_READY: PY_VERSION_HEX of the interpreter */
	uint32_t len;      /* of names */
	uint32_t n_failed; /* ZYGOTE_READY: the first so many names could not be imported */
	uint8_t is_plain;  /* ZYGOTE_READY: all of them are the standard library's */
	uint8_t pad[3];
	uint32_t paths_len; /* ZYGOTE_READY: behind the names, of where modules come from: folders and files */
	char names[ZYGOTE_NAMES + ZYGOTE_PATHS];
};

struct zygote_fork {
	uint32_t word;
	uint32_t tag; /* comes back in the answer */
	struct sandbox_spec spec;
	uint32_t n_ids;       /* of the home: 1 means that the caller's id is mapped alone */
	uint32_t cpu_seconds; /* RLIMIT_CPU; 0: none */
	int32_t cpu;          /* as in struct inside */
	uint8_t has_cgroup_ns;
	uint8_t has_landlock;
	uint8_t has_proc;
	uint8_t is_sampled;
	uint8_t is_cgroup_v2; /* the last descriptor is for CLONE_INTO_CGROUP */
	uint8_t is_touched;   /* touch the pages that every script touches before parking: memory for time */
	uint8_t pad[2];
};

struct zygote_forked {
	uint32_t word;
	uint32_t tag;
	int32_t pid; /* as the supervisor sees it; 0: none */
	int32_t sys; /* errno, when there is none */
};

struct zygote_parked { /* with its listener (seccomp.h), if there is one */
	uint32_t word; /* ZYGOTE_READY */
};

struct zygote_go {
	uint8_t is_buffered; /* sys.stdout is not to be unbuffered, as it is in a zygote */
	uint8_t pad[7];
	char body[ZYGOTE_BODY_MAX]; /* as much as was sent */
};
