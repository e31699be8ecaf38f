/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A line is made from its format: the words between its conversions are ours and say what the fields are, so that
 * nothing in a value, be it a script's name, can end its field and begin another.
 */
#include "server/log.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/parse.h"
#include "job/text.h"

#define LINE_MAX_BYTES 2048 /* below PIPE_BUF: it is written at once or not at all */
#define VALUE_MAX      600
#define FIELD_MIN      200 /* room for any name and number, and the beginning of a text */
#define PLAIN          "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:/+-"

static bool is_journal;
static bool is_json;
static atomic_uint n_dropped; /* the history's thread logs, too */

/* One line while it grows; what does not fit is left out, but for the end. */
struct line {
	char text[LINE_MAX_BYTES];
	size_t used;
	unsigned n_fields;
};

/* What the next field is made of. */
struct field {
	char key[32];
	char value[VALUE_MAX];
	size_t used;
	bool is_quoted; /* in the format */
	bool is_text;   /* some of it is no number */
};

void log_open(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long dev, ino;
	struct stat st;

	/* the variable is inherited by who has redirected standard error: it must name what is there now */
	is_journal = stream && sscanf(stream, "%llu:%llu", &dev, &ino) == 2 && fstat(STDERR_FILENO, &st) == 0 &&
		     st.st_dev == dev && st.st_ino == ino;
}

void log_json(bool on)
{
	is_json = on;
}

static bool put(const char *line, size_t len)
{
	struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };

	/* a pipe that polls writable takes PIPE_BUF bytes at once, and a line is shorter */
	return poll(&p, 1, 0) == 1 && (p.revents & POLLOUT) && write(STDERR_FILENO, line, len) == (ssize_t)len;
}

static void add(struct line *l, const char *text, size_t len)
{
	if (l->used + len > sizeof(l->text) - 4)
		return;
	memcpy(l->text + l->used, text, len);
	l->used += len;
}

static void add_text(struct line *l, const char *text)
{
	add(l, text, strlen(text));
}

/* One character of a value, in quotes. */
static void add_char(struct line *l, const char *s, size_t n, enum utf8_part part)
{
	char out[TEXT_VISIBLE_CHAR];
	char escape[8];
	size_t k;

	if (part == UTF8_CHAR && (*s == '"' || *s == '\\')) {
		add(l, *s == '"' ? "\\\"" : "\\\\", 2);
		return;
	}
	k = text_visible_char(s, n, part, out);
	/* \x1b is no JSON; what is no UTF-8 has no escape there */
	if (is_json && k > n && out[0] == '\\' && out[1] == 'x') {
		(void)snprintf(escape, sizeof(escape), "\\u%04x",
			       part != UTF8_CHAR ? 0xfffdU
			       : n == 1          ? (unsigned char)*s
						 : (unsigned char)s[1]);
		add_text(l, escape);
	} else if (is_json && k > n && out[1] == 'U') {
		add_text(l, "\\ufffd"); /* beyond one escape: nobody's name */
	} else {
		add(l, out, k);
	}
}

static void add_quoted(struct line *l, const char *text, size_t len)
{
	add(l, "\"", 1);
	for (size_t i = 0, n; i < len; i += n) {
		enum utf8_part part;

		n = utf8_next(text + i, len - i, &part);
		if (l->used + 64 > sizeof(l->text))
			break;
		add_char(l, text + i, n, part);
	}
	add(l, "\"", 1);
}

/* add_name() - what stands before a field's value */
static void add_name(struct line *l, const char *key)
{
	if (l->n_fields++)
		add_text(l, is_json ? ", " : " ");
	if (is_json)
		add_text(l, "\"");
	add_text(l, key);
	add_text(l, is_json ? "\": " : "=");
}

static void add_field(struct line *l, const struct field *f)
{
	bool is_plain = strspn(f->value, PLAIN) >= f->used;

	/* half a field is worse than none */
	if ((!f->used && !f->is_quoted) || l->used + FIELD_MIN > sizeof(l->text))
		return;
	add_name(l, f->key);
	if (f->is_quoted || (f->is_text && (is_json || !is_plain)))
		add_quoted(l, f->value, f->used);
	else
		add(l, f->value, f->used);
}

static void PRINTF_LIKE(2, 3) extend(struct field *f, const char *fmt, ...)
{
	size_t room = sizeof(f->value) - f->used;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(f->value + f->used, room, fmt, ap);
	va_end(ap);
	if (n > 0)
		f->used += (size_t)n < room ? (size_t)n : room - 1;
}

/* convert() - the conversion at @p, of those that the server's lines have.  Return: behind it */
static const char *convert(const char *p, struct field *f, va_list *ap)
{
	bool is_long = strncmp(p, "llu", 3) == 0;

	if (is_long || strncmp(p, "zu", 2) == 0) {
		extend(f, "%llu", is_long ? va_arg(*ap, unsigned long long) : (unsigned long long)va_arg(*ap, size_t));
		return p + (is_long ? 3 : 2);
	}
	if (strncmp(p, ".6f", 3) == 0) {
		extend(f, "%.6f", va_arg(*ap, double));
		return p + 3;
	}
	if (*p == 'd') {
		extend(f, "%d", va_arg(*ap, int));
	} else if (*p == 'u') {
		extend(f, "%u", va_arg(*ap, unsigned));
	} else if (*p == 's') {
		extend(f, "%s", va_arg(*ap, const char *));
		f->is_text = true;
	} else { /* none that we have: what follows can't be told apart any more */
		extend(f, "?");
		return p + strlen(p);
	}
	return p + 1;
}

/* next_field() - key=value or key="value" at @p.  Return: behind it */
static const char *next_field(const char *p, struct field *f, va_list *ap)
{
	size_t len = strcspn(p, "=");

	*f = (struct field) { .used = 0 };
	(void)snprintf(f->key, sizeof(f->key), "%.*s", (int)len, p);
	p += len + (p[len] == '=');
	f->is_quoted = *p == '"';
	p += f->is_quoted;
	while (*p && *p != (f->is_quoted ? '"' : ' ')) {
		if (*p == '%') {
			p = convert(p + 1, f, ap);
		} else {
			extend(f, "%c", *p++);
			f->is_text = true;
		}
	}
	p += f->is_quoted && *p == '"';
	return p + strspn(p, " ");
}

static void add_time(struct line *l)
{
	int64_t now = clock_wall_us();
	time_t seconds = (time_t)(now / US_PER_SEC);
	struct tm tm = { 0 };
	char text[64];
	size_t n;

	(void)gmtime_r(&seconds, &tm);
	n = strftime(text, sizeof(text), "\"%Y-%m-%dT%H:%M:%S", &tm);
	(void)snprintf(text + n, sizeof(text) - n, ".%06dZ\"", (int)(now % US_PER_SEC));
	add_name(l, "time");
	add_text(l, text);
}

static void begin(struct line *l, enum log_level level, unsigned dropped)
{
	static const char *const names[] = { [LOG_ERROR] = "error", [LOG_WARNING] = "warning", [LOG_INFO] = "info" };
	char text[64];

	if (is_journal) {
		(void)snprintf(text, sizeof(text), "<%d>", (int)level);
		add_text(l, text);
	}
	if (is_json) {
		add_text(l, "{");
		add_time(l);
	}
	if (is_json || !is_journal) {
		add_name(l, "level");
		(void)snprintf(text, sizeof(text), is_json ? "\"%s\"" : "%s", names[level]);
		add_text(l, text);
	}
	if (dropped) {
		add_name(l, "dropped");
		(void)snprintf(text, sizeof(text), "%u", dropped);
		add_text(l, text);
	}
}

void log_line(enum log_level level, const char *fmt, ...)
{
	unsigned dropped = atomic_exchange(&n_dropped, 0);
	struct line l = { .used = 0 };
	int saved = errno;
	va_list ap;

	begin(&l, level, dropped);
	va_start(ap, fmt);
	while (*fmt) {
		struct field f;

		fmt = next_field(fmt, &f, &ap);
		add_field(&l, &f);
	}
	va_end(ap);
	/* add() has kept room for both */
	if (is_json)
		l.text[l.used++] = '}';
	l.text[l.used++] = '\n';
	if (!put(l.text, l.used))
		(void)atomic_fetch_add(&n_dropped, dropped + 1);
	errno = saved;
}
