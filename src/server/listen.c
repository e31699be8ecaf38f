/* SPDX-License-Identifier: Apache-2.0 */
#include "server/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/parse.h"
#include "base/place.h"
#include "run/native.h"
#include "run/remote.h"

#define MANAGER_FD 3 /* the first that a service manager passes */
#define BACKLOG    256
#define LOCK_NS    NS_PER_SEC
#define LATE_NS    (LOCK_NS / 4)

/* Return: 1 there is one, 0 there is none, -errno with @e set */
static int take_manager_socket(struct listener *l, struct err *e)
{
	const char *pid = getenv("LISTEN_PID");
	const char *fds = getenv("LISTEN_FDS");
	socklen_t len = sizeof(int);
	uint64_t number;
	int type;
	int listens;

	if (!pid || !fds || parse_u64(pid, 1, INT32_MAX, &number) < 0 || (pid_t)number != getpid())
		return 0;
	if (parse_u64(fds, 1, 1, &number) < 0)
		return err_set(e, ERR_INVALID, 0, "LISTEN_FDS: one socket is needed");
	if (getsockopt(MANAGER_FD, SOL_SOCKET, SO_TYPE, &type, &len) < 0 || type != SOCK_SEQPACKET ||
	    getsockopt(MANAGER_FD, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) < 0 || !listens)
		return err_set(e, ERR_INVALID, 0,
			       "LISTEN_FDS: a listening SEQPACKET socket is needed (ListenSequentialPacket=)");
	l->fd = MANAGER_FD;
	if (fd_cloexec(l->fd, true) < 0 || fcntl(l->fd, F_SETFL, O_NONBLOCK) < 0)
		return err_set(e, ERR_HOST, errno, "LISTEN_FDS");
	(void)unsetenv("LISTEN_PID");
	(void)unsetenv("LISTEN_FDS");
	(void)unsetenv("LISTEN_FDNAMES");
	return 1;
}

static int usual_path(char *ret, size_t size, struct err *e)
{
	bool is_root = geteuid() == 0;

	if (is_root && mkdir(NATIVE_SYSTEM_DIR, 0750) < 0 && errno != EEXIST)
		return err_set(e, ERR_HOST, errno, "make " NATIVE_SYSTEM_DIR);
	if (remote_place(is_root ? 1 : 0, getenv("XDG_RUNTIME_DIR"), ret, size))
		return 0;
	return err_set(e, ERR_INVALID, 0, "XDG_RUNTIME_DIR is not set, or too long: name a socket with --socket PATH");
}

/*
 * Who can write there can put a socket of his own in the place of ours.  A path that was named may be in a folder like
 * /tmp, where files are safe from others.
 */
static int check_folder(const char *path, bool is_usual, struct err *e)
{
	char dir[sizeof(((struct listener *)NULL)->path)];
	char *slash;
	struct stat st;

	(void)snprintf(dir, sizeof(dir), "%s", path);
	slash = strrchr(dir, '/');
	if (!slash || *path != '/')
		return err_set(e, ERR_INVALID, 0, "%s: an absolute path is needed", path);
	slash[slash == dir] = '\0';
	if (stat(dir, &st) < 0)
		return err_set(e, ERR_INVALID, errno, "%s", dir);
	if (st.st_uid != geteuid() && (is_usual || st.st_uid != 0))
		return err_set(e, ERR_INVALID, 0, "%s: the folder of the socket belongs to user %u", dir, st.st_uid);
	if ((st.st_mode & (S_IWGRP | S_IWOTH)) && (is_usual || !(st.st_mode & S_ISVTX)))
		return err_set(e, ERR_INVALID, 0, "%s: the folder of the socket can be written by others", dir);
	return 0;
}

static int open_lock(const struct listener *l, char *ret_path, size_t size)
{
	(void)snprintf(ret_path, size, "%s.lock", l->path);
	return open(ret_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
}

/* Somebody may have it for a moment who is not there any more.  Return: 0 or -1 with errno */
static int lock_within(int fd, uint64_t ns)
{
	uint64_t until_ns = clock_now_ns() + ns;
	int r;

	while ((r = flock(fd, LOCK_EX | LOCK_NB)) < 0 && errno == EWOULDBLOCK && clock_now_ns() < until_ns)
		(void)poll(NULL, 0, 10);
	return r;
}

static int take_lock(struct listener *l, struct err *e)
{
	char path[sizeof(l->path) + 8];
	int r;

	l->lock = open_lock(l, path, sizeof(path));
	if (l->lock < 0)
		return err_set(e, ERR_HOST, errno, "%s", path);
	/* it may be the launcher's of a server that was killed: listener_remove_late() */
	r = lock_within(l->lock, LOCK_NS);
	if (r < 0)
		return err_set(e, ERR_HOST, errno == EWOULDBLOCK ? 0 : errno, "%s: another server has it", path);
	return 0;
}

/* The folder made by us and the socket go to the group; everybody else is kept out by the modes. */
static int give_to_group(const char *path, gid_t gid, struct err *e)
{
	if (chown(path, (uid_t)-1, gid) < 0)
		return err_set(e, ERR_HOST, errno, "%s: give to group %u", path, gid);
	if (strcmp(path, NATIVE_SYSTEM_SOCKET) == 0 && chown(NATIVE_SYSTEM_DIR, (uid_t)-1, gid) < 0)
		return err_set(e, ERR_HOST, errno, NATIVE_SYSTEM_DIR ": give to group %u", gid);
	return 0;
}

static int bind_path(struct listener *l, gid_t group, struct err *e)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	bool is_root = l->is_roots;
	struct stat st;
	mode_t old;
	int r;

	memcpy(at.sun_path, l->path, strlen(l->path) + 1);
	r = place_clear(&at, SOCK_SEQPACKET, e);
	if (r < 0)
		return r;
	l->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (l->fd < 0)
		return err_set(e, ERR_HOST, errno, "make a socket");
	old = umask(0177); /* closed to all until it is whose it should be */
	r = bind(l->fd, (struct sockaddr *)&at, sizeof(at));
	(void)umask(old);
	if (r < 0)
		return err_set(e, ERR_HOST, errno, "%s", l->path);
	if (stat(l->path, &st) == 0) {
		l->dev = st.st_dev;
		l->ino = st.st_ino;
	}
	r = is_root && group != (gid_t)-1 ? give_to_group(l->path, group, e) : 0;
	if (r == 0 && is_root && chmod(l->path, 0660) < 0)
		r = err_set(e, ERR_HOST, errno, "%s", l->path);
	if (r == 0 && listen(l->fd, BACKLOG) < 0)
		r = err_set(e, ERR_HOST, errno, "%s", l->path);
	return r;
}

static void find_address(struct listener *l)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	socklen_t len = sizeof(at);

	if (getsockname(l->fd, (struct sockaddr *)&at, &len) == 0 && len > offsetof(struct sockaddr_un, sun_path))
		(void)snprintf(l->address, sizeof(l->address), "%.*s",
			       (int)(len - offsetof(struct sockaddr_un, sun_path)), at.sun_path);
}

int listener_open(struct listener *ret, const char *path, const char *group, gid_t front, struct err *e)
{
	struct listener l = { .fd = -1, .lock = -1, .is_roots = geteuid() == 0 };
	const struct group *g = l.is_roots && group ? getgrnam(group) : NULL;
	int r;

	if (l.is_roots && group && !g)
		return err_set(e, ERR_INVALID, 0, "server.group: there is no group %s", group);
	r = take_manager_socket(&l, e);
	if (r == 0) {
		if (path && strlen(path) >= sizeof(l.path))
			return err_set(e, ERR_INVALID, ENAMETOOLONG, "--socket %.200s", path);
		if (path)
			(void)snprintf(l.path, sizeof(l.path), "%s", path);
		else
			r = usual_path(l.path, sizeof(l.path), e);
		if (r == 0)
			r = check_folder(l.path, !path, e);
		if (r == 0)
			r = take_lock(&l, e);
		if (r == 0)
			r = bind_path(&l, g ? g->gr_gid : front, e);
	}
	if (r < 0) {
		listener_close(&l);
		return r;
	}
	find_address(&l);
	*ret = l;
	return 0;
}

void listener_remove(const struct listener *l)
{
	struct stat st;

	if (l->path[0] && stat(l->path, &st) == 0 && st.st_dev == l->dev && st.st_ino == l->ino)
		(void)unlink(l->path);
}

void listener_remove_late(const struct listener *l)
{
	char path[sizeof(l->path) + 8];
	auto_fd int lock = l->path[0] ? open_lock(l, path, sizeof(path)) : -1;

	/* what told us of its end may have come before its lock's end: descriptors are closed one by one */
	if (lock < 0 || lock_within(lock, LATE_NS) < 0)
		return;
	/* inodes are used again: a new server's socket may look like ours */
	listener_remove(l);
}

void listener_close(struct listener *l)
{
	if (l->fd >= 0 && !l->is_others)
		listener_remove(l);
	fd_close(&l->fd);
	fd_close(&l->lock); /* the file stays: removing it would let two servers lock different ones */
}

int listener_accept(const struct listener *l, uid_t *ret_uid)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);
	auto_fd int fd = -1;

	do
		fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	while (fd < 0 && errno == EINTR);
	if (fd < 0)
		return -errno;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
		return -ECONNABORTED;
	/* root's socket lets in whom its mode lets in; another's serves its owner and root */
	if (!l->is_roots && peer.uid != 0 && peer.uid != geteuid())
		return -ECONNABORTED;
	*ret_uid = peer.uid;
	return take_fd(&fd);
}
