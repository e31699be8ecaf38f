/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/say.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "job/text.h"

void say(const char *fmt, ...)
{
	char line[2048] = "cloche: ";
	char text[2048];
	size_t used = strlen(line);
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	/* file names and messages may hold what a terminal would obey */
	(void)text_visible_in(line + used, sizeof(line) - used - 1, text, strlen(text));
	used = strlen(line);
	line[used] = '\n';
	/* One write, so that lines of several processes do not mix; nobody is left to be told when it fails. */
	if (fd_write_all(STDERR_FILENO, line, used + 1) < 0)
		return;
}

const char *shown(char buf[SHOWN_SIZE], const char *text)
{
	return text_visible_in(buf, SHOWN_SIZE, text, strlen(text));
}

/* The error object is JSON: what is not UTF-8 (any file name, a character that was cut) is shown as bytes. */
static void make_text(char *s, size_t size)
{
	char text[1024];

	(void)snprintf(text, sizeof(text), "%s", s);
	(void)text_visible_in(s, size, text, strlen(text));
}

/* "GIVEN" in quotes, printable, cut to the field's size */
static void quote(char *ret, size_t size, const char *given)
{
	size_t max = size - sizeof("\"...\"");
	size_t len = strlen(given);

	if (len <= max) {
		(void)snprintf(ret, size, "\"%s\"", given);
	} else {
		/* not in the middle of a character */
		while (max && ((unsigned char)given[max] & 0xc0) == 0x80)
			max--;
		(void)snprintf(ret, size, "\"%.*s...\"", (int)max, given);
	}
	make_text(ret, size);
}

static void compose(struct job_error *e, bool is_given)
{
	if (is_given)
		(void)snprintf(e->message, sizeof(e->message), "%s: %s is not allowed: %s", e->field, e->given,
			       e->allowed);
	else
		(void)snprintf(e->message, sizeof(e->message), "%s is missing: %s", e->field, e->allowed);
	make_text(e->message, sizeof(e->message));
}

int refuse(struct refusal *no, const char *field, const char *given, const char *fmt, ...)
{
	va_list ap;

	*no = (struct refusal) { .status = CLI_USAGE };
	(void)snprintf(no->why.field, sizeof(no->why.field), "%s", field);
	if (given)
		quote(no->why.given, sizeof(no->why.given), given);
	else
		(void)snprintf(no->why.given, sizeof(no->why.given), "nothing");
	va_start(ap, fmt);
	(void)vsnprintf(no->why.allowed, sizeof(no->why.allowed), fmt, ap);
	va_end(ap);
	compose(&no->why, given != NULL);
	return -EINVAL;
}

int refuse_as(struct refusal *no, int r, const char *field, const char *given)
{
	if (r == -ENOMEM)
		return refuse_memory(no);
	no->status = CLI_USAGE;
	(void)snprintf(no->why.field, sizeof(no->why.field), "%s", field);
	quote(no->why.given, sizeof(no->why.given), given);
	compose(&no->why, true);
	return r;
}

int refuse_err(struct refusal *no, int r, const char *field, const struct err *e)
{
	*no = (struct refusal) { .status = cli_exit_of(e) };
	(void)snprintf(no->why.field, sizeof(no->why.field), "%s", field);
	(void)snprintf(no->why.message, sizeof(no->why.message), "%.*s", (int)sizeof(no->why.message) - 1, e->msg);
	make_text(no->why.message, sizeof(no->why.message));
	return r;
}

int refuse_file(struct refusal *no, const char *field, const char *path, int sys)
{
	*no = (struct refusal) { .status = CLI_COULD_NOT };
	if (sys == ENOENT || sys == ENOTDIR)
		no->status = CLI_NOT_FOUND;
	else if (sys == EACCES || sys == EPERM || sys == EISDIR || sys == ELOOP)
		no->status = CLI_NO_ACCESS;
	(void)snprintf(no->why.field, sizeof(no->why.field), "%s", field);
	quote(no->why.given, sizeof(no->why.given), path);
	(void)snprintf(no->why.allowed, sizeof(no->why.allowed), "a readable file");
	(void)snprintf(no->why.message, sizeof(no->why.message), "%s: %.200s: %s", field, path, strerror(sys));
	make_text(no->why.message, sizeof(no->why.message));
	return -sys;
}

int refuse_option_file(struct refusal *no, const char *field, const char *path, int sys)
{
	int r = refuse_file(no, field, path, sys);

	if (no->status != CLI_COULD_NOT)
		no->status = CLI_USAGE; /* 126 and 127 speak of SCRIPT and the interpreter */
	return r;
}

int refuse_memory(struct refusal *no)
{
	*no = (struct refusal) { .status = CLI_COULD_NOT };
	(void)snprintf(no->why.field, sizeof(no->why.field), "memory");
	(void)snprintf(no->why.message, sizeof(no->why.message), "out of memory");
	return -ENOMEM;
}

int refusal_tell(const struct refusal *no, bool is_json)
{
	auto_free char *json = NULL;

	if (!is_json) {
		say("%s", no->why.message);
		return no->status;
	}
	json = job_error_write(&no->why);
	if (!json || fd_write_all(STDOUT_FILENO, json, strlen(json)) < 0 || fd_write_all(STDOUT_FILENO, "\n", 1) < 0)
		say("%s", no->why.message);
	return no->status;
}

int cli_exit_of(const struct err *e)
{
	switch (e->kind) {
	case ERR_INVALID:
		return CLI_USAGE;
	case ERR_NOT_FOUND:
		return CLI_NOT_FOUND;
	case ERR_ACCESS:
		return CLI_NO_ACCESS;
	default:
		return CLI_COULD_NOT;
	}
}
