/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define SANDBOX_NAME "sandbox" /* the host's, as scripts see it */

/*
 * What one sandbox may do, as plain data: it crosses sockets between our processes as it is.
 * Bodies (script, files, arguments) travel beside it, in the same message or a sealed memfd, as a pack of the kinds below.
 */
struct sandbox_spec {
	uint64_t memory_bytes;
	uint64_t cpu_ns;    /* 0: none */
	uint64_t disk_bytes;
	uint32_t cpu_milli;
	uint32_t processes;
	uint32_t disk_files;
	uint32_t open_files;
	uint8_t has_loopback; /* 0: lo is down and INET sockets are refused */
	uint8_t pad[7];
};

enum sandbox_pack {
	SANDBOX_FILE = 1, /* name: relative to /tmp; data: its content */
	SANDBOX_EXEC,     /* data: the program's absolute path */
	SANDBOX_ARG,      /* data: one of argv, argv[0] first */
	SANDBOX_ENV,      /* data: "K=V" */
	SANDBOX_ARTIFACT, /* data: a glob pattern below /tmp */
};

/* Slots number the sandboxes of one supervisor that live at the same time. */
#define SANDBOX_SLOTS 2048
