/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "sandbox/home.h"
#include "sandbox/spec.h"
#include "sandbox/step.h"

/*
 * PID 1 of a sandbox: mounts what is private to it, then reaps, and does nothing else.
 *
 * It is a fork of the supervisor, in the sandbox's namespaces.  It forwards no signal, believes nothing but wait, has
 * another uid than the script (root) or is not dumpable (ordinary user), and keeps its capabilities in the sandbox's
 * user namespace, so that the script, which has none, can neither trace nor change it.
 */
enum init_word {
	INIT_GO = 'g',    /* to init: the id maps are written */
	INIT_SWEEP = 'k', /* to init: kill and reap everything else in the sandbox, then say INIT_SWEPT */
	INIT_SWEPT = 's',
	INIT_SOCKETS = 'n', /* to init, with the script's listener: let its sockets be made (seccomp_load_watched()) */
	INIT_READY = 'r', /* from init: struct init_ready, with the folders /proc (if any), /tmp, /dev/shm */
	INIT_FAILED = 'f',
};

struct init_message {
	uint8_t word;
	uint8_t has_proc; /* INIT_READY: a private proc is mounted */
	uint8_t pad[6];
	uint64_t cpu_ns;       /* INIT_READY: what init itself used up to here */
	struct step_fail fail; /* INIT_FAILED */
};

/* init_let_socket() - answer one call that a listener tells of: it goes on */
void init_let_socket(int listener);

/* init_main() - never returns; @sock: its end of a SEQPACKET pair */
_Noreturn void init_main(int sock, const struct home *home, const struct sandbox_spec *spec);
