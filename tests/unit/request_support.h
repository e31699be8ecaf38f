/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "job/request.h"

/* What the tests of requests share: the rules that they parse under, and how a refusal is compared. */

extern struct job_rules rules;

/* setup() - the contract's rules again, before each test */
int setup(void **state);

/* takes() - the request is valid; the caller releases @ret */
void takes(const char *json, struct job *ret);

/* refuses_text() - -EINVAL with exactly that message, and the job untouched */
void refuses_text(const char *json, size_t len, const char *message);
void refuses(const char *json, const char *message);

/* refuses_field() - the same with a script and this field beside it */
void refuses_field(const char *field, const char *message);
