/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/drive.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "cli/cli.h"
#include "cli/say.h"

/* Standard input on its way into the sandbox: read only when the last bytes were taken. */
struct feed {
	int fd; /* borrowed; -1: nothing more to read */
	size_t at;
	size_t len;
	bool is_ended;   /* end-of-file was seen */
	bool is_done;    /* ... and passed on, or the script takes no more */
	bool is_waiting; /* the run said "not now" */
	char bytes[64 << 10];
};

struct loop {
	struct drive *d;
	struct task *task;
	struct feed feed;
	bool is_cancelled;
	bool is_stalled; /* a signal came and our reader does not read: what still comes is dropped */
};

static void cancel(struct loop *l)
{
	if (!l->is_cancelled)
		task_cancel(l->task);
	l->is_cancelled = true;
}

static int lose(struct drive *d, int fd, int r)
{
	if (r != -EINTR && !d->lost) {
		d->lost = -r;
		d->lost_fd = fd;
	}
	return r;
}

static int on_output(void *userdata, int stream, const void *data, size_t len)
{
	struct loop *l = userdata;
	int r;

	if (l->d->lost || l->is_stalled)
		return -EPIPE;
	if (l->d->progress)
		progress_hide(l->d->progress);
	r = signals_write(l->d->signals, stream, data, len);
	if (l->d->progress)
		progress_note(l->d->progress, stream, data, len);
	l->is_stalled = r == -EINTR;
	if (r < 0)
		return lose(l->d, stream, r);
	if (l->d->signals->is_seen)
		cancel(l);
	return 0;
}

static void feed_push(struct feed *f, struct task *task)
{
	f->is_waiting = false;
	while (!f->is_done && (f->at < f->len || f->is_ended)) {
		ssize_t n = task_input(task, f->bytes + f->at, f->len - f->at);

		if (n == -EAGAIN || (n == 0 && f->at < f->len)) {
			f->is_waiting = true;
			return;
		}
		if (n < 0 || f->at == f->len) /* it takes no more, or it has the end */
			f->is_done = true;
		else
			f->at += (size_t)n;
	}
}

static void feed_read(struct loop *l)
{
	struct feed *f = &l->feed;
	ssize_t n = read(f->fd, f->bytes, sizeof(f->bytes));

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n < 0)
		l->d->input_lost = errno;
	f->at = 0;
	f->len = n > 0 ? (size_t)n : 0;
	f->is_ended = n <= 0;
	feed_push(f, l->task);
}

enum { AT_SIGNAL, AT_RUN, AT_INPUT, AT_READER, AT_MAX };

/* Milliseconds until something is to be done by the clock; -1: nothing. */
static int wait_ms(const struct loop *l)
{
	int run = task_wait_ms(l->task);
	int show = l->d->progress ? progress_wait_ms(l->d->progress) : -1;

	return run < 0 || (show >= 0 && show < run) ? show : run;
}

/* Wait for something to happen and let it happen.  Return: as task_step() */
static int turn(struct loop *l, struct err *e)
{
	struct feed *f = &l->feed;
	bool wants_input = !f->is_done && !f->is_ended && f->at == f->len;
	struct pollfd p[AT_MAX] = {
		[AT_SIGNAL] = { .fd = l->d->signals->fd, .events = POLLIN },
		[AT_RUN] = { .fd = task_fd(l->task),
			     .events = (short)(task_events(l->task) | (f->is_waiting ? POLLOUT : 0)) },
		[AT_INPUT] = { .fd = wants_input ? f->fd : -1, .events = POLLIN },
		/* no event asked for: only that the reader went away is of interest */
		[AT_READER] = { .fd = l->is_cancelled ? -1 : STDOUT_FILENO },
	};
	int n;
	int r = 0;

	if (l->d->progress)
		progress_show(l->d->progress);
	n = poll(p, AT_MAX, wait_ms(l));
	if (n < 0)
		return errno == EINTR ? 0 : err_set(e, ERR_HOST, errno, "poll");
	if (p[AT_SIGNAL].revents && signals_take(l->d->signals))
		cancel(l);
	if (p[AT_READER].revents & (POLLERR | POLLHUP)) {
		(void)lose(l->d, STDOUT_FILENO, -EPIPE);
		cancel(l);
	}
	if (p[AT_INPUT].revents)
		feed_read(l);
	if (p[AT_RUN].revents || n == 0) {
		if (f->is_waiting)
			feed_push(f, l->task);
		r = task_step(l->task, e);
	}
	return r;
}

int drive(struct drive *d, struct engine *g, const struct asked *q, struct answer *ret, struct err *e)
{
	struct loop *l = calloc(1, sizeof(*l));
	struct run_hooks hooks = { .userdata = l, .on_output = on_output };
	struct err finish = { .kind = ERR_NONE };
	int r;

	if (!l)
		return err_set(e, ERR_HOST, ENOMEM, "run");
	l->d = d;
	l->feed.fd = d->input;
	l->feed.is_done = d->input < 0;
	e->kind = ERR_NONE;
	r = task_start(g, q, d->copies_output ? &hooks : NULL, &l->task, e);
	if (r < 0) {
		free(l);
		return r;
	}
	engine_no_more(g); /* it cleans up while we report */
	do
		r = turn(l, e);
	while (r == 0);
	if (d->progress)
		progress_hide(d->progress);
	if (r > 0)
		e->kind = ERR_NONE;
	r = task_finish(l->task, ret, &finish);
	if (r < 0 && e->kind == ERR_NONE)
		*e = finish;
	free(l);
	return r;
}

int drive_put(struct drive *d, const char *text)
{
	int r = signals_write(d->signals, STDOUT_FILENO, text, strlen(text));

	if (r == 0)
		r = signals_write(d->signals, STDOUT_FILENO, "\n", 1);
	return r < 0 ? lose(d, STDOUT_FILENO, r) : 0;
}

int drive_exit(const struct drive *d, int status)
{
	if (d->signals->is_seen || d->lost == EPIPE)
		return CLI_CANCELLED;
	if (d->lost) {
		say("standard %s: %s", d->lost_fd == STDERR_FILENO ? "error" : "output", strerror(d->lost));
		return CLI_COULD_NOT;
	}
	return status;
}
