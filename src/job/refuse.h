/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "base/macro.h"
#include "job/request.h"

/* How a refusal is worded, for who refuses a request; and, inside job alone, what request.c offers to request_json.c. */

#define FIELD_SIZE sizeof(((struct job_error *)NULL)->field)
#define GIVEN_SIZE sizeof(((struct job_error *)NULL)->given)

/* job_refuse() - fill @e in its one shape; @allowed is a format.  Return: -EINVAL */
int job_refuse(struct job_error *e, const char *field, const char *given, const char *allowed, ...) PRINTF_LIKE(4, 5);

/* job_refuse_missing() - a required field is not there.  Return: -EINVAL */
int job_refuse_missing(struct job_error *e, const char *field, const char *allowed, ...) PRINTF_LIKE(3, 4);

/* job_check_pool() - no "warm" where no interpreter is kept ready (@has_pool).  Return: 0 or -EINVAL */
int job_check_pool(const struct job *j, bool has_pool, struct job_error *e) MUST_CHECK;

/*
 * job_refuse_unknown() - name the nearest of @known when one is close, all of them otherwise
 * @noun: "an unknown field"; or NULL: @name is a value of @field, shown quoted
 */
int job_refuse_unknown(struct job_error *e, const char *field, const char *name, const char *noun,
		       const char *const *known, size_t n_known);

/* job_show_text() - "text" in quotes, printable, cut at a character with "..." when @buf is too small.  Return: @buf */
const char *job_show_text(char *buf, size_t size, const char *text, size_t len);

/* job_show_plain() - the same without quotes */
const char *job_show_plain(char *buf, size_t size, const char *text, size_t len);

/* job_show_number() - the shortest decimal that gives @v again.  Return: @buf */
const char *job_show_number(char *buf, size_t size, double v);

/* job_field_of() - field["name"], cut to fit a job_error's field.  Return: @buf */
const char *job_field_of(char buf[FIELD_SIZE], const char *field, const char *name, size_t len);

/* job_list_add() - a copy at the end; @name may be NULL.  Return: 0 or -ENOMEM */
int job_list_add(struct job_list *l, const char *name, const void *data, size_t len) MUST_CHECK;

/* job_add_env_unique(), job_add_file_unique() - for callers that know that the name is new */
int job_add_env_unique(struct job *j, const char *name, const char *value, struct job_error *e) MUST_CHECK;
int job_add_file_unique(struct job *j, const char *name, const void *data, size_t len, struct job_error *e) MUST_CHECK;

/* job_set_timeout_seconds() - @value > 0 in seconds, as a request has it */
int job_set_timeout_seconds(struct job *j, const struct job_rules *rules, double value, struct job_error *e) MUST_CHECK;

/* job_timeout_words() - what is allowed, into @buf.  Return: @buf */
const char *job_timeout_words(const struct job_rules *rules, char *buf, size_t size);

/* job_environment_name_ok() - 1 to 32 of A-Z a-z 0-9 . _ -, the first no dot or dash */
bool job_environment_name_ok(const char *name);

/* job_env_name_ok() - [A-Za-z_][A-Za-z0-9_]* */
bool job_env_name_ok(const char *name);

/* job_mode_find() - enum job_mode of its name, or -EINVAL */
int job_mode_find(const char *name);

#define JOB_ENVIRONMENT_WORDS "1 to 32 of A-Z, a-z, 0-9, \".\", \"_\", \"-\", not beginning with \".\" or \"-\""
/* Each argument and variable also costs execve a pointer and a NUL. */
#define JOB_STRING_COST 9
