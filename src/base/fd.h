/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/macro.h"

#define FD_MAX_PASSED 16

void auto_freep(void *p);
void auto_fdp(int *fd);

/* take_fd() - give up ownership of *@fd.  Return: the descriptor; *@fd becomes -1. */
static inline int take_fd(int *fd)
{
	int taken = *fd;

	*fd = -1;
	return taken;
}

/* fd_close() - close *@fd if it is open and set it to -1; errno is kept */
void fd_close(int *fd);

/* fd_write_all() - write everything; retries EINTR and short writes.  Return: 0 or -errno */
int fd_write_all(int fd, const void *data, size_t len) MUST_CHECK;

/* fd_write_at() - open @path below @dir for writing, write @text, close.  Return: 0 or -errno */
int fd_write_at(int dir, const char *path, const char *text) MUST_CHECK;

/*
 * fd_read_at() - read a small text file below @dir into @buf, always NUL-terminated
 *
 * Return: its length (cut at @size - 1) or -errno.
 */
ssize_t fd_read_at(int dir, const char *path, char *buf, size_t size) MUST_CHECK;

/*
 * fd_read_all() - read a file descriptor to its end
 * @limit: refuse (-EFBIG) when there is more than this
 * @ret:   a heap block of *@ret_len bytes and one NUL behind them; the caller frees it
 */
int fd_read_all(int fd, size_t limit, char **ret, size_t *ret_len) MUST_CHECK;

/* fd_memfd() - a sealed memfd that holds @len bytes of @data.  Return: the descriptor or -errno */
int fd_memfd(const char *name, const void *data, size_t len) MUST_CHECK;

/*
 * fd_map_sealed() - map a received memfd for reading
 *
 * Its seals are checked first (no shrink, grow or write), so that the sender can't change or truncate it later.
 * Return: 0 or -errno (-EPERM: not sealed).  *@ret is released by munmap of *@ret_len bytes; NULL when empty.
 */
int fd_map_sealed(int fd, const char **ret, size_t *ret_len) MUST_CHECK;

/* fd_send() - one SEQPACKET message with up to FD_MAX_PASSED descriptors; retries EINTR.  Return: 0 or -errno */
int fd_send(int sock, const void *data, size_t len, const int *fds, size_t n_fds);

/*
 * fd_take() - one SEQPACKET message without descriptors
 *
 * A peer that ended with messages of ours unread makes one call fail with ECONNRESET although its own last words are still
 * to be read: neither that nor EINTR is ever returned.
 * Return: its length, 0 at the peer's end, -EAGAIN (only without @wait: nothing now), -errno else.
 */
ssize_t fd_take(int sock, void *data, size_t size, bool wait) MUST_CHECK;

/*
 * fd_recv() - one SEQPACKET message; received descriptors are CLOEXEC and belong to the caller
 * @fds:     room for FD_MAX_PASSED
 *
 * Return: its length, 0 at the peer's end, -EMSGSIZE when it was longer than @size, -errno else.
 * On an error every received descriptor is closed.
 */
ssize_t fd_recv(int sock, void *data, size_t size, int *fds, size_t *ret_n_fds) MUST_CHECK;

/* fd_cloexec() - set or clear FD_CLOEXEC.  Return: 0 or -errno */
int fd_cloexec(int fd, bool on);
