/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macro.h"
#include "job/keep.h"
#include "job/request.h"

enum status {
	STATUS_OK,
	STATUS_ERROR,
	STATUS_SIGNALED,
	STATUS_TIMEOUT,
	STATUS_CPU_LIMIT,
	STATUS_MEMORY_LIMIT,
	STATUS_OUTPUT_LIMIT,
	STATUS_CANCELLED,
	STATUS_REJECTED,
	STATUS_INTERNAL_ERROR,
};
#define STATUS_MAX (STATUS_INTERNAL_ERROR + 1)

#define RETURN_CODE_NOT_RUN (-125)

struct artifact {
	char *name;      /* owned, relative to /tmp; any bytes but NUL (not necessarily UTF-8) */
	uint64_t size;
	char *left_out;  /* owned; NULL: body is there */
	struct job_blob body;
};

/* One result; cloche(1) tells of each field. */
struct result {
	enum status status;
	int return_code;
	int signal; /* 0: null */
	uint64_t execution_ns;
	uint64_t cpu_ns;
	uint64_t queue_ns;
	bool has_peak_memory;
	uint64_t peak_memory_bytes;
	char *message; /* owned; NULL is "" */
	char run_id[33];
	char *script_name; /* owned */
	enum job_mode mode;
	enum job_output output;
	struct keep out; /* stdout */
	struct keep err; /* stderr */
	struct artifact *artifacts; /* owned */
	size_t n_artifacts;
	char **warnings; /* owned, each owned */
	size_t n_warnings;
};

void result_init(struct result *r, const struct job *j);
void result_done(struct result *r);

/* result_warn() - append one warning (a copy), unless the same text is there already.  Return: 0 or -ENOMEM */
int result_warn(struct result *r, const char *fmt, ...) PRINTF_LIKE(2, 3) MUST_CHECK;

/* result_set_message() - replaces; Return: 0 or -ENOMEM */
int result_set_message(struct result *r, const char *fmt, ...) PRINTF_LIKE(2, 3) MUST_CHECK;

/* result_write() - the object of cloche(1) as one line of valid JSON, no newline; heap, the caller frees; NULL: no memory */
char *result_write(const struct result *r) MUST_CHECK;

/* result_exit_status() - what `cloche run` exits with */
int result_exit_status(const struct result *r);

const char *status_name(enum status s);

/* signal_name() - "SIGKILL" of 9; "SIGRTMIN+2"; a static string or one in @buf */
const char *signal_name(int sig, char *buf, size_t size);
