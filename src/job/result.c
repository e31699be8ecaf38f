/* SPDX-License-Identifier: Apache-2.0 */
#include "job/result.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXIT_TIMEOUT   124 /* as timeout(1) */
#define EXIT_CANNOT    125 /* ours, as env(1) and docker have it */
#define EXIT_CANCELLED 130
#define EXIT_KILLED    137
#define EXIT_SIGNAL    128

static const char *const names[STATUS_MAX] = {
	[STATUS_OK] = "ok",
	[STATUS_ERROR] = "error",
	[STATUS_SIGNALED] = "signaled",
	[STATUS_TIMEOUT] = "timeout",
	[STATUS_CPU_LIMIT] = "cpu_limit",
	[STATUS_MEMORY_LIMIT] = "memory_limit",
	[STATUS_OUTPUT_LIMIT] = "output_limit",
	[STATUS_CANCELLED] = "cancelled",
	[STATUS_REJECTED] = "rejected",
	[STATUS_INTERNAL_ERROR] = "internal_error",
};

/* Until a run has told otherwise nothing is claimed about the script. */
void result_init(struct result *r, const struct job *j)
{
	*r = (struct result) { .status = STATUS_INTERNAL_ERROR,
			       .return_code = RETURN_CODE_NOT_RUN,
			       .mode = j->mode,
			       .output = j->output };
	r->script_name = j->script_name ? strdup(j->script_name) : NULL;
	keep_init(&r->out, j->limits.output_bytes);
	keep_init(&r->err, j->limits.output_bytes);
}

void result_done(struct result *r)
{
	free(r->message);
	free(r->script_name);
	keep_done(&r->out);
	keep_done(&r->err);
	for (size_t i = 0; i < r->n_artifacts; i++) {
		free(r->artifacts[i].name);
		free(r->artifacts[i].left_out);
		free(r->artifacts[i].body.data);
	}
	free(r->artifacts);
	for (size_t i = 0; i < r->n_warnings; i++)
		free(r->warnings[i]);
	free(r->warnings);
	*r = (struct result) { .status = STATUS_INTERNAL_ERROR, .return_code = RETURN_CODE_NOT_RUN };
}

static int PRINTF_LIKE(2, 0) format(char **ret, const char *fmt, va_list ap)
{
	char *text;

	if (vasprintf(&text, fmt, ap) < 0)
		return -ENOMEM;
	*ret = text;
	return 0;
}

int result_set_message(struct result *r, const char *fmt, ...)
{
	char *text;
	va_list ap;
	int rc;

	va_start(ap, fmt);
	rc = format(&text, fmt, ap);
	va_end(ap);
	if (rc < 0)
		return rc;
	free(r->message);
	r->message = text;
	return 0;
}

int result_warn(struct result *r, const char *fmt, ...)
{
	char **warnings;
	char *text;
	va_list ap;
	int rc;

	va_start(ap, fmt);
	rc = format(&text, fmt, ap);
	va_end(ap);
	if (rc < 0)
		return rc;
	for (size_t i = 0; i < r->n_warnings; i++) {
		if (strcmp(r->warnings[i], text) == 0) {
			free(text);
			return 0;
		}
	}
	warnings = reallocarray(r->warnings, r->n_warnings + 1, sizeof(*warnings));
	if (!warnings) {
		free(text);
		return -ENOMEM;
	}
	r->warnings = warnings;
	r->warnings[r->n_warnings++] = text;
	return 0;
}

int result_exit_status(const struct result *r)
{
	switch (r->status) {
	case STATUS_OK:
		return 0;
	case STATUS_ERROR:
		return r->return_code & 255;
	case STATUS_SIGNALED:
		return EXIT_SIGNAL + r->signal;
	case STATUS_TIMEOUT:
		return EXIT_TIMEOUT;
	case STATUS_CPU_LIMIT:
	case STATUS_MEMORY_LIMIT:
	case STATUS_OUTPUT_LIMIT:
		return EXIT_KILLED;
	case STATUS_CANCELLED:
		return EXIT_CANCELLED;
	case STATUS_REJECTED:
	case STATUS_INTERNAL_ERROR:
		break;
	}
	return EXIT_CANNOT;
}

const char *status_name(enum status s)
{
	return names[s];
}

const char *signal_name(int sig, char *buf, size_t size)
{
	const char *abbrev = sigabbrev_np(sig);

	if (abbrev)
		(void)snprintf(buf, size, "SIG%s", abbrev);
	else if (sig == SIGRTMIN)
		(void)snprintf(buf, size, "SIGRTMIN");
	else if (sig > SIGRTMIN && sig <= SIGRTMAX)
		(void)snprintf(buf, size, "SIGRTMIN+%d", sig - SIGRTMIN);
	else
		(void)snprintf(buf, size, "signal %d", sig);
	return buf;
}
