/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "cli/cli.h"

#define GRACE_MS 1000

int signals_open(struct signals *ret, struct err *e)
{
	static const int wanted[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction ignore = { .sa_handler = SIG_IGN };
	sigset_t set;
	int fd;

	(void)sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
		struct sigaction now;

		/* A blocked signal is queued even when it is ignored: leave those out by hand. */
		if (sigaction(wanted[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
			(void)sigaddset(&set, wanted[i]);
	}
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return err_set(e, ERR_HOST, errno, "signalfd");
	(void)sigprocmask(SIG_BLOCK, &set, NULL);
	(void)sigaction(SIGPIPE, &ignore, NULL);
	*ret = (struct signals){ .fd = fd };
	return 0;
}

void signals_close(struct signals *s)
{
	fd_close(&s->fd);
}

bool signals_take(struct signals *s)
{
	struct signalfd_siginfo info;

	while (read(s->fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		if (s->is_seen)
			_exit(CLI_CANCELLED);
		s->is_seen = true;
	}
	return s->is_seen;
}

int signals_write(struct signals *s, int fd, const void *data, size_t len)
{
	const char *p = data;
	struct stat st;
	/* A file never makes us wait; a pipe that polls writable takes PIPE_BUF bytes without waiting. */
	size_t step = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? SSIZE_MAX : PIPE_BUF;

	while (len) {
		struct pollfd pfd[2] = { { .fd = fd, .events = POLLOUT }, { .fd = s->fd, .events = POLLIN } };
		ssize_t n;

		if (step == PIPE_BUF) {
			int r = poll(pfd, 2, s->is_seen ? GRACE_MS : -1);

			if (r < 0 && errno != EINTR)
				return -errno;
			if (r == 0)
				return -EINTR;
			if (r > 0 && pfd[1].revents)
				(void)signals_take(s);
			if (r < 0 || !pfd[0].revents)
				continue;
		}
		n = write(fd, p, len < step ? len : step);
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			return -errno;
		if (n > 0) {
			p += n;
			len -= (size_t)n;
		}
	}
	return 0;
}

int signals_guard_standard(void)
{
	for (int fd = 0; fd <= 2; fd++) {
		if (fcntl(fd, F_GETFD) >= 0)
			continue;
		/* Read-only: writing to an output that was closed is still an error (EBADF), as it should be. */
		if (open("/dev/null", O_RDONLY) != fd) /* NOLINT(android-cloexec-open): a standard descriptor */
			return errno ? -errno : -EBADF;
	}
	return 0;
}
