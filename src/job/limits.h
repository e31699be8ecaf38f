/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
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

/* What an environment lays over the defaults, for what a request leaves open (borrowed from the configuration). */
struct job_profile {
	const char *name;
	struct job_limits limits; /* 0 in a field: not set here */
	int mode;                 /* enum job_mode, for requests with "auto" */
};

/* What this installation gives by default and allows at most (configuration: NAME and max_NAME). */
struct job_rules {
	struct job_limits defaults;
	struct job_limits max; /* 0: what the host has */
	uint64_t timeout_ns;
	uint64_t max_timeout_ns;
	uint64_t max_script_bytes;
	const struct job_profile *profiles; /* borrowed; the environments there are. None: any name is taken */
	size_t n_profiles;
};

/* How a limit is written by people, and what one unit of it is in struct job_limits. */
enum limit_unit {
	LIMIT_BYTES,   /* bytes */
	LIMIT_SECONDS, /* nanoseconds */
	LIMIT_CPUS,    /* thousandths */
	LIMIT_COUNT,   /* itself */
};

/*
 * struct limit_def - one line of the table that request, configuration and messages share
 * @min:     smallest value that is allowed
 * @ceiling: largest that any configuration allows, so that nothing overflows
 * @words:   what is counted, for messages ("bytes", "processes")
 */
struct limit_def {
	const char *name;
	const char *words;
	enum limit_unit unit;
	bool is_wide; /* uint64_t in struct job_limits, else uint32_t */
	size_t offset;
	uint64_t initial;
	uint64_t min;
	uint64_t ceiling;
};

#define LIMIT_DEFS 9
#define TIMEOUT_CEILING_NS (UINT64_C(100000000) * UINT64_C(1000000000))

extern const struct limit_def limit_defs[LIMIT_DEFS];

/* job_rules_init() - the defaults of cloche.ini(5) */
void job_rules_init(struct job_rules *r);

/* limit_find() - the line of that name; NULL: no such limit */
const struct limit_def *limit_find(const char *name);

uint64_t limit_get(const struct job_limits *l, const struct limit_def *d);
void limit_put(struct job_limits *l, const struct limit_def *d, uint64_t value);

/* limit_max() - what @r allows at most: the configured maximum, else the ceiling */
uint64_t limit_max(const struct job_rules *r, const struct limit_def *d);

/* limit_scale() - how much one byte, second, CPU or piece is in struct job_limits */
uint64_t limit_scale(enum limit_unit u);

/* limit_words() - "a whole number, at least 16777216, at most 536870912 bytes" into @buf */
void limit_words(const struct limit_def *d, uint64_t max, char *buf, size_t size);

/* scaled_text() - @value / @scale as a decimal without needless zeros ("1.5") into @buf.  Return: @buf */
const char *scaled_text(uint64_t value, uint64_t scale, char *buf, size_t size);
