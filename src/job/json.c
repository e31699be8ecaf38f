/* SPDX-License-Identifier: Apache-2.0 */
#include "job/json.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job/refuse.h"
#include "job/text.h"

#define DEPTH_MAX  32     /* a request has three levels */
#define VALUES_MAX 262144 /* more than args and env can hold in their mebibyte */
#define LEVELS     3      /* that a field's name is made from, counted from 1 */

/* Integers are read as doubles: exact up to 2^53, above every ceiling, and one path for 5, 5.0 and 1e30. */
#define FLAGS (JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL | JSON_DECODE_ANY)

static int add_chunk(const char *data, size_t len, void *b)
{
	return buf_add(b, data, len) < 0 ? -1 : 0;
}

int job_json_add_text(struct buf *b, const char *data, size_t len)
{
	json_t *s = json_stringn(data, len);
	int r = s ? json_dump_callback(s, add_chunk, b, JSON_ENCODE_ANY) : -1;

	json_decref(s);
	return r < 0 ? -ENOMEM : 0;
}

int job_json_add_bytes(struct buf *b, const char *data, size_t len, bool *ret_errors)
{
	char *text;
	size_t text_len;
	int r = text_from_bytes(data, len, &text, &text_len, ret_errors);

	if (r < 0)
		return r;
	r = job_json_add_text(b, text, text_len);
	free(text);
	return r;
}

int job_json_add_seconds(struct buf *b, uint64_t ns)
{
	char text[48];
	uint64_t us = ns / 1000 + (ns % 1000 >= 500);

	scaled_text(us, 1000000, text, sizeof(text));
	return buf_printf(b, "%s%s", text, strchr(text, '.') ? "" : ".0") < 0 ? -ENOMEM : 0;
}

/* Where we are in a JSON text, without judging it: the parser does that. */
struct walk {
	size_t depth;
	size_t values;
	bool in_string;
	bool is_escaped;
	size_t string_start; /* behind the quote */
	struct level {
		bool is_array;
		bool has_colon; /* behind a key */
		size_t index;
		size_t key;
		size_t key_len;
		bool has_key;
	} levels[LEVELS];
};

static void walk_string(struct walk *w, struct level *l, char c, size_t i)
{
	if (w->is_escaped) {
		w->is_escaped = false;
	} else if (c == '\\') {
		w->is_escaped = true;
	} else if (c == '"') {
		w->in_string = false;
		if (l && !l->is_array && !l->has_colon) {
			l->has_key = true;
			l->key = w->string_start;
			l->key_len = i - w->string_start;
		}
	}
}

static void walk_step(struct walk *w, char c, size_t i)
{
	struct level *l = w->depth > 0 && w->depth < LEVELS ? &w->levels[w->depth] : NULL;

	if (w->in_string) {
		walk_string(w, l, c, i);
	} else if (c == '"') {
		w->in_string = true;
		w->string_start = i + 1;
	} else if (c == '{' || c == '[') {
		w->values++;
		w->depth++;
		if (w->depth < LEVELS)
			w->levels[w->depth] = (struct level) { .is_array = c == '[' };
	} else if (c == '}' || c == ']') {
		w->depth -= w->depth > 0;
	} else if (c == ',') {
		w->values++;
		if (l) {
			l->index++;
			l->has_colon = false;
			l->has_key = false;
		}
	} else if (c == ':' && l) {
		l->has_colon = true;
	}
}

/* scan() - refuse before parsing what would cost a parser dear: deep nesting and very many values */
static int scan(const char *json, size_t len, struct job_error *e)
{
	struct walk w = { 0 };

	for (size_t i = 0; i < len; i++) {
		walk_step(&w, json[i], i);
		if (w.depth > DEPTH_MAX)
			return job_refuse(e, "request", "nesting without end", "at most %d levels", DEPTH_MAX);
		if (w.values > VALUES_MAX)
			return job_refuse(e, "request", "a flood of values", "at most %d values", VALUES_MAX);
	}
	return 0;
}

/* where_is() - the field that the text at @end belongs to: "timeout", "env[\"A\"]", "args[3]"; "" for none */
static const char *where_is(const char *json, size_t end, char *buf, size_t size)
{
	struct walk w = { 0 };
	struct level *outer = &w.levels[1];
	struct level *inner = &w.levels[2];
	char name[32];
	char key[44];

	for (size_t i = 0; i < end; i++)
		walk_step(&w, json[i], i);
	buf[0] = '\0';
	if (w.depth == 0 || !outer->has_key)
		return buf;
	job_show_plain(name, sizeof(name), json + outer->key, outer->key_len);
	if (w.depth >= 2 && inner->is_array)
		(void)snprintf(buf, size, "%s[%zu]", name, inner->index);
	else if (w.depth >= 2 && inner->has_key && strcmp(name, "limits") == 0)
		(void)snprintf(buf, size, "limits.%s", job_show_plain(key, 40, json + inner->key, inner->key_len));
	else if (w.depth >= 2 && inner->has_key)
		(void)snprintf(buf, size, "%s[%s]", name,
			       job_show_text(key, sizeof(key), json + inner->key, inner->key_len));
	else
		(void)snprintf(buf, size, "%s", name);
	return buf;
}

/* refuse_text() - the parser's complaint in our words, with the field that it is about where there is one */
static int refuse_text(const char *json, size_t len, const json_error_t *je, struct job_error *e)
{
	size_t pos = je->position >= 0 && (size_t)je->position <= len ? (size_t)je->position : len;
	enum json_error_code code = json_error_code(je);
	char where[FIELD_SIZE];
	char text[80];
	char given[GIVEN_SIZE];
	const char *field = where_is(json, pos, where, sizeof(where))[0] ? where : "request";

	if (code == json_error_out_of_memory)
		return -ENOMEM;
	if (code == json_error_duplicate_key)
		return job_refuse(e, field, "a second value", "each name once in an object");
	if (code == json_error_numeric_overflow)
		return job_refuse(e, field, "a number beyond 1e308", "a number that a double can hold");
	if (code == json_error_null_byte_in_key)
		return job_refuse(e, field, "a NUL character in a name", "names without NUL (\\u0000)");
	if (strncmp(je->text, "invalid Unicode", strlen("invalid Unicode")) == 0)
		return job_refuse(e, field, "a lone surrogate (\\ud800 to \\udfff)", "surrogates in pairs only");
	if (code == json_error_end_of_input_expected) {
		(void)snprintf(given, sizeof(given), "more text behind the object (line %d, column %d)", je->line,
			       je->column);
		return job_refuse(e, "request", given, "one JSON object and nothing else");
	}
	(void)snprintf(given, sizeof(given), "%s (line %d, column %d)",
		       job_show_plain(text, sizeof(text), je->text, strlen(je->text)), je->line, je->column);
	return job_refuse(e, field, given, "JSON (RFC 8259) in UTF-8");
}

int job_json_load(const char *json, size_t len, struct json_t **ret, struct job_error *e)
{
	json_error_t je;
	json_t *value;
	int r = scan(json, len, e);

	if (r < 0)
		return r;
	value = json_loadb(json, len, FLAGS, &je);
	if (!value)
		return refuse_text(json, len, &je, e);
	*ret = value;
	return 0;
}
