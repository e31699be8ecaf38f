/* SPDX-License-Identifier: Apache-2.0 */
/* A result as the JSON object of cloche(1); the four outputs that every caller wants stand first. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "job/json.h"
#include "job/result.h"
#include "job/text.h"

/* One stream as it is shown, made once: its text comes first in the object, the facts about it later. */
struct stream {
	char *bytes; /* owned */
	size_t len;
	bool has_errors;
};

/*
 * struct writer - the object while it grows
 * @r: first failure, 0 so far; everything after a failure does nothing
 */
struct writer {
	struct buf b;
	int r;
};

static void PRINTF_LIKE(2, 3) put(struct writer *w, const char *fmt, ...)
{
	char *text;
	va_list ap;
	int n;

	if (w->r < 0)
		return;
	va_start(ap, fmt);
	n = vasprintf(&text, fmt, ap);
	va_end(ap);
	if (n < 0) {
		w->r = -ENOMEM;
		return;
	}
	w->r = buf_add(&w->b, text, (size_t)n);
	free(text);
}

/* put_bytes() - a string of any bytes.  Return: whether they were no UTF-8 */
static bool put_bytes(struct writer *w, const char *data, size_t len)
{
	bool has_errors = false;

	if (w->r == 0)
		w->r = job_json_add_bytes(&w->b, data, len, &has_errors);
	return has_errors;
}

static void put_string(struct writer *w, const char *s)
{
	(void)put_bytes(w, s ? s : "", s ? strlen(s) : 0);
}

static void put_base64(struct writer *w, const char *data, size_t len)
{
	char *text = w->r == 0 ? base64_encode(data, len) : NULL;

	if (w->r == 0 && !text)
		w->r = -ENOMEM;
	if (w->r == 0)
		w->r = buf_add(&w->b, "\"", 1);
	if (w->r == 0)
		w->r = buf_add(&w->b, text, strlen(text));
	if (w->r == 0)
		w->r = buf_add(&w->b, "\"", 1);
	free(text);
}

static void put_seconds(struct writer *w, const char *name, uint64_t ns)
{
	put(w, ", \"%s\": ", name);
	if (w->r == 0)
		w->r = job_json_add_seconds(&w->b, ns);
}

static const char *bool_text(bool b)
{
	return b ? "true" : "false";
}

/* media_type() - by suffix; what isn't in the table is bytes */
static const char *media_type(const char *name)
{
	static const char *const types[][2] = {
		{ "csv", "text/csv" },
		{ "gif", "image/gif" },
		{ "gz", "application/gzip" },
		{ "htm", "text/html" },
		{ "html", "text/html" },
		{ "jpeg", "image/jpeg" },
		{ "jpg", "image/jpeg" },
		{ "json", "application/json" },
		{ "jsonl", "application/x-ndjson" },
		{ "log", "text/plain" },
		{ "md", "text/markdown" },
		{ "pdf", "application/pdf" },
		{ "png", "image/png" },
		{ "py", "text/x-python" },
		{ "svg", "image/svg+xml" },
		{ "tsv", "text/tab-separated-values" },
		{ "txt", "text/plain" },
		{ "webp", "image/webp" },
		{ "xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet" },
		{ "xml", "application/xml" },
		{ "zip", "application/zip" },
	};
	const char *slash = strrchr(name, '/');
	const char *dot = strrchr(slash ? slash : name, '.');

	for (size_t i = 0; dot && i < ARRAY_LEN(types); i++)
		if (strcasecmp(dot + 1, types[i][0]) == 0)
			return types[i][1];
	return "application/octet-stream";
}

static void put_artifacts(struct writer *w, const struct result *r)
{
	put(w, ", \"artifacts\": [");
	for (size_t i = 0; i < r->n_artifacts; i++) {
		const struct artifact *a = &r->artifacts[i];

		put(w, "%s{\"name\": ", i ? ", " : "");
		put_string(w, a->name);
		put(w, ", \"size\": %" PRIu64 ", \"media_type\": \"%s\", ", a->size,
		    media_type(a->name ? a->name : ""));
		if (a->left_out) {
			put(w, "\"left_out\": ");
			put_string(w, a->left_out);
		} else {
			put(w, "\"base64\": ");
			put_base64(w, a->body.data, a->body.len);
		}
		put(w, "}");
	}
	put(w, "]");
}

static void put_warnings(struct writer *w, const struct result *r)
{
	put(w, ", \"denials\": null, \"warnings\": [");
	for (size_t i = 0; i < r->n_warnings; i++) {
		put(w, "%s", i ? ", " : "");
		put_string(w, r->warnings[i]);
	}
	put(w, "]");
}

/* put_verdict() - what became of the run, and under which name it is logged */
static void put_verdict(struct writer *w, const struct result *r)
{
	char buf[24];

	put(w, ", \"return_code\": %d", r->return_code);
	put_seconds(w, "execution_time", r->execution_ns);
	put(w, ", \"status\": \"%s\", \"message\": ", status_name(r->status));
	put_string(w, r->message);
	if (r->signal)
		put(w, ", \"signal\": \"%s\"", signal_name(r->signal, buf, sizeof(buf)));
	else
		put(w, ", \"signal\": null");
	put(w, ", \"script_name\": ");
	put_string(w, r->script_name);
	put(w, ", \"run_id\": ");
	put_string(w, r->run_id);
	put(w, ", \"mode\": \"%s\"", job_mode_name(r->mode));
}

static void put_usage(struct writer *w, const struct result *r)
{
	put_seconds(w, "cpu_time", r->cpu_ns);
	if (r->has_peak_memory)
		put(w, ", \"peak_memory_bytes\": %" PRIu64, r->peak_memory_bytes);
	else
		put(w, ", \"peak_memory_bytes\": null");
	put_seconds(w, "queue_time", r->queue_ns);
	put(w, ", \"stdout_bytes\": %" PRIu64 ", \"stderr_bytes\": %" PRIu64, r->out.total, r->err.total);
}

static void put_streams(struct writer *w, const struct result *r, struct stream *out, struct stream *err)
{
	put(w, "{\"stdout\": ");
	out->has_errors = put_bytes(w, out->bytes, out->len);
	put(w, ", \"stderr\": ");
	err->has_errors = put_bytes(w, err->bytes, err->len);
	put_verdict(w, r);
	put_usage(w, r);
	put(w, ", \"stdout_truncated\": %s, \"stderr_truncated\": %s", bool_text(keep_is_truncated(&r->out)),
	    bool_text(keep_is_truncated(&r->err)));
	put(w, ", \"stdout_encoding_errors\": %s, \"stderr_encoding_errors\": %s", bool_text(out->has_errors),
	    bool_text(err->has_errors));
	if (r->output != JOB_OUTPUT_BASE64)
		return;
	put(w, ", \"stdout_base64\": ");
	put_base64(w, out->bytes, out->len);
	put(w, ", \"stderr_base64\": ");
	put_base64(w, err->bytes, err->len);
}

char *result_write(const struct result *r)
{
	struct writer w = { 0 };
	struct stream out = { 0 };
	struct stream err = { 0 };

	buf_init(&w.b, SIZE_MAX / 2);
	w.r = keep_bytes(&r->out, &out.bytes, &out.len);
	if (w.r == 0)
		w.r = keep_bytes(&r->err, &err.bytes, &err.len);
	put_streams(&w, r, &out, &err);
	put_artifacts(&w, r);
	put_warnings(&w, r);
	put(&w, "}");
	free(out.bytes);
	free(err.bytes);
	if (w.r < 0) {
		buf_done(&w.b);
		return NULL;
	}
	return w.b.data; /* taken over from the buffer */
}
