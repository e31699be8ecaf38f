/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

void auto_freep(void *p)
{
	free(*(void **)p);
}

void fd_close(int *fd)
{
	int saved = errno;

	if (*fd >= 0)
		(void)close(*fd);
	*fd = -1;
	errno = saved;
}

void auto_fdp(int *fd)
{
	fd_close(fd);
}

int fd_write_all(int fd, const void *data, size_t len)
{
	const char *p = data;

	while (len > 0) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int fd_write_at(int dir, const char *path, const char *text)
{
	auto_fd int fd = openat(dir, path, O_WRONLY | O_CLOEXEC);
	size_t len = strlen(text);
	ssize_t n;

	if (fd < 0)
		return -errno;
	do { /* kernel files want the text in one write */
		n = write(fd, text, len);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	return (size_t)n == len ? 0 : -EIO;
}

ssize_t fd_read_at(int dir, const char *path, char *buf, size_t size)
{
	auto_fd int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
	size_t used = 0;

	buf[0] = '\0';
	if (fd < 0)
		return -errno;
	while (used < size - 1) {
		ssize_t n = read(fd, buf + used, size - 1 - used);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		used += (size_t)n;
	}
	buf[used] = '\0';
	return (ssize_t)used;
}

int fd_read_all(int fd, size_t limit, char **ret, size_t *ret_len)
{
	auto_free char *buf = NULL;
	size_t used = 0;
	size_t size = 0;

	for (;;) {
		ssize_t n;

		if (size - used < 2) {
			size_t want = size ? size * 2 : 16384;
			char *bigger = realloc(buf, want);

			if (!bigger)
				return -ENOMEM;
			buf = bigger;
			size = want;
		}
		n = read(fd, buf + used, size - used - 1);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		used += (size_t)n;
		if (used > limit)
			return -EFBIG;
	}
	buf[used] = '\0';
	*ret = buf;
	*ret_len = used;
	buf = NULL;
	return 0;
}

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

int fd_memfd(const char *name, const void *data, size_t len)
{
	auto_fd int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int r;

	if (fd < 0)
		return -errno;
	r = fd_write_all(fd, data, len);
	if (r < 0)
		return r;
	if (fcntl(fd, F_ADD_SEALS, SEALS | F_SEAL_SEAL) < 0)
		return -errno;
	return take_fd(&fd);
}

int fd_map_sealed(int fd, const char **ret, size_t *ret_len)
{
	struct stat st;
	void *map;
	int seals;

	seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0)
		return -errno;
	if ((seals & SEALS) != SEALS)
		return -EPERM;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size == 0) {
		*ret = NULL;
		*ret_len = 0;
		return 0;
	}
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	*ret = map;
	*ret_len = (size_t)st.st_size;
	return 0;
}

union fd_control {
	struct cmsghdr align;
	char space[CMSG_SPACE(sizeof(int) * FD_MAX_PASSED)];
};

int fd_send(int sock, const void *data, size_t len, const int *fds, size_t n_fds)
{
	struct iovec iov = { .iov_base = (void *)(uintptr_t)data, .iov_len = len };
	union fd_control control = { 0 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	if (n_fds > FD_MAX_PASSED)
		return -E2BIG;
	if (n_fds > 0) {
		struct cmsghdr *c;

		m.msg_control = control.space;
		m.msg_controllen = (socklen_t)CMSG_SPACE(sizeof(int) * n_fds); /* size_t or not: libcs differ */
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = (socklen_t)CMSG_LEN(sizeof(int) * n_fds);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * n_fds);
	}
	do {
		n = sendmsg(sock, &m, MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

ssize_t fd_take(int sock, void *data, size_t size, bool wait)
{
	ssize_t n;

	do {
		n = recv(sock, data, size, wait ? 0 : MSG_DONTWAIT);
	} while (n < 0 && (errno == EINTR || errno == ECONNRESET));
	return n < 0 ? -errno : n;
}

ssize_t fd_recv(int sock, void *data, size_t size, int *fds, size_t *ret_n_fds)
{
	struct iovec iov = { .iov_base = data, .iov_len = size };
	union fd_control control;
	struct msghdr m = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.space,
		.msg_controllen = sizeof(control.space),
	};
	struct cmsghdr *c;
	size_t n_fds = 0;
	ssize_t n;

	do {
		n = recvmsg(sock, &m, MSG_CMSG_CLOEXEC);
	} while (n < 0 && (errno == EINTR || errno == ECONNRESET)); /* see fd_take() */
	*ret_n_fds = 0;
	if (n < 0)
		return -errno;
	c = CMSG_FIRSTHDR(&m); /* one at most: there is room for no more, and we asked for no other kind */
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
		n_fds = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(fds, CMSG_DATA(c), n_fds * sizeof(int));
	}
	if (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
		for (size_t i = 0; i < n_fds; i++)
			fd_close(&fds[i]);
		return -EMSGSIZE;
	}
	*ret_n_fds = n_fds;
	return n;
}

int fd_cloexec(int fd, bool on)
{
	return fcntl(fd, F_SETFD, on ? FD_CLOEXEC : 0) < 0 ? -errno : 0;
}
