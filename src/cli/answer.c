/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/answer.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "job/text.h"

void answer_done(struct answer *a)
{
	free(a->json);
	result_done(&a->result);
	a->json = NULL;
}

char *answer_json(struct answer *a)
{
	char *json = a->json ? a->json : result_write(&a->result);

	a->json = NULL;
	return json;
}

static const char *string_of(const json_t *o, const char *name)
{
	const char *s = json_string_value(json_object_get(o, name));

	return s ? s : "";
}

static uint64_t ns_of(const json_t *o, const char *name)
{
	double v = json_number_value(json_object_get(o, name));

	return v > 0 && v < 1e10 ? (uint64_t)(v * (double)NS_PER_SEC + 0.5) : 0;
}

static uint64_t count_of(const json_t *o, const char *name)
{
	json_int_t v = json_integer_value(json_object_get(o, name));

	return v > 0 ? (uint64_t)v : 0;
}

static int signal_of(const char *name)
{
	char buf[24];

	for (int i = 1; i <= SIGRTMAX; i++) {
		if (strcmp(signal_name(i, buf, sizeof(buf)), name) == 0)
			return i;
	}
	return 0;
}

static int status_of(const char *name)
{
	for (int i = 0; i < STATUS_MAX; i++) {
		if (strcmp(status_name((enum status)i), name) == 0)
			return i;
	}
	return -EINVAL;
}

static int read_artifact(const json_t *o, struct artifact *ret)
{
	const char *base64 = json_string_value(json_object_get(o, "base64"));

	ret->name = strdup(string_of(o, "name"));
	ret->size = count_of(o, "size");
	if (!base64)
		ret->left_out = strdup(string_of(o, "left_out"));
	if (!ret->name || (!base64 && !ret->left_out))
		return -ENOMEM;
	return base64 ? base64_decode(base64, strlen(base64), &ret->body.data, &ret->body.len) : 0;
}

static int read_artifacts(const json_t *list, struct result *r)
{
	size_t n = json_array_size(list);

	r->artifacts = calloc(n + 1, sizeof(*r->artifacts));
	if (!r->artifacts)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		int k = read_artifact(json_array_get(list, i), &r->artifacts[r->n_artifacts++]);

		if (k < 0)
			return k;
	}
	return 0;
}

static int read_warnings(const json_t *list, struct result *r)
{
	int k = 0;

	for (size_t i = 0; i < json_array_size(list) && k == 0; i++) {
		const char *s = json_string_value(json_array_get(list, i));

		k = s ? result_warn(r, "%s", s) : -EINVAL;
	}
	return k;
}

static int read_result(const json_t *o, struct result *r)
{
	int status = status_of(string_of(o, "status"));
	int mode;
	int k;

	if (status < 0)
		return -EINVAL;
	r->status = (enum status)status;
	r->return_code = (int)json_integer_value(json_object_get(o, "return_code"));
	r->signal = signal_of(string_of(o, "signal"));
	r->execution_ns = ns_of(o, "execution_time");
	r->cpu_ns = ns_of(o, "cpu_time");
	r->queue_ns = ns_of(o, "queue_time");
	r->has_peak_memory = json_is_integer(json_object_get(o, "peak_memory_bytes"));
	r->peak_memory_bytes = count_of(o, "peak_memory_bytes");
	r->out.total = count_of(o, "stdout_bytes");
	r->err.total = count_of(o, "stderr_bytes");
	(void)snprintf(r->run_id, sizeof(r->run_id), "%s", string_of(o, "run_id"));
	for (mode = JOB_MODE_AUTO; mode < JOB_MODE_COLD; mode++) {
		if (strcmp(job_mode_name((enum job_mode)mode), string_of(o, "mode")) == 0)
			break;
	}
	r->mode = (enum job_mode)mode;
	r->script_name = strdup(string_of(o, "script_name"));
	if (!r->script_name)
		return -ENOMEM;
	k = result_set_message(r, "%s", string_of(o, "message"));
	if (k == 0)
		k = read_warnings(json_object_get(o, "warnings"), r);
	return k < 0 ? k : read_artifacts(json_object_get(o, "artifacts"), r);
}

int answer_read(struct answer *a, struct err *e)
{
	json_t *o = json_loads(a->json, JSON_ALLOW_NUL, NULL);
	int r = o ? read_result(o, &a->result) : -EINVAL;

	json_decref(o);
	return r < 0 ? err_set(e, r == -ENOMEM ? ERR_HOST : ERR_BUG, -r, "read the server's result") : 0;
}

int answer_refuse(struct answer *a, const char *json, size_t len, uint32_t kind, struct err *e)
{
	json_t *root = json_loadb(json, len, 0, NULL);
	const json_t *o = json_object_get(root, "error");
	struct job_error *why = &a->no.why;
	struct err as = { .kind = (int32_t)kind };

	if (!json_is_object(o)) {
		json_decref(root);
		return err_set(e, ERR_BUG, 0, "read the server's error: it is none");
	}
	(void)snprintf(why->field, sizeof(why->field), "%s", string_of(o, "field"));
	(void)snprintf(why->given, sizeof(why->given), "%s", string_of(o, "given"));
	(void)snprintf(why->allowed, sizeof(why->allowed), "%s", string_of(o, "allowed"));
	(void)snprintf(why->message, sizeof(why->message), "%s", string_of(o, "message"));
	json_decref(root);
	a->no.status = cli_exit_of(&as);
	a->is_busy = kind == ERR_BUSY;
	a->is_refused = true;
	return 0;
}
