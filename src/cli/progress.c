/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/progress.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"

#define STEP_NS  (100 * NS_PER_MS)
#define DIM      "\033[2m"
#define PLAIN    "\033[0m"
#define ERASE    "\r\033[K"
#define LINE_MAX 160

/* A terminal that does not take it now (it was stopped by hand) does not hold the run up. */
static bool put(const char *text)
{
	struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };
	size_t len = strlen(text);

	return poll(&p, 1, 0) == 1 && (p.revents & POLLOUT) && write(STDERR_FILENO, text, len) == (ssize_t)len;
}

void progress_init(struct progress *p, bool is_wanted, uint64_t timeout_ns)
{
	const char *term = getenv("TERM");
	const char *no_colour = getenv("NO_COLOR");

	*p = (struct progress) { .timeout_ns = timeout_ns, .start_ns = clock_now_ns() };
	p->is_on = is_wanted && isatty(STDERR_FILENO) && term && *term && strcmp(term, "dumb") != 0;
	if (!p->is_on)
		return;
	p->has_colour = !(no_colour && *no_colour);
	p->is_terminal[STDOUT_FILENO] = isatty(STDOUT_FILENO);
	p->is_terminal[STDERR_FILENO] = true;
	p->next_ns = p->start_ns + STEP_NS;
}

int progress_wait_ms(const struct progress *p)
{
	uint64_t now = clock_now_ns();

	if (!p->is_on || p->is_in_line)
		return -1;
	return p->next_ns > now ? (int)((p->next_ns - now) / NS_PER_MS) + 1 : 0;
}

static size_t add_bytes(char *line, size_t size, uint64_t bytes)
{
	static const char *const units[] = { "bytes", "KiB", "MiB", "GiB" };
	double v = (double)bytes;
	size_t unit = 0;

	for (; v >= 1024 && unit < sizeof(units) / sizeof(units[0]) - 1; unit++)
		v /= 1024;
	return (size_t)snprintf(line, size, ", %.*f %s written", unit ? 1 : 0, v, units[unit]);
}

static unsigned width(void)
{
	struct winsize w = { .ws_col = 0 };

	return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : 80;
}

void progress_show(struct progress *p)
{
	uint64_t now = clock_now_ns();
	char line[LINE_MAX];
	char text[LINE_MAX + 32];
	size_t used;

	if (!p->is_on || p->is_in_line || now < p->next_ns)
		return;
	p->next_ns = now + STEP_NS;
	used = (size_t)snprintf(line, sizeof(line), "cloche: %.1f s", (double)(now - p->start_ns) / (double)NS_PER_SEC);
	if (p->timeout_ns)
		used += (size_t)snprintf(line + used, sizeof(line) - used, " of %.4g s at most",
					 (double)p->timeout_ns / (double)NS_PER_SEC);
	if (p->bytes)
		used += add_bytes(line + used, sizeof(line) - used, p->bytes);
	if (used >= width()) /* a line that is broken in two could not be erased */
		line[width() - 1] = '\0';
	(void)snprintf(text, sizeof(text), ERASE "%s%s%s", p->has_colour ? DIM : "", line, p->has_colour ? PLAIN : "");
	if (put(text))
		p->is_shown = true;
}

void progress_hide(struct progress *p)
{
	if (p->is_shown)
		p->is_shown = !put(ERASE);
}

void progress_note(struct progress *p, int stream, const char *data, size_t len)
{
	if (!p->is_on || len == 0)
		return;
	p->bytes += len;
	if (p->is_terminal[stream])
		p->is_in_line = data[len - 1] != '\n';
}
