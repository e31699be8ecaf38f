/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "request_support.h"

struct job_rules rules;

int setup(void **state)
{
	(void)state;
	job_rules_init(&rules);
	return 0;
}

void takes(const char *json, struct job *ret)
{
	struct job_error e = { 0 };
	int r = job_parse(json, strlen(json), &rules, ret, &e);

	if (r != 0)
		fail_msg("%s\n gave %d: %s", json, r, e.message);
}

void refuses_text(const char *json, size_t len, const char *message)
{
	struct job j;
	struct job untouched;
	struct job_error e = { 0 };
	int r;

	memset(&j, 0x5a, sizeof(j));
	untouched = j;
	r = job_parse(json, len, &rules, &j, &e);
	if (r != -EINVAL || strcmp(e.message, message) != 0)
		fail_msg("%.300s\n gave %d: %s\n not: %s", json, r, e.message, message);
	assert_memory_equal(&j, &untouched, sizeof(j));
	assert_true(e.field[0] && e.given[0] && e.allowed[0]);
}

void refuses(const char *json, const char *message)
{
	refuses_text(json, strlen(json), message);
}

void refuses_field(const char *field, const char *message)
{
	char json[2000];

	(void)snprintf(json, sizeof(json), "{\"script_content\": \"pass\", %s}", field);
	refuses(json, message);
}
