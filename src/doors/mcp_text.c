/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/mcp_text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "job/text.h"

#define LINES_MAX 12 /* of warnings, denials, files: each */

struct writer {
	struct buf *b;
	const json_t *run;
	char mark[9]; /* the beginning of the run's id */
	int r;        /* first failure: everything after it does nothing */
};

static void PRINTF_LIKE(2, 3) put(struct writer *w, const char *fmt, ...)
{
	auto_free char *text = NULL;
	va_list ap;

	if (w->r < 0)
		return;
	va_start(ap, fmt);
	w->r = vasprintf(&text, fmt, ap);
	va_end(ap);
	if (w->r < 0) {
		text = NULL;
		w->r = -ENOMEM;
		return;
	}
	w->r = buf_add(w->b, text, (size_t)w->r);
}

static const char *string_of(const json_t *object, const char *name)
{
	const char *s = json_string_value(json_object_get(object, name));

	return s ? s : "";
}

/* Words that a script or a request may have chosen: one line. */
static void put_line(struct writer *w, const char *text, size_t len)
{
	char line[600];

	put(w, "%s", text_visible_in(line, sizeof(line), text, len));
}

/* What a model should do now; NULL: nothing that the message has not said. */
static const char *advice(const json_t *run)
{
	static const char *const words[][2] = {
		{ "error", "Read the end of stderr, mend the script and call again." },
		{ "timeout",
		  "Do less in one call or make it quicker; a larger timeout helps only if your client waits as long." },
		{ "cpu_limit", "Do less in one call, or ask for more with limits.cpu_seconds." },
		{ "memory_limit", "Use less memory (work in parts), or ask for more with limits.memory_bytes." },
		{ "output_limit", "Print less; what is large belongs into a file that artifacts names." },
		{ "rejected", "This is policy: the same script would be refused again. Do it in another way." },
		{ "internal_error", "Call again; the script was not the cause." },
	};
	const char *status = string_of(run, "status");

	for (size_t i = 0; i < ARRAY_LEN(words); i++) {
		if (strcmp(words[i][0], status) == 0)
			return words[i][1];
	}
	if (strcmp(status, "ok") == 0 && json_integer_value(json_object_get(run, "stdout_bytes")) == 0 &&
	    json_array_size(json_object_get(run, "artifacts")) == 0)
		return "It printed nothing: print() what you want to see.";
	return NULL;
}

static void put_verdict(struct writer *w)
{
	const json_t *run = w->run;
	const char *message = string_of(run, "message");
	const char *next = advice(run);

	put(w, "%s: exit code %lld after %.3f s (run %s)\n", string_of(run, "status"),
	    (long long)json_integer_value(json_object_get(run, "return_code")),
	    json_number_value(json_object_get(run, "execution_time")), string_of(run, "run_id"));
	if (*message) {
		put_line(w, message, strlen(message));
		put(w, "\n");
	}
	if (next)
		put(w, "%s\n", next);
}

static void put_rest(struct writer *w, size_t n)
{
	if (n > LINES_MAX)
		put(w, "(and %zu more)\n", n - LINES_MAX);
}

/* What was refused is a rule here, not a passing fault: said so, and what to do instead. */
static void put_denials(struct writer *w)
{
	const json_t *list = json_object_get(w->run, "denials");
	const json_t *d;
	size_t i;

	json_array_foreach(list, i, d)
	{
		if (i == LINES_MAX)
			break;
		put(w, "Refused by the sandbox: ");
		put_line(w, string_of(d, "action"), strlen(string_of(d, "action")));
		put(w, " ");
		put_line(w, string_of(d, "detail"), strlen(string_of(d, "detail")));
		put(w, " (%lld times). ", (long long)json_integer_value(json_object_get(d, "count")));
		put_line(w, string_of(d, "hint"), strlen(string_of(d, "hint")));
		put(w, "\n");
	}
	put_rest(w, json_array_size(list));
}

static void put_warnings(struct writer *w)
{
	const json_t *list = json_object_get(w->run, "warnings");
	const json_t *text;
	size_t i;

	json_array_foreach(list, i, text)
	{
		if (i == LINES_MAX)
			break;
		put(w, "Note: ");
		put_line(w, json_string_value(text) ? json_string_value(text) : "", json_string_length(text));
		put(w, "\n");
	}
	put_rest(w, json_array_size(list));
}

static void put_files(struct writer *w, unsigned n_shown)
{
	const json_t *list = json_object_get(w->run, "artifacts");
	const json_t *a;
	size_t i;

	json_array_foreach(list, i, a)
	{
		const json_t *name = json_object_get(a, "name");
		const char *why = string_of(a, "left_out");

		if (i == LINES_MAX)
			break;
		put(w, "File: ");
		put_line(w, string_of(a, "name"), json_string_length(name));
		put(w, ", %lld bytes%s", (long long)json_integer_value(json_object_get(a, "size")),
		    *why ? ", left out: " : "");
		put_line(w, why, strlen(why));
		put(w, "\n");
	}
	put_rest(w, json_array_size(list));
	if (n_shown)
		put(w, "Images that follow: %u\n", n_shown);
}

static size_t count_chars(const char *text, size_t len)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++)
		n += ((unsigned char)text[i] & 0xc0) != 0x80;
	return n;
}

/* Where the character number @n begins. */
static size_t offset_of(const char *text, size_t len, size_t n)
{
	size_t i = 0;

	for (; i < len && n > 0; n--) {
		i++;
		while (i < len && ((unsigned char)text[i] & 0xc0) == 0x80)
			i++;
	}
	return i;
}

static void put_whole(struct writer *w, const char *text)
{
	size_t len = strlen(text);

	put(w, "%s%s", text, len && text[len - 1] != '\n' ? "\n" : "");
}

/* @head of its @max characters from the beginning, the others from the end. */
static void put_cut(struct writer *w, const char *text, size_t max, size_t head)
{
	size_t len = strlen(text);
	size_t n = count_chars(text, len);

	if (n > max) {
		put(w, "%.*s\n[... %zu characters left out ...]\n", (int)offset_of(text, len, head), text, n - max);
		text += offset_of(text, len, n - (max - head));
	}
	put_whole(w, text);
}

/* A stream's words, ready to be shown, and how many characters they are. */
struct stream {
	const char *name;
	char *text; /* owned */
	size_t n;
	long long bytes; /* that were written in all */
};

static int stream_init(struct stream *s, const json_t *run, const char *name)
{
	const json_t *value = json_object_get(run, name);
	char field[32];

	(void)snprintf(field, sizeof(field), "%s_bytes", name);
	*s = (struct stream) { .name = name, .bytes = (long long)json_integer_value(json_object_get(run, field)) };
	s->text = text_visible(string_of(run, name), json_string_length(value), true);
	if (!s->text)
		return -ENOMEM;
	s->n = count_chars(s->text, strlen(s->text));
	return 0;
}

/* How much of @s is shown beside @other, of @both characters together. */
static size_t share(const struct stream *s, const struct stream *other, size_t both)
{
	size_t max = other->n < both / 2 ? both - other->n : both / 2;

	if (max > MCP_STREAM_CHARS)
		max = MCP_STREAM_CHARS;
	return s->n < max ? s->n : max;
}

static void put_stream(struct writer *w, const struct stream *s, size_t max, size_t head)
{
	if (!s->bytes)
		return;
	put(w, "--- %s, %lld bytes%s [%s] ---\n", s->name, s->bytes, s->n > max ? ", cut" : "", w->mark);
	put_cut(w, s->text, max, head);
}

static void put_streams(struct writer *w, size_t both)
{
	struct stream out = { .text = NULL };
	struct stream err = { .text = NULL };
	size_t out_max;
	size_t err_max;

	if (w->r == 0)
		w->r = stream_init(&out, w->run, "stdout");
	if (w->r == 0)
		w->r = stream_init(&err, w->run, "stderr");
	if (w->r == 0) {
		out_max = share(&out, &err, both);
		err_max = share(&err, &out, both);
		if (out.n > out_max || err.n > err_max)
			put(w, "Cut in the middle: print only what you need; the rest is in no later call.\n");
		if (!out.bytes)
			put(w, "stdout is empty\n");
		if (!err.bytes)
			put(w, "stderr is empty\n");
		put_stream(w, &out, out_max, out_max / 2);
		put_stream(w, &err, err_max, err_max / 4); /* a traceback's last lines say most */
	}
	free(out.text);
	free(err.text);
}

static bool is_text(const char *media_type)
{
	return strncmp(media_type, "text/", 5) == 0 || strcmp(media_type, "application/json") == 0 ||
	       strcmp(media_type, "application/x-ndjson") == 0;
}

/* Small texts among the files: there are clients that show their models nothing but this block. */
static void put_texts(struct writer *w)
{
	const json_t *list = json_object_get(w->run, "artifacts");
	size_t left = MCP_ARTIFACT_CHARS;
	const json_t *a;
	size_t i;

	json_array_foreach(list, i, a)
	{
		const json_t *base64 = json_object_get(a, "base64");
		auto_free char *data = NULL;
		auto_free char *text = NULL;
		size_t len = 0;

		if (w->r < 0 || !is_text(string_of(a, "media_type")) || !json_string_length(base64) ||
		    json_string_length(base64) > 2 * left ||
		    base64_decode(string_of(a, "base64"), json_string_length(base64), &data, &len) < 0 || len > left)
			continue;
		text = text_visible(data, len, true);
		if (!text || strlen(text) > left)
			continue;
		left -= strlen(text);
		put(w, "--- file ");
		put_line(w, string_of(a, "name"), json_string_length(json_object_get(a, "name")));
		put(w, " [%s] ---\n", w->mark);
		put_whole(w, text);
	}
}

int mcp_text_result(struct buf *b, const json_t *run, bool is_failure, unsigned n_shown)
{
	struct writer w = { .b = b, .run = run };

	(void)snprintf(w.mark, sizeof(w.mark), "%.8s", string_of(run, "run_id"));
	put_verdict(&w);
	put_denials(&w);
	put_warnings(&w);
	put_files(&w, n_shown);
	put_streams(&w, is_failure ? MCP_FAILURE_CHARS : MCP_STREAMS_CHARS);
	put_texts(&w);
	if (w.r == 0 && json_integer_value(json_object_get(run, "stdout_bytes")) +
					json_integer_value(json_object_get(run, "stderr_bytes")) >
				0)
		put(&w, "--- end [%s] ---\n", w.mark);
	return w.r;
}

int mcp_text_refusal(struct buf *b, const json_t *error)
{
	struct writer w = { .b = b };
	const char *message = string_of(error, "message");
	const char *field = string_of(error, "field");
	bool is_ours = strcmp(field, "server") == 0 || strcmp(field, "token") == 0;

	put(&w, "refused, nothing ran: ");
	put_line(&w, message, strlen(message));
	put(&w, "\n%s\n", is_ours ? "The call itself is not wrong." : "Mend the named argument and call again.");
	return w.r;
}
