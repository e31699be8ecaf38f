/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request's JSON to a job.  The order of the checks is fixed, so that the same request always gets the same answer:
 * size, shape of the text, unknown fields, fields in the order of the table below, the rules between them.
 */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job/json.h"
#include "job/refuse.h"
#include "job/request.h"
#include "job/text.h"

#define BLOB_WORDS "a string or {\"base64\": \"...\"}"

typedef int take_fn(struct job *j, const struct job_rules *rules, json_t *v, struct job_error *e);

/* show() - a JSON value as a refusal quotes it */
static const char *show(json_t *v, char *buf, size_t size)
{
	switch (json_typeof(v)) {
	case JSON_STRING:
		return job_show_text(buf, size, json_string_value(v), json_string_length(v));
	case JSON_REAL:
		return job_show_number(buf, size, json_real_value(v));
	case JSON_OBJECT:
		return "an object";
	case JSON_ARRAY:
		return "an array";
	case JSON_TRUE:
		return "true";
	case JSON_FALSE:
		return "false";
	case JSON_NULL:
		return "null";
	case JSON_INTEGER:
		break;
	}
	return "an integer";
}

static int refuse_value(struct job_error *e, const char *field, json_t *v, const char *allowed)
{
	char given[GIVEN_SIZE];

	(void)job_refuse(e, field, show(v, given, sizeof(given)), "%s", allowed);
	return -EINVAL; /* by name, so that static analysis follows it */
}

/* need_string() - @v is a string that C can hold: no NUL inside */
static int need_string(json_t *v, const char *field, const char *allowed, const char **ret, struct job_error *e)
{
	if (!json_is_string(v))
		return refuse_value(e, field, v, allowed);
	if (strlen(json_string_value(v)) != json_string_length(v)) {
		(void)job_refuse(e, field, "a NUL character", "%s, without NUL (\\u0000)", allowed);
		return -EINVAL;
	}
	*ret = json_string_value(v);
	return 0;
}

/* The bytes of a string or of {"base64": "..."}. */
struct bytes {
	const char *data;
	size_t len;
	char *owned;
};

static int need_bytes(json_t *v, const char *field, struct bytes *ret, struct job_error *e)
{
	json_t *text = json_is_object(v) ? json_object_get(v, "base64") : NULL;
	char given[GIVEN_SIZE];
	char inner[40];
	int r;

	*ret = (struct bytes) { 0 };
	if (json_is_string(v)) {
		ret->data = json_string_value(v);
		ret->len = json_string_length(v);
		return 0;
	}
	if (!text || json_object_size(v) != 1)
		return refuse_value(e, field, v, BLOB_WORDS);
	if (!json_is_string(text)) {
		(void)snprintf(given, sizeof(given), "{\"base64\": %s}", show(text, inner, sizeof(inner)));
		return job_refuse(e, field, given, BLOB_WORDS);
	}
	r = base64_decode(json_string_value(text), json_string_length(text), &ret->owned, &ret->len);
	if (r == -EINVAL)
		return refuse_value(e, field, text, "base64 of RFC 4648 with padding and without white space");
	ret->data = ret->owned;
	return r;
}

static int take_script(struct job *j, const struct job_rules *rules, json_t *v, struct job_error *e)
{
	char words[80];

	(void)snprintf(words, sizeof(words), "a string of 1 to %" PRIu64 " bytes", rules->max_script_bytes);
	if (!json_is_string(v))
		return refuse_value(e, "script_content", v, words);
	return job_set_script(j, rules, json_string_value(v), json_string_length(v), e);
}

static int take_script_name(struct job *j, const struct job_rules *rules, json_t *v, struct job_error *e)
{
	const char *s;
	int r = need_string(v, "script_name", "a plain file name", &s, e);

	(void)rules;
	return r < 0 ? r : job_set_script_name(j, s, e);
}

static int take_timeout(struct job *j, const struct job_rules *rules, json_t *v, struct job_error *e)
{
	char words[80];
	char allowed[120];

	if (json_is_real(v))
		return job_set_timeout_seconds(j, rules, json_real_value(v), e);
	(void)snprintf(allowed, sizeof(allowed), "a number of seconds, %s",
		       job_timeout_words(rules, words, sizeof(words)));
	return refuse_value(e, "timeout", v, allowed);
}

static int take_stdin(struct job *j, const struct job_rules *rules, json_t *v, struct job_error *e)
{
	struct bytes b;
	int r = need_bytes(v, "stdin", &b, e);

	(void)rules;
	if (r == 0)
		r = job_set_input(j, b.data, b.len, e);
	free(b.owned);
	return r;
}

/* take_strings() - an array of strings, one by one to @add */
static int take_strings(struct job *j, json_t *v, const char *field, const char *words,
			int (*add)(struct job *, const char *, struct job_error *), struct job_error *e)
{
	char item[FIELD_SIZE];
	const char *s;
	int r = 0;

	if (!json_is_array(v))
		return refuse_value(e, field, v, words);
	for (size_t i = 0; i < json_array_size(v) && r == 0; i++) {
		(void)snprintf(item, sizeof(item), "%s[%zu]", field, i);
		r = need_string(json_array_get(v, i), item, "a string", &s, e);
		if (r == 0)
			r = add(j, s, e);
	}
	return r;
}

static int take_args(struct job *j, const struct job_rules *rules, json_t *v, struct job_error *e)
{
	(void)rules;
	return take_strings(j, v, "args", "an array of strings", job_add_arg, e);
}

static int take_artifacts(struct job *j, const struct job_rules *rules, json_t *v, struct job_error *e)
{
	(void)rules;
	return take_strings(j, v, "artifacts", "an array of glob patterns (strings)", job_add_artifact, e);
}

static int take_env(struct job *j, const struct job_rules *rules, json_t *v, struct job_error *e)
{
	char field[FIELD_SIZE];
	const char *name;
	json_t *value;
	const char *s;
	int r;

	(void)rules;
	if (!json_is_object(v))
		return refuse_value(e, "env", v, "an object of strings");
	json_object_foreach(v, name, value)
	{
		r = need_string(value, job_field_of(field, "env", name, strlen(name)), "a string", &s, e);
		if (r == 0)
			r = job_add_env_unique(j, name, s, e);
		if (r < 0)
			return r;
	}
	return 0;
}

static int take_files(struct job *j, const struct job_rules *rules, json_t *v, struct job_error *e)
{
	char field[FIELD_SIZE];
	const char *name;
	json_t *value;
	int r;

	(void)rules;
	if (!json_is_object(v))
		return refuse_value(e, "files", v, "an object of names, each with " BLOB_WORDS);
	json_object_foreach(v, name, value)
	{
		struct bytes b;

		r = need_bytes(value, job_field_of(field, "files", name, strlen(name)), &b, e);
		if (r == 0)
			r = job_add_file_unique(j, name, b.data, b.len, e);
		free(b.owned);
		if (r < 0)
			return r;
	}
	return 0;
}

static int take_environment(struct job *j, const struct job_rules *rules, json_t *v, struct job_error *e)
{
	const char *s;
	int r = need_string(v, "environment", "the name of an environment", &s, e);

	(void)rules;
	return r < 0 ? r : job_set_environment(j, s, e);
}

static int take_limits(struct job *j, const struct job_rules *rules, json_t *v, struct job_error *e)
{
	char field[FIELD_SIZE];
	char words[140];
	const char *name;
	json_t *value;
	int r;

	if (!json_is_object(v))
		return refuse_value(e, "limits", v, "an object of numbers");
	json_object_foreach(v, name, value)
	{
		const struct limit_def *d = limit_find(name);

		if (d && !json_is_real(value)) {
			(void)snprintf(field, sizeof(field), "limits.%s", name);
			limit_words(d, limit_max(rules, d), words, sizeof(words));
			return refuse_value(e, field, value, words);
		}
		r = job_set_limit(j, rules, name, json_number_value(value), e);
		if (r < 0)
			return r;
	}
	return 0;
}

static int take_network(struct job *j, const struct job_rules *rules, json_t *v, struct job_error *e)
{
	const char *s;
	int r = need_string(v, "network", "one of loopback, none", &s, e);

	(void)rules;
	return r < 0 ? r : job_set_network(j, s, e);
}

static int take_mode(struct job *j, const struct job_rules *rules, json_t *v, struct job_error *e)
{
	const char *s;
	int r = need_string(v, "mode", "one of auto, warm, cold", &s, e);

	(void)rules;
	return r < 0 ? r : job_set_mode(j, s, e);
}

static int take_buffered(struct job *j, const struct job_rules *rules, json_t *v, struct job_error *e)
{
	(void)rules;
	if (!json_is_boolean(v))
		return refuse_value(e, "buffered", v, "true or false");
	j->is_buffered = json_is_true(v);
	return 0;
}

static int take_output(struct job *j, const struct job_rules *rules, json_t *v, struct job_error *e)
{
	const char *s;
	int r = need_string(v, "output", "one of text, base64", &s, e);

	(void)rules;
	return r < 0 ? r : job_set_output(j, s, e);
}

static const char *const names[] = {
	"script_content", "script_name", "timeout", "stdin",   "args", "env",      "files",
	"artifacts",      "environment", "limits",  "network", "mode", "buffered", "output",
};

static take_fn *const takers[ARRAY_LEN(names)] = {
	take_script,    take_script_name, take_timeout, take_stdin,   take_args, take_env,      take_files,
	take_artifacts, take_environment, take_limits,  take_network, take_mode, take_buffered, take_output,
};

static bool is_known(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (strcmp(names[i], name) == 0)
			return true;
	return false;
}

/* refuse_unknown() - a plain name stands as it is in the refusal, anything else in quotes */
static int refuse_unknown(const char *name, struct job_error *e)
{
	char field[FIELD_SIZE];
	size_t len = strlen(name);
	bool is_plain = len > 0 && len < sizeof(field) && strcspn(name, " \t\r\n\"\\:") == len;

	(is_plain ? job_show_plain : job_show_text)(field, sizeof(field), name, len);
	return job_refuse_unknown(e, field, name, "an unknown field", names, ARRAY_LEN(names));
}

static int take_all(struct job *j, const struct job_rules *rules, json_t *root, struct job_error *e)
{
	const char *name;
	json_t *value;
	int r = 0;

	json_object_foreach(root, name, value) if (!is_known(name)) return refuse_unknown(name, e);
	for (size_t i = 0; i < ARRAY_LEN(names) && r == 0; i++) {
		value = json_object_get(root, names[i]);
		if (value)
			r = takers[i](j, rules, value, e);
		else if (i == 0)
			r = job_refuse_missing(e, names[i], "a string of 1 to %" PRIu64 " bytes",
					       rules->max_script_bytes);
		json_object_del(root, names[i]); /* what is copied need not be held twice */
	}
	return r;
}

static int load(const char *json, size_t len, json_t **ret, struct job_error *e)
{
	char given[GIVEN_SIZE];

	if (len > JOB_REQUEST_MAX) {
		(void)snprintf(given, sizeof(given), "%zu bytes", len);
		return job_refuse(e, "request", given, "at most %" PRIu64 " bytes of JSON", JOB_REQUEST_MAX);
	}
	if (len == 0)
		return job_refuse(e, "request", "an empty text", "one JSON object");
	if (len >= 3 && memcmp(json, "\xef\xbb\xbf", 3) == 0)
		return job_refuse(e, "request", "a byte order mark", "JSON in UTF-8 without one");
	return job_json_load(json, len, ret, e);
}

int job_parse(const char *json, size_t len, const struct job_rules *rules, struct job *ret, struct job_error *e)
{
	json_t *root = NULL;
	struct job j = { 0 };
	int r = load(json, len, &root, e);

	if (r == 0 && root && !json_is_object(root))
		r = refuse_value(e, "request", root, "one JSON object");
	if (r == 0)
		r = job_init(&j, rules);
	if (r == 0)
		r = take_all(&j, rules, root, e);
	if (r == 0)
		r = job_apply_profile(&j, rules, e);
	if (r == 0)
		r = job_check(&j, rules, e);
	json_decref(root);
	if (r < 0) {
		job_done(&j);
		return r;
	}
	*ret = j;
	return 0;
}

char *job_error_write(const struct job_error *e)
{
	json_t *o = json_pack("{s:{s:s, s:s, s:s, s:s}}", "error", "field", e->field, "given", e->given, "allowed",
			      e->allowed, "message", e->message);
	char *text = o ? json_dumps(o, 0) : NULL;

	json_decref(o);
	return text;
}
