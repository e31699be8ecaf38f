/* SPDX-License-Identifier: Apache-2.0 */
/* One run of the history, for people and for pipes. */
#include "doors/history_show.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "job/text.h"

static const char *text_of(const json_t *o, const char *key)
{
	const char *text = json_string_value(json_object_get(o, key));

	return text ? text : "";
}

/* Text that came from elsewhere: as it is into a pipe or file, harmless on a terminal. */
static int put(const char *data, size_t len)
{
	auto_free char *shown = NULL;

	if (!isatty(STDOUT_FILENO))
		return fd_write_all(STDOUT_FILENO, data, len);
	shown = text_visible(data, len, true);
	return shown ? fd_write_all(STDOUT_FILENO, shown, strlen(shown)) : -ENOMEM;
}

/* What text_visible_char() made of a character in a JSON string, as JSON has it. */
static int add_escape(struct buf *b, const char *shown)
{
	unsigned long c = strtoul(shown + 2, NULL, 16);

	if (c < 0x10000)
		return buf_printf(b, "\\u%04lx", c);
	c -= 0x10000;
	return buf_printf(b, "\\u%04lx\\u%04lx", 0xd800 + (c >> 10), 0xdc00 + (c & 0x3ff));
}

int history_put_json(const char *json, size_t len)
{
	struct buf b;
	size_t n;
	int r = 0;

	if (!isatty(STDOUT_FILENO))
		return fd_write_all(STDOUT_FILENO, json, len);
	buf_init(&b, SIZE_MAX / 2);
	for (size_t i = 0; i < len && r == 0; i += n) {
		char out[TEXT_VISIBLE_CHAR];
		enum utf8_part part;
		size_t k;

		n = utf8_next(json + i, len - i, &part);
		k = text_visible_char(json + i, n, part, out);
		/* of the control characters, JSON has newlines alone: between its lines */
		r = k > n && json[i] != '\n' ? add_escape(&b, out) : buf_add(&b, json + i, n);
	}
	if (r == 0)
		r = fd_write_all(STDOUT_FILENO, b.data, b.len);
	buf_done(&b);
	return r;
}

/* @key of the result: its bytes if they were kept as such, else its text */
static int put_stream(const json_t *result, const char *key)
{
	const json_t *text = json_object_get(result, key);
	const char *base64;
	auto_free char *bytes = NULL;
	char name[32];
	size_t len = 0;

	(void)snprintf(name, sizeof(name), "%s_base64", key);
	base64 = json_string_value(json_object_get(result, name));
	if (base64 && base64_decode(base64, strlen(base64), &bytes, &len) == 0)
		return put(bytes, len);
	return put(json_string_value(text), json_string_length(text));
}

/* Whether @key's bytes were kept; @e says why not */
static bool is_kept(const json_t *run, const json_t *result, const char *key, struct err *e)
{
	char name[32];

	(void)snprintf(name, sizeof(name), "%s_bytes", key);
	if (json_is_object(result) && (json_is_true(json_object_get(run, "has_output")) ||
				       json_integer_value(json_object_get(result, name)) == 0))
		return true;
	(void)err_set(
		e, ERR_NOT_FOUND, 0,
		"%s was not kept: `cloche run` hands it on as it comes, or store_output is off, or it was too much",
		key);
	return false;
}

static int print_bodies(const struct history_show *what, const json_t *run, struct err *e)
{
	const json_t *result = json_object_get(run, "result");
	const json_t *script = json_object_get(run, "script");
	int r = 0;

	if (what->script && !json_is_string(script)) {
		(void)err_set(e, ERR_NOT_FOUND, 0, "the script was not kept: store_scripts is off, or it was too much");
		return -ENOENT;
	}
	if ((what->out && !is_kept(run, result, "stdout", e)) || (what->err && !is_kept(run, result, "stderr", e)))
		return -ENOENT;
	if (what->script)
		r = put(json_string_value(script), json_string_length(script));
	if (r == 0 && what->out)
		r = put_stream(result, "stdout");
	if (r == 0 && what->err)
		r = put_stream(result, "stderr");
	return r == 0 || r == -EPIPE ? 0 : err_set(e, ERR_HOST, -r, "standard output");
}

static int add_text(struct buf *b, const char *name, const char *text)
{
	auto_free char *shown = text_visible(text, strlen(text), false);

	return shown ? buf_printf(b, "%-13s%s\n", name, shown) : -ENOMEM;
}

static int add_number(struct buf *b, const char *name, const json_t *v, const char *unit)
{
	if (json_is_real(v))
		return buf_printf(b, "%-13s%.6f %s\n", name, json_real_value(v), unit);
	if (json_is_integer(v))
		return buf_printf(b, "%-13s%" JSON_INTEGER_FORMAT "%s%s\n", name, json_integer_value(v),
				  *unit ? " " : "", unit);
	return buf_printf(b, "%-13snot known\n", name);
}

/* "--- stdout, 12 bytes ---", and what was kept of it */
static int add_body(struct buf *b, const char *name, const json_t *body, const json_t *bytes, bool is_kept)
{
	const char *text = json_string_value(body);
	size_t len = json_string_length(body);
	auto_free char *shown = text && is_kept ? text_visible(text, len, true) : NULL;
	int r = json_is_integer(bytes) ? buf_printf(b, "\n--- %s, %" JSON_INTEGER_FORMAT " bytes%s ---\n", name,
						    json_integer_value(bytes),
						    is_kept || json_integer_value(bytes) == 0 ? "" : ", not kept")
				       : buf_printf(b, "\n--- %s%s ---\n", name, is_kept ? "" : ", not kept");

	if (r == 0 && shown)
		r = buf_printf(b, "%s%s", shown, len && text[len - 1] != '\n' ? "\n" : "");
	return r;
}

static int add_lists(struct buf *b, const json_t *result)
{
	const json_t *artifacts = json_object_get(result, "artifacts");
	const json_t *warnings = json_object_get(result, "warnings");
	const json_t *v;
	size_t i;
	int r = 0;

	json_array_foreach(artifacts, i, v)
	{
		auto_free char *shown = text_visible(text_of(v, "name"), strlen(text_of(v, "name")), false);

		if (r == 0)
			r = shown ? buf_printf(b, "%-13s%s, %" JSON_INTEGER_FORMAT " bytes\n", "artifact", shown,
					       json_integer_value(json_object_get(v, "size")))
				  : -ENOMEM;
	}
	json_array_foreach(warnings, i, v)
	{
		if (r == 0)
			r = add_text(b, "warning", json_string_value(v) ? json_string_value(v) : "");
	}
	return r;
}

static int add_page(struct buf *b, const json_t *run)
{
	static const char *const texts[][2] = {
		{ "run", "run_id" },
		{ "time", "time" },
		{ "tenant", "tenant" },
		{ "script", "script_name" },
		{ "environment", "environment" },
		{ "mode", "mode" },
		{ "status", "status" },
	};
	const json_t *result = json_object_get(run, "result");
	bool has_output = json_is_true(json_object_get(run, "has_output"));
	const json_t *script = json_object_get(run, "script");
	int r = 0;

	for (size_t i = 0; i < ARRAY_LEN(texts) && r == 0; i++)
		r = add_text(b, texts[i][0], text_of(run, texts[i][1]));
	if (r == 0)
		r = add_number(b, "return code", json_object_get(run, "return_code"), "");
	if (r == 0 && *text_of(run, "signal"))
		r = add_text(b, "signal", text_of(run, "signal"));
	if (r == 0 && *text_of(run, "message"))
		r = add_text(b, "message", text_of(run, "message"));
	if (r == 0)
		r = add_number(b, "execution", json_object_get(run, "execution_time"), "s");
	if (r == 0)
		r = add_number(b, "cpu", json_object_get(run, "cpu_time"), "s");
	if (r == 0)
		r = add_number(b, "queue", json_object_get(run, "queue_time"), "s");
	if (r == 0)
		r = add_number(b, "memory", json_object_get(run, "peak_memory_bytes"), "bytes");
	if (r == 0)
		r = add_lists(b, result);
	if (r == 0)
		r = add_body(b, "script", script, NULL, json_is_string(script));
	if (r == 0)
		r = add_body(b, "stdout", json_object_get(result, "stdout"), json_object_get(run, "stdout_bytes"),
			     has_output);
	if (r == 0)
		r = add_body(b, "stderr", json_object_get(result, "stderr"), json_object_get(run, "stderr_bytes"),
			     has_output);
	return r;
}

static int print_page(const json_t *run, struct err *e)
{
	struct buf b;
	int r;

	buf_init(&b, SIZE_MAX / 2);
	r = add_page(&b, run);
	if (r == 0)
		r = fd_write_all(STDOUT_FILENO, b.data, b.len);
	buf_done(&b);
	return r == 0 || r == -EPIPE ? 0 : err_set(e, ERR_HOST, -r, "standard output");
}

int history_show_print(const struct history_show *what, const char *json, struct err *e)
{
	json_t *run;
	int r;

	if (what->is_json) {
		r = history_put_json(json, strlen(json));
		if (r == 0)
			r = fd_write_all(STDOUT_FILENO, "\n", 1);
		return r == 0 || r == -EPIPE ? 0 : err_set(e, ERR_HOST, -r, "standard output");
	}
	run = json_loads(json, JSON_ALLOW_NUL, NULL);
	if (!run)
		return err_set(e, ERR_HOST, 0, "this run's row in the history is damaged");
	r = what->script || what->out || what->err ? print_bodies(what, run, e) : print_page(run, e);
	json_decref(run);
	return r;
}
