/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a request.  A refusal must say why, as valid JSON; what is taken must keep its promises, and a result
 * made from the same bytes must be valid JSON.
 */
#include <errno.h>
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "job/request.h"
#include "job/result.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define must(x)                                                                                                        \
	do {                                                                                                           \
		if (!(x))                                                                                              \
			__builtin_trap();                                                                              \
	} while (0)

static void must_be_said(const char *s)
{
	must(s[0] != '\0');
	must(utf8_valid(s, strlen(s)));
	for (; *s; s++)
		must((unsigned char)*s >= 0x20 && *s != 0x7f);
}

static void check_refusal(const struct job_error *e)
{
	char *text = job_error_write(e);
	json_t *o;

	must_be_said(e->field);
	must_be_said(e->given);
	must_be_said(e->allowed);
	must_be_said(e->message);
	must(text != NULL);
	o = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	must(o != NULL && json_object_size(json_object_get(o, "error")) == 4);
	json_decref(o);
	free(text);
}

static void check_job(const struct job *j, const struct job_rules *rules)
{
	struct job_error e;

	must(j->script.len > 0 && j->script.len <= rules->max_script_bytes);
	must(strlen(j->script.data) == j->script.len && utf8_valid(j->script.data, j->script.len));
	must(j->script_name[0] != '\0' && !strchr(j->script_name, '/'));
	must(j->timeout_ns > 0 && j->timeout_ns <= rules->max_timeout_ns);
	must(j->files.n <= JOB_FILES_MAX && j->artifacts.n <= JOB_ARTIFACTS_MAX && j->input.len <= JOB_STDIN_MAX);
	for (size_t i = 0; i < j->files.n; i++)
		must(j->files.items[i].name[0] != '/' && strncmp(j->files.items[i].name, "../", 3) != 0 &&
		     !strstr(j->files.items[i].name, "/../"));
	for (size_t i = 0; i < LIMIT_DEFS; i++)
		must(limit_get(&j->limits, &limit_defs[i]) <= limit_max(rules, &limit_defs[i]));
	must(job_check(j, rules, &e) == 0);
}

/* strndup() of bytes without a NUL, which it may not be given under strict checks */
static char *text_of(const char *data, size_t size)
{
	char *text = calloc(1, size + 1);

	must(text != NULL);
	memcpy(text, data, size);
	return text;
}

static void add_artifacts(struct result *r, const struct job *j, const char *data, size_t size)
{
	r->artifacts = calloc(j->files.n + 1, sizeof(*r->artifacts));
	must(r->artifacts != NULL);
	for (size_t i = 0; i <= j->files.n; i++) {
		struct artifact *a = &r->artifacts[r->n_artifacts++];

		a->name = i < j->files.n ? strdup(j->files.items[i].name) : text_of(data, size);
		a->size = size;
		if (i % 2)
			a->left_out = text_of(data, size);
		else
			a->body = (struct job_blob) { .data = text_of(data, size), .len = strnlen(data, size) };
	}
}

/* check_result() - the input as everything that a script can choose */
static void check_result(const struct job *j, const char *data, size_t size)
{
	static const char *const first[] = { "stdout", "stderr", "return_code", "execution_time" };
	struct result r;
	char *text;
	json_t *o;
	void *it;

	result_init(&r, j);
	must(keep_add(&r.out, data, size / 2) == 0 && keep_add(&r.out, data + size / 2, size - size / 2) == 0);
	for (size_t i = 0; i < size; i++)
		must(keep_add(&r.err, data + i, 1) == 0);
	r.execution_ns = size ? (uint64_t)(uint8_t)data[0] << size % 56 : 0;
	r.signal = size ? (int)data[size - 1] : 0;
	must(result_set_message(&r, "%.*s", (int)size, data) == 0 && result_warn(&r, "%.*s", (int)size, data) == 0);
	add_artifacts(&r, j, data, size);
	text = result_write(&r);
	must(text != NULL);
	o = json_loads(text, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
	must(o != NULL);
	it = json_object_iter(o);
	for (size_t i = 0; i < ARRAY_LEN(first); i++, it = json_object_iter_next(o, it))
		must(strcmp(json_object_iter_key(it), first[i]) == 0);
	must((uint64_t)json_integer_value(json_object_get(o, "stdout_bytes")) == size);
	json_decref(o);
	free(text);
	result_done(&r);
}

static void parse(const char *data, size_t size, const struct job_rules *rules)
{
	struct job_error e = { 0 };
	struct job j = { .timeout_ns = 77 };
	struct job plain;
	int r = job_parse(data, size, rules, &j, &e);

	must(r == 0 || r == -EINVAL);
	if (r < 0) {
		must(j.timeout_ns == 77 && !j.script_name);
		check_refusal(&e);
		must(job_init(&plain, rules) == 0);
		plain.limits.output_bytes = size % 64;
		plain.output = JOB_OUTPUT_BASE64;
		check_result(&plain, data, size);
		job_done(&plain);
		return;
	}
	check_job(&j, rules);
	check_result(&j, data, size);
	job_done(&j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct job_profile profiles[] = {
		{ .name = "default" }, { .name = "sci", .limits = { .processes = 3 }, .mode = JOB_MODE_COLD }
	};
	struct job_rules rules;

	job_rules_init(&rules);
	parse((const char *)data, size, &rules);
	rules.max.memory_bytes = UINT64_C(1) << 30;
	rules.max.cpu_ns = 5;
	rules.max.processes = 64;
	rules.max_script_bytes = 20;
	rules.profiles = profiles;
	rules.n_profiles = ARRAY_LEN(profiles);
	parse((const char *)data, size, &rules);
	return 0;
}
