/* SPDX-License-Identifier: Apache-2.0 */
/* How a supervisor of ours stands, for callers that keep one for long. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "run/front.h"

int supervisor_fd(const struct supervisor *s)
{
	return s->control;
}

pid_t supervisor_pid(const struct supervisor *s)
{
	return s->pid;
}

size_t supervisor_known_walls(const struct supervisor *s, const struct wall_report **ret)
{
	*ret = s->walls;
	return s->n_walls;
}

/*
 * Answers of WIRE_STATE that nobody waits for any more: there is nothing else to be heard of one that is ready.
 * Return: as recv(): 0 at its end
 */
static ssize_t drop_late(struct supervisor *s)
{
	char byte;
	ssize_t n;

	do
		n = recv(s->control, &byte, 1, MSG_DONTWAIT);
	while (n > 0);
	return n;
}

int supervisor_state(struct supervisor *s, struct err *e)
{
	ssize_t n;

	supervisor_hear(s, false);
	if (s->has_failed) {
		*e = s->err;
		return -EPROTO;
	}
	if (!s->is_ready)
		return 0;
	n = drop_late(s);
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) /* ECONNRESET: it left words of ours unread */
		return err_set(e, ERR_HOST, 0, "the supervisor has ended");
	return 1;
}

size_t supervisor_pools(struct supervisor *s, struct run_pool_state *ret, size_t max)
{
	struct wire_head ask = { .type = WIRE_STATE };
	struct pollfd room = { .fd = s->control, .events = POLLOUT };
	struct pollfd p = { .fd = s->control, .events = POLLIN };
	struct wire_state m;
	ssize_t n;

	/* one that does not answer must not fill up with questions until we wait for it */
	if (!s->is_ready || s->has_failed || poll(&room, 1, 0) != 1)
		return 0;
	(void)drop_late(s);
	if (fd_send(s->control, &ask, sizeof(ask), NULL, 0) < 0)
		return 0;
	while (poll(&p, 1, 500) > 0) {
		n = fd_take(s->control, &m, sizeof(m), false);
		if (n != (ssize_t)sizeof(m) || m.head.type != WIRE_STATE)
			return 0;
		if (m.n > max)
			m.n = (uint32_t)max;
		memcpy(ret, m.pools, m.n * sizeof(*ret));
		return m.n;
	}
	return 0;
}

void supervisor_end(struct supervisor *s, int sig)
{
	fd_close(&s->control); /* its end: it kills everything, cleans up, ends */
	if (sig && s->pid > 0 && s->launcher)
		s->launcher->signal(s->launcher->userdata, s->pid, sig);
	else if (sig && s->pid > 0)
		(void)kill(s->pid, sig);
}

bool supervisor_has_ended(struct supervisor *s)
{
	struct pollfd end = { .fd = s->pidfd, .events = POLLIN };

	if (s->pid > 0 && (s->pidfd >= 0 ? poll(&end, 1, 0) == 1 : waitpid(s->pid, NULL, WNOHANG) != 0))
		s->pid = 0;
	return s->pid <= 0;
}
