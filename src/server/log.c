/* SPDX-License-Identifier: Apache-2.0 */
#include "server/log.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_journal;
static unsigned n_dropped;

void log_open(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long dev, ino;
	struct stat st;

	/* the variable is inherited by who has redirected standard error: it must name what is there now */
	is_journal = stream && sscanf(stream, "%llu:%llu", &dev, &ino) == 2 && fstat(STDERR_FILENO, &st) == 0 &&
		     st.st_dev == dev && st.st_ino == ino;
}

static bool put(char *line, size_t len)
{
	struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };

	/* a pipe that polls writable takes PIPE_BUF bytes at once, and a line is shorter */
	return poll(&p, 1, 0) == 1 && (p.revents & POLLOUT) && write(STDERR_FILENO, line, len) == (ssize_t)len;
}

void log_line(enum log_level level, const char *fmt, ...)
{
	static const char *const names[] = { [LOG_ERROR] = "error", [LOG_WARNING] = "warning", [LOG_INFO] = "info" };
	char line[1024];
	int saved = errno;
	size_t used;
	va_list ap;

	if (is_journal)
		used = (size_t)snprintf(line, sizeof(line), "<%d>", (int)level);
	else
		used = (size_t)snprintf(line, sizeof(line), "level=%s ", names[level]);
	if (n_dropped)
		used += (size_t)snprintf(line + used, sizeof(line) - used, "dropped=%u ", n_dropped);
	va_start(ap, fmt);
	(void)vsnprintf(line + used, sizeof(line) - used - 1, fmt, ap);
	va_end(ap);
	for (char *p = line; *p; p++) {
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = '?';
	}
	used = strlen(line);
	line[used] = '\n';
	n_dropped = put(line, used + 1) ? 0 : n_dropped + 1;
	errno = saved;
}
