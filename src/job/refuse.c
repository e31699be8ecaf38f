/* SPDX-License-Identifier: Apache-2.0 */
#include "job/refuse.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "job/text.h"

#define NAME_MAX_COMPARED 40

static int PRINTF_LIKE(4, 0)
	refuse(struct job_error *e, const char *field, const char *given, const char *fmt, va_list ap)
{
	(void)snprintf(e->field, sizeof(e->field), "%s", field);
	(void)snprintf(e->given, sizeof(e->given), "%s", given);
	(void)vsnprintf(e->allowed, sizeof(e->allowed), fmt, ap);
	return -EINVAL;
}

int job_refuse(struct job_error *e, const char *field, const char *given, const char *allowed, ...)
{
	va_list ap;
	int r;

	va_start(ap, allowed);
	r = refuse(e, field, given, allowed, ap);
	va_end(ap);
	(void)snprintf(e->message, sizeof(e->message), "%s: %s is not allowed: %s", e->field, e->given, e->allowed);
	return r;
}

int job_refuse_missing(struct job_error *e, const char *field, const char *allowed, ...)
{
	va_list ap;
	int r;

	va_start(ap, allowed);
	r = refuse(e, field, "nothing", allowed, ap);
	va_end(ap);
	(void)snprintf(e->message, sizeof(e->message), "%s is missing: %s", e->field, e->allowed);
	return r;
}

int job_check_pool(const struct job *j, bool has_pool, struct job_error *e)
{
	if (j->mode != JOB_MODE_WARM || has_pool)
		return 0;
	return job_refuse(e, "mode", "\"warm\"", "auto or cold: no interpreter is kept ready (server.pool_max is 0)");
}

static char folded(char c)
{
	return c == '-' || c == ' ' ? '_' : (char)tolower((unsigned char)c);
}

/* distance() - edits (Levenshtein) between two short names, letter case and dashes apart */
static size_t distance(const char *a, const char *b)
{
	size_t row[NAME_MAX_COMPARED + 1];
	size_t len = strlen(b);

	for (size_t i = 0; i <= len; i++)
		row[i] = i;
	for (size_t i = 1; a[i - 1] != '\0'; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t k = 1; k <= len; k++) {
			size_t best = diagonal + (folded(a[i - 1]) != folded(b[k - 1]));

			diagonal = row[k];
			best = best < row[k] + 1 ? best : row[k] + 1;
			row[k] = best < row[k - 1] + 1 ? best : row[k - 1] + 1;
		}
	}
	return row[len];
}

/* nearest() - a known name that @name is a slip of, or the beginning of; NULL: none is close */
static const char *nearest(const char *name, const char *const *known, size_t n)
{
	size_t len = strlen(name);
	size_t best = len < 3 ? 1 : 1 + len / 3; /* one past the largest distance that counts as close */
	const char *found = NULL;

	if (len == 0 || len > NAME_MAX_COMPARED)
		return NULL;
	for (size_t i = 0; i < n; i++) {
		size_t d = strlen(known[i]) > NAME_MAX_COMPARED ? best : distance(name, known[i]);

		if (d < best) {
			best = d;
			found = known[i];
		}
	}
	for (size_t i = 0; i < n && !found && len >= 3; i++)
		if (strncmp(name, known[i], len) == 0)
			found = known[i];
	return found;
}

/* join() - "a, b, c", ended with "..." when not all fit */
static void join(char *buf, size_t size, const char *const *names, size_t n)
{
	size_t used = 0;

	buf[0] = '\0';
	for (size_t i = 0; i < n; i++) {
		size_t need = strlen(names[i]) + 2;

		if (used + need + sizeof(", ...") > size) {
			(void)snprintf(buf + used, size - used, "%s...", i ? ", " : "");
			return;
		}
		used += (size_t)snprintf(buf + used, size - used, "%s%s", i ? ", " : "", names[i]);
	}
}

int job_refuse_unknown(struct job_error *e, const char *field, const char *name, const char *noun,
		       const char *const *known, size_t n_known)
{
	const char *near = nearest(name, known, n_known);
	char shown[GIVEN_SIZE];
	char all[140];

	job_show_text(shown, sizeof(shown), name, strlen(name));
	join(all, sizeof(all), known, n_known);
	if (noun && near)
		return job_refuse(e, field, noun, "the nearest known one is %s", near);
	if (noun)
		return job_refuse(e, field, noun, "known are %s", all);
	return job_refuse(e, field, shown, "one of %s", all);
}

static const char *show(char *buf, size_t size, const char *text, size_t len, char quote)
{
	size_t used = 0;
	size_t end = quote ? 5 : 4; /* dots, quote, NUL */
	size_t i = 0;

	if (quote)
		buf[used++] = quote;
	while (i < len) {
		enum utf8_part part;
		size_t n = utf8_next(text + i, len - i, &part);
		char out[TEXT_VISIBLE_CHAR];
		size_t k;

		if (quote && (text[i] == '"' || text[i] == '\\'))
			k = (size_t)snprintf(out, sizeof(out), "\\%c", text[i]);
		else
			k = text_visible_char(text + i, n, part, out);
		if (used + k + end > size)
			break;
		memcpy(buf + used, out, k);
		used += k;
		i += n;
	}
	(void)snprintf(buf + used, size - used, "%s%s", i < len ? "..." : "", quote ? "\"" : "");
	return buf;
}

const char *job_show_text(char *buf, size_t size, const char *text, size_t len)
{
	return show(buf, size, text, len, '"');
}

const char *job_show_plain(char *buf, size_t size, const char *text, size_t len)
{
	return show(buf, size, text, len, '\0');
}

const char *job_show_number(char *buf, size_t size, double v)
{
	for (int digits = 6; digits <= 17; digits++) {
		(void)snprintf(buf, size, "%.*g", digits, v);
		if (strtod(buf, NULL) == v) /* NOLINT: exact on purpose */
			break;
	}
	return buf;
}

const char *job_field_of(char buf[FIELD_SIZE], const char *field, const char *name, size_t len)
{
	char shown[64];

	(void)snprintf(buf, FIELD_SIZE, "%.12s[%s]", field, job_show_text(shown, sizeof(shown), name, len));
	return buf;
}
