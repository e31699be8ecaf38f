/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/macro.h"
#include "cli/cli.h"
#include "job/request.h"

/*
 * Words for people and programs: one line each on standard error, or the error object of cloche(1) on standard output.
 */

/* Why nothing was run, and what we exit with. */
struct refusal {
	struct job_error why;
	int status; /* enum cli_exit */
};

/* say() - "cloche: ..." and a newline on standard error; what a terminal would obey is shown (text_visible()), so it is
 * one line */
void say(const char *fmt, ...) PRINTF_LIKE(1, 2);

/* shown() - one line of what is not ours for a person at a terminal: text_visible_in() into @buf.  Return: @buf */
#define SHOWN_SIZE 768
const char *shown(char buf[SHOWN_SIZE], const char *text);

/*
 * refuse() - fill @no: "FIELD: GIVEN is not allowed: ALLOWED"; exit status 2
 * @given: as the user wrote it; NULL: nothing was given ("FIELD is missing: ALLOWED")
 *
 * Return: -EINVAL
 */
int refuse(struct refusal *no, const char *field, const char *given, const char *fmt, ...) PRINTF_LIKE(4, 5);

/* refuse_as() - @no->why was filled by job_*(): name the option @field and what was @given to it.  Return: @r */
int refuse_as(struct refusal *no, int r, const char *field, const char *given);

/* refuse_err() - fill @no from @e, with the exit status of its kind.  Return: @r */
int refuse_err(struct refusal *no, int r, const char *field, const struct err *e);

/* refuse_file() - a file that was named can't be used (@sys is an errno): status 127, 126 or 125.  Return: -@sys */
int refuse_file(struct refusal *no, const char *field, const char *path, int sys);

/* refuse_option_file() - the same for the value of an option or the configuration: status 2 or 125 */
int refuse_option_file(struct refusal *no, const char *field, const char *path, int sys);

/* refuse_memory() - Return: -ENOMEM */
int refuse_memory(struct refusal *no);

/* refusal_tell() - say it, or print the error object when @is_json.  Return: the exit status */
int refusal_tell(const struct refusal *no, bool is_json);

/* cli_exit_of() - the exit status of an error of ours */
int cli_exit_of(const struct err *e);
