/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macro.h"
#include "job/limits.h"

#define JOB_STDIN_MAX        (UINT64_C(16) << 20)
#define JOB_ARG_MAX          (UINT64_C(128) << 10)
#define JOB_ARGS_ENV_MAX     (UINT64_C(1) << 20)
#define JOB_FILES_MAX        256
#define JOB_ARTIFACTS_MAX    64
#define JOB_REQUEST_MAX      (UINT64_C(256) << 20) /* bytes of JSON that are looked at at all */

enum job_network { JOB_NETWORK_LOOPBACK, JOB_NETWORK_NONE };
enum job_mode { JOB_MODE_AUTO, JOB_MODE_WARM, JOB_MODE_COLD };
enum job_output { JOB_OUTPUT_TEXT, JOB_OUTPUT_BASE64 };

struct job_blob {
	char *data; /* owned, one NUL behind it */
	size_t len;
};

struct job_named {
	char *name; /* owned */
	struct job_blob body;
};

/* A list of strings or of named bodies; items are owned. */
struct job_list {
	struct job_named *items; /* args and artifacts: name is NULL; env and files: name and body */
	size_t n;
};

/* A valid request: whoever holds one need not check it again. */
struct job {
	struct job_blob script;
	char *script_name;
	uint64_t timeout_ns;
	struct job_blob input; /* standard input */
	struct job_list args;
	struct job_list env;
	struct job_list files;
	struct job_list artifacts; /* glob patterns */
	char *environment;
	struct job_limits limits;
	uint32_t limits_given; /* bit i: limit_defs[i] was asked for, not a default */
	enum job_network network;
	enum job_mode mode;
	bool is_buffered;
	enum job_output output;
};

/* Why a request was refused; @message is whole in itself: "timeout: 0 is not allowed: more than 0, at most 3600 seconds" */
struct job_error {
	char field[80];
	char given[120];
	char allowed[160];
	char message[420];
};

/* job_init() - a job with every default and no script yet */
int job_init(struct job *j, const struct job_rules *rules) MUST_CHECK;
void job_done(struct job *j);

/*
 * job_parse() - one JSON object, a request of cloche(1), to a valid job
 *
 * Unknown fields, duplicate keys, lone surrogates, NULs where they are not allowed, numbers that are not JSON are refused.
 * Return: 0; -EINVAL with @e filled and @ret untouched; -ENOMEM.
 */
int job_parse(const char *json, size_t len, const struct job_rules *rules, struct job *ret,
	      struct job_error *e) MUST_CHECK;

/*
 * The same checks field by field, for the command line; each replaces (job_set_*) or adds (job_add_*).
 * Return: 0; -EINVAL with @e filled; -ENOMEM.
 */
int job_set_script(struct job *j, const struct job_rules *rules, const void *data, size_t len,
		   struct job_error *e) MUST_CHECK;
int job_set_script_name(struct job *j, const char *name, struct job_error *e) MUST_CHECK;
int job_set_timeout_ns(struct job *j, const struct job_rules *rules, uint64_t ns, struct job_error *e) MUST_CHECK;
int job_set_input(struct job *j, const void *data, size_t len, struct job_error *e) MUST_CHECK;
int job_set_environment(struct job *j, const char *name, struct job_error *e) MUST_CHECK;
int job_set_network(struct job *j, const char *name, struct job_error *e) MUST_CHECK;
int job_set_mode(struct job *j, const char *name, struct job_error *e) MUST_CHECK;
int job_set_output(struct job *j, const char *name, struct job_error *e) MUST_CHECK;
int job_add_arg(struct job *j, const char *arg, struct job_error *e) MUST_CHECK;
int job_add_env(struct job *j, const char *name, const char *value, struct job_error *e) MUST_CHECK;
int job_add_file(struct job *j, const char *name, const void *data, size_t len, struct job_error *e) MUST_CHECK;
int job_add_artifact(struct job *j, const char *pattern, struct job_error *e) MUST_CHECK;

/* job_set_limit() - @name as in cloche.ini(5), @value in its unit (bytes, seconds, CPUs, counts) */
int job_set_limit(struct job *j, const struct job_rules *rules, const char *name, double value,
		  struct job_error *e) MUST_CHECK;

/*
 * job_apply_profile() - what the job's environment sets for limits and mode that were not asked for
 *
 * Return: 0; -EINVAL when rules name their environments and this is none of them.  job_parse() calls it.
 */
int job_apply_profile(struct job *j, const struct job_rules *rules, struct job_error *e) MUST_CHECK;

/* job_check() - the rules between fields (files against script_name and disk_bytes, args with env); job_parse() calls it */
int job_check(const struct job *j, const struct job_rules *rules, struct job_error *e) MUST_CHECK;

/* job_error_write() - {"error": {...}} as one line of JSON without newline, heap, the caller frees; NULL: no memory */
char *job_error_write(const struct job_error *e) MUST_CHECK;

/* job_mode_name(), job_network_name() - as in cloche(1) */
const char *job_mode_name(enum job_mode m);
const char *job_network_name(enum job_network n);
