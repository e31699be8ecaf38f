/* SPDX-License-Identifier: Apache-2.0 */
#include "run/remote.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "run/native.h"

#define STEP_MESSAGES 16 /* in one remote_step(): our reader has its turn */
#define TEXT_MAX      ((size_t)1 << 30)

struct remote {
	int fd; /* borrowed */
	struct run_hooks hooks;
	bool is_input_over;
	bool is_cancel_asked;
	uint32_t reply;  /* what answers a question; 0: this is a run */
	uint32_t answer; /* enum native_type; 0: none yet */
	uint32_t code;
	char run_id[33]; /* empty: not told yet */
	char *text;      /* owned; the answer's body */
	size_t len;
	struct err err; /* why it was lost */
};

/* One message and the one descriptor that may come with it. */
struct incoming {
	struct native_message m;
	size_t len; /* of the body */
	int fd;     /* owned; -1: none */
};

/* Return: 1; 0: not now; -errno (-EPIPE: the server is gone) */
static int receive(int fd, struct incoming *in)
{
	int fds[FD_MAX_PASSED];
	size_t n_fds;
	ssize_t n = fd_recv(fd, &in->m, sizeof(in->m), fds, &n_fds);

	in->fd = -1;
	if (n == -EAGAIN)
		return 0;
	if (n <= 0)
		return n == 0 || n == -ECONNRESET ? -EPIPE : (int)n;
	for (size_t i = 0; i < n_fds; i++) {
		if (i == 0)
			in->fd = fds[i];
		else
			fd_close(&fds[i]);
	}
	if ((size_t)n < sizeof(in->m.head)) {
		fd_close(&in->fd);
		return -EBADMSG;
	}
	in->len = (size_t)n - sizeof(in->m.head);
	return 1;
}

/* The text of a message, with one NUL behind it. */
static int take_text(struct incoming *in, char **ret, size_t *ret_len)
{
	const char *data = in->m.data;
	size_t len = in->len;
	char *text;
	int r = 0;

	if (in->fd >= 0)
		r = fd_map_sealed(in->fd, &data, &len);
	if (r < 0)
		return r;
	text = len < TEXT_MAX ? malloc(len + 1) : NULL;
	if (text) {
		if (len)
			memcpy(text, data, len);
		text[len] = '\0';
	}
	if (in->fd >= 0 && data)
		(void)munmap((void *)(uintptr_t)data, len);
	if (!text)
		return -ENOMEM;
	*ret = text;
	*ret_len = len;
	return 0;
}

static int send_head(int fd, const struct native_head *head, const void *body, size_t len)
{
	struct native_message m = { .head = *head };
	int r;

	if (len)
		memcpy(m.data, body, len);
	while ((r = fd_send(fd, &m, sizeof(m.head) + len, NULL, 0)) == -EAGAIN) {
		struct pollfd p = { .fd = fd, .events = POLLOUT };

		(void)poll(&p, 1, -1);
	}
	return r;
}

/* For as long as the connection blocks: it has two seconds. */
static int greet(int fd, uint64_t digest)
{
	struct native_head head = { .type = NATIVE_HELLO, .version = NATIVE_VERSION };
	struct incoming in;
	int r = send_head(fd, &head, &digest, sizeof(digest));

	if (r == 0)
		r = receive(fd, &in);
	if (r <= 0)
		return r == 0 ? -ETIMEDOUT : r;
	fd_close(&in.fd);
	if (in.m.head.type == NATIVE_WELCOME && in.m.head.version == NATIVE_VERSION)
		return REMOTE_SAME;
	return in.m.head.type == NATIVE_DIFFERS ? REMOTE_OTHER : -EPROTO;
}

/* Who listens there: ourselves or root, else what we send would be in wrong hands. */
static int check_peer(int fd, const char *path, struct err *e)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
		return err_set(e, ERR_HOST, errno, "server %s", path);
	if (peer.uid != 0 && peer.uid != geteuid())
		return err_set(e, ERR_HOST, 0, "server %s: belongs to user %u, neither you nor root: not used", path,
			       peer.uid);
	return 0;
}

/* Return: as remote_connect(); with SOCK_NONBLOCK in @flags it never waits, else for two seconds at most */
static int dial(const char *path, int flags, int *ret_fd, struct err *e)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	struct timeval limit = { .tv_sec = 2 };
	auto_fd int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0);
	int r;

	if (fd < 0)
		return err_set(e, ERR_HOST, errno, "make a socket");
	if (strlen(path) >= sizeof(to.sun_path))
		return err_set(e, ERR_INVALID, ENAMETOOLONG, "server %.200s", path);
	memcpy(to.sun_path, path, strlen(path) + 1);
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0) {
		r = errno;
		(void)err_set(e, ERR_HOST, r, "server %s", path);
		return r == ENOENT || r == ECONNREFUSED || r == ENOTDIR ? REMOTE_ABSENT : -r;
	}
	r = check_peer(fd, path, e);
	if (r < 0)
		return r;
	*ret_fd = take_fd(&fd);
	return REMOTE_SAME;
}

int remote_connect_now(const char *path, int *ret_fd, struct err *e)
{
	return dial(path, SOCK_NONBLOCK, ret_fd, e);
}

bool remote_place(unsigned n, const char *runtime, char *ret, size_t size)
{
	int len;

	if (n == 0 && (!runtime || *runtime != '/'))
		return false;
	len = n == 0 ? snprintf(ret, size, "%s/" NATIVE_USER_SOCKET, runtime) : snprintf(ret, size, "%s", NATIVE_SYSTEM_SOCKET);
	return (size_t)len < size;
}

int remote_connect(const char *path, uint64_t digest, int *ret_fd, struct err *e)
{
	auto_fd int fd = -1;
	int r = dial(path, 0, &fd, e);

	if (r != REMOTE_SAME)
		return r;
	r = digest ? greet(fd, digest) : REMOTE_SAME;
	if (r < 0)
		return err_set(e, ERR_HOST, -r, "server %s: no answer", path);
	if (r != REMOTE_SAME)
		return r;
	if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
		return err_set(e, ERR_HOST, errno, "server %s", path);
	*ret_fd = take_fd(&fd);
	return REMOTE_SAME;
}

int remote_environments(int fd, char **ret, struct err *e)
{
	struct native_head head = { .type = NATIVE_ENV, .version = NATIVE_VERSION };
	struct pollfd p = { .fd = fd, .events = POLLIN };
	struct incoming in;
	size_t len;
	int r = send_head(fd, &head, NULL, 0);

	in.m.head.type = 0;
	in.fd = -1;
	if (r == 0)
		r = poll(&p, 1, 2000) > 0 ? receive(fd, &in) : -ETIMEDOUT;
	if (r <= 0)
		return err_set(e, ERR_HOST, r ? -r : ETIMEDOUT, "the server does not answer");
	r = in.m.head.type == NATIVE_ENV_REPLY ? take_text(&in, ret, &len) : -EPROTO;
	fd_close(&in.fd);
	return r < 0 ? err_set(e, ERR_HOST, -r, "read the server's answer") : 0;
}

int remote_tenant(int fd, const char *name, struct err *e)
{
	struct native_head head = { .type = NATIVE_TENANT, .version = NATIVE_VERSION };
	size_t len = strlen(name);
	int r = len > 0 && len <= NATIVE_TENANT_MAX ? send_head(fd, &head, name, len) : -EINVAL;

	return r < 0 ? err_set(e, ERR_HOST, -r, "tell the server for whom") : 0;
}

int remote_start(int fd, const struct remote_request *q, struct remote **ret, struct err *e)
{
	struct native_head head = { .type = NATIVE_RUN, .version = NATIVE_VERSION };
	struct remote *r = calloc(1, sizeof(*r));
	int k;

	if (!r)
		return err_set(e, ERR_HOST, ENOMEM, "ask the server");
	r->fd = fd;
	r->is_input_over = !q->is_streamed;
	if (q->hooks)
		r->hooks = *q->hooks;
	head.flags = (q->wants_id ? NATIVE_TELL_ID : 0u) | (q->is_streamed ? NATIVE_STREAM_INPUT : 0u) |
		     (r->hooks.on_output ? NATIVE_STREAM_OUTPUT : 0u);
	if (q->len <= NATIVE_DATA_MAX) {
		k = send_head(fd, &head, q->json, q->len);
	} else {
		int body = fd_memfd("request", q->json, q->len);

		k = body < 0 ? body : fd_send(fd, &head, sizeof(head), &body, 1);
		fd_close(&body);
	}
	if (k < 0) {
		free(r);
		return err_set(e, ERR_HOST, -k, "ask the server");
	}
	*ret = r;
	return 0;
}

int remote_ask(int fd, uint32_t type, struct remote **ret, struct err *e)
{
	struct native_head head = { .type = type, .version = NATIVE_VERSION };
	struct remote *r = calloc(1, sizeof(*r));
	int k = r ? send_head(fd, &head, NULL, 0) : -ENOMEM;

	if (k < 0) {
		free(r);
		return err_set(e, ERR_HOST, -k, "ask the server");
	}
	r->fd = fd;
	r->is_input_over = true;
	r->reply = type == NATIVE_ENV ? NATIVE_ENV_REPLY : NATIVE_STATS_REPLY;
	*ret = r;
	return 0;
}

short remote_events(const struct remote *r)
{
	(void)r;
	return POLLIN;
}

static void take_output(struct remote *r, const struct incoming *in)
{
	if (r->is_cancel_asked || !r->hooks.on_output || (in->m.head.code != 1 && in->m.head.code != 2))
		return;
	if (r->hooks.on_output(r->hooks.userdata, (int)in->m.head.code, in->m.data, in->len) < 0)
		remote_cancel(r);
}

static int take(struct remote *r, struct incoming *in)
{
	switch (in->m.head.type) {
	case NATIVE_ACCEPTED:
		if (in->len != sizeof(r->run_id) - 1)
			return -EPROTO;
		memcpy(r->run_id, in->m.data, in->len);
		return 0;
	case NATIVE_OUTPUT:
		take_output(r, in);
		return 0;
	case NATIVE_RESULT:
	case NATIVE_ENV_REPLY:
	case NATIVE_STATS_REPLY:
		if (in->m.head.type != (r->reply ? r->reply : (uint32_t)NATIVE_RESULT))
			return -EPROTO;
		__attribute__((fallthrough));
	case NATIVE_ERROR:
		r->answer = in->m.head.type;
		r->code = in->m.head.code;
		return take_text(in, &r->text, &r->len);
	default:
		return -EPROTO;
	}
}

int remote_step(struct remote *r, struct err *e)
{
	struct incoming in;
	int k = 0;

	for (int i = 0; i < STEP_MESSAGES && !r->answer; i++) {
		k = receive(r->fd, &in);
		if (k == 0)
			return 0;
		if (k > 0) {
			k = take(r, &in);
			fd_close(&in.fd);
		}
		if (k < 0)
			break;
	}
	if (k == -EPIPE)
		(void)err_set(&r->err, ERR_HOST, 0, "the server went away in the middle of a run");
	else if (k < 0)
		(void)err_set(&r->err, ERR_HOST, -k, "take what the server sends");
	if (k < 0) {
		*e = r->err;
		return k;
	}
	return r->answer != 0;
}

const char *remote_run_id(const struct remote *r)
{
	return r->run_id;
}

ssize_t remote_input(struct remote *r, const void *data, size_t len)
{
	struct native_message m = { .head = { .type = NATIVE_INPUT, .version = NATIVE_VERSION } };
	ssize_t n;

	if (r->is_input_over)
		return -EPIPE;
	if (len > sizeof(m.data))
		len = sizeof(m.data);
	if (len)
		memcpy(m.data, data, len);
	do
		n = send(r->fd, &m, sizeof(m.head) + len, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return -EAGAIN;
	if (n < 0 || len == 0)
		r->is_input_over = true;
	return n < 0 ? -EPIPE : (ssize_t)len;
}

void remote_cancel(struct remote *r)
{
	r->is_cancel_asked = true;
	(void)shutdown(r->fd, SHUT_WR);
}

int remote_finish(struct remote *r, struct remote_answer *ret, bool *ret_can_go_on, struct err *e)
{
	int k = 0;

	*ret_can_go_on = r->answer && !r->is_cancel_asked;
	if (!r->answer) {
		*e = r->err;
		k = r->err.sys ? -r->err.sys : -EPROTO;
		free(r->text);
	} else {
		*ret = (struct remote_answer) {
			.json = r->text,
			.len = r->len,
			.is_refused = r->answer == NATIVE_ERROR,
			.kind = r->code,
		};
	}
	free(r);
	return k;
}
