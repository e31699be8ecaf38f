/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

/* Limits of one run; every value is valid (no "unset") except where 0 is said to mean something. */
struct job_limits {
	uint64_t memory_bytes;
	uint64_t cpu_ns;    /* "cpu_seconds"; 0: none */
	uint32_t cpu_milli; /* "cpus" times 1000 */
	uint32_t processes;
	uint64_t disk_bytes;
	uint32_t disk_files;
	uint32_t open_files;
	uint64_t output_bytes;
	uint64_t output_bytes_hard;
};

/* What this installation gives by default and allows at most (configuration: NAME and max_NAME). */
struct job_rules {
	struct job_limits defaults;
	struct job_limits max; /* 0: what the host has */
	uint64_t timeout_ns;
	uint64_t max_timeout_ns;
	uint64_t max_script_bytes;
};

/* job_rules_init() - the contract's defaults */
void job_rules_init(struct job_rules *r);
