/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection.
 *
 * What a client can make us hold is bounded: one request, one message of standard input, and of what it does not read a
 * few messages, for while there is one neither its run nor itself is listened to.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/parse.h"
#include "server/log.h"
#include "server/server.h"

#define READ_MESSAGES 4 /* in one turn */
#define PATIENCE_NS   (30 * NS_PER_SEC)

/* What a newcomer of whom there is no room gets. */
static void turn_away(int fd)
{
	static const char words[] =
		"{\"error\": {\"field\": \"server\", \"given\": \"another connection\", \"allowed\": "
		"\"fewer connections\", \"message\": \"server: too many connections; try again\"}}";
	struct native_message m = { .head = { .type = NATIVE_ERROR, .version = NATIVE_VERSION, .code = ERR_BUSY } };

	memcpy(m.data, words, sizeof(words) - 1);
	(void)fd_send(fd, &m, sizeof(m.head) + sizeof(words) - 1, NULL, 0);
	(void)close(fd);
}

/* May it say for whom its requests are? */
static bool is_trusted(const struct server *s, uid_t uid)
{
	return uid == 0 || uid == s->trusted;
}

/* Nobody has more than half of what the others leave, so that there is always some left for one more. */
static unsigned share(const struct server *s, const struct tenant *t)
{
	return (CLIENTS_MAX - (s->n_clients - t->n_clients)) / 2;
}

void client_add(struct server *s, int fd, uid_t uid)
{
	struct tenant *t = admit_tenant(s, uid, "");
	/* who may speak for others holds connections for many, and keeps to limits of his own */
	bool is_full = s->n_clients >= CLIENTS_MAX || (t && !is_trusted(s, uid) && t->n_clients >= share(s, t));
	struct client *c = t && !is_full ? calloc(1, sizeof(*c)) : NULL;

	if (!c) {
		log_line(LOG_WARNING, "event=turned_away uid=%u clients=%u", uid, s->n_clients);
		stats_refused(&s->stats, ERR_BUSY);
		turn_away(fd);
		return;
	}
	c->source = (struct source) { .kind = SOURCE_CLIENT, .owner = c, .fd = -1 };
	c->run_source = (struct source) { .kind = SOURCE_RUN, .owner = c, .fd = -1 };
	c->server = s;
	c->tenant = t;
	c->uid = uid;
	c->served = ++s->turn; /* behind those who are here already */
	c->out_end = &c->out;
	c->next = s->clients;
	s->clients = c;
	s->n_clients++;
	t->n_clients++;
	c->source.fd = fd;
	client_watch(s, c);
}

void client_watch(struct server *s, struct client *c)
{
	uint32_t events = c->is_shut ? 0 : EPOLLRDHUP;
	bool is_streamed = c->state != CLIENT_IDLE && (c->flags & NATIVE_STREAM_INPUT);

	if (c->is_gone)
		return;
	if (c->out)
		events |= EPOLLOUT;
	if (!c->is_shut && (c->state == CLIENT_IDLE ? !c->out : is_streamed && !c->is_input_held))
		events |= EPOLLIN;
	if (source_set(s, &c->source, c->source.fd, events ? events : EPOLLERR) < 0)
		client_close(s, c);
}

static void drop_out(struct client *c)
{
	while (c->out) {
		struct outgoing *m = c->out;

		c->out = m->next;
		fd_close(&m->fd);
		free(m);
	}
	c->out_end = &c->out;
}

void client_close(struct server *s, struct client *c)
{
	int fd = c->source.fd;

	if (c->is_gone)
		return;
	c->is_gone = true;
	(void)source_set(s, &c->source, -1, 0);
	(void)close(fd);
	drop_out(c);
	if (c->state == CLIENT_WAITING) {
		admit_leave(s, c);
		work_release(c);
	} else if (c->state == CLIENT_RUNNING) {
		work_cancel(c);
		work_watch(s, c);
	}
}

/* Hand over what waits, as far as the client takes it. */
static void flush(struct server *s, struct client *c)
{
	while (c->out) {
		struct outgoing *m = c->out;
		int r = fd_send(c->source.fd, m->data, m->len, &m->fd, m->fd >= 0);

		if (r == -EAGAIN)
			break;
		if (r < 0) {
			client_close(s, c);
			return;
		}
		c->out = m->next;
		if (!c->out)
			c->out_end = &c->out;
		c->has_given |= m->fd >= 0;
		fd_close(&m->fd);
		free(m);
	}
	if (!c->out && c->is_shut && c->state == CLIENT_IDLE)
		client_close(s, c); /* it has its answer, and nothing more can come */
}

static void put(struct server *s, struct client *c, const struct native_head *head, const void *body, size_t len,
		int fd)
{
	struct outgoing *m = c->is_gone ? NULL : malloc(sizeof(*m) + sizeof(*head) + len);

	if (!m) {
		fd_close(&fd);
		client_close(s, c);
		return;
	}
	m->next = NULL;
	m->fd = fd;
	m->len = sizeof(*head) + len;
	memcpy(m->data, head, sizeof(*head));
	if (len)
		memcpy(m->data + sizeof(*head), body, len);
	*c->out_end = m;
	c->out_end = &m->next;
	flush(s, c);
	if (c->out) {
		s->has_stalled = true;
		if (c->state != CLIENT_RUNNING)
			c->patience_ns = clock_now_ns() + PATIENCE_NS;
	}
	client_watch(s, c);
}

void client_send(struct server *s, struct client *c, const struct native_head *head, const void *body, size_t len)
{
	put(s, c, head, body, len, -1);
}

void client_send_text(struct server *s, struct client *c, const struct native_head *head, const char *text)
{
	size_t len = text ? strlen(text) : 0;
	int fd = -1;

	if (text && len <= NATIVE_DATA_MAX) {
		put(s, c, head, text, len, -1);
		return;
	}
	if (text)
		fd = fd_memfd("answer", text, len);
	if (fd < 0) {
		log_line(LOG_ERROR, "event=no_answer reason=\"out of memory\"");
		client_close(s, c);
		return;
	}
	put(s, c, head, NULL, 0, fd);
}

/* A file on its way is memory of ours, however short the message that it goes with: one at a time. */
static bool has_untaken(struct client *c)
{
	int n = 0;

	if (c->has_given && ioctl(c->source.fd, SIOCOUTQ, &n) == 0 && n > 0)
		return true;
	c->has_given = false;
	return false;
}

/* Return: 0, or -errno: the client breaks the rules */
static int take_run(struct server *s, struct client *c, const struct native_message *m, size_t len, int fd)
{
	const char *json = m->data;
	size_t json_len = len;
	int r;

	if (c->state != CLIENT_IDLE || has_untaken(c))
		return -EPROTO;
	c->flags = m->head.flags;
	c->arrived_ns = clock_now_ns();
	if (fd < 0)
		return intake(s, c, json, json_len);
	r = fd_map_sealed(fd, &json, &json_len);
	if (r < 0)
		return r;
	r = intake(s, c, json ? json : "", json_len);
	if (json)
		(void)munmap((void *)(uintptr_t)json, json_len);
	return r;
}

static int take_hello(struct server *s, struct client *c, const struct native_message *m, size_t len)
{
	struct native_head head = { .type = NATIVE_DIFFERS, .version = NATIVE_VERSION };
	uint64_t digest;

	if (c->state != CLIENT_IDLE || len != sizeof(digest))
		return -EPROTO;
	memcpy(&digest, m->data, sizeof(digest));
	if (digest == s->shared->digest)
		head.type = NATIVE_WELCOME;
	client_send(s, c, &head, NULL, 0);
	return 0;
}

/* "uid-1000" is that user, by whichever door it comes; each other name is a tenant of its own. */
static struct tenant *named(struct server *s, uid_t peer, const char *name)
{
	const size_t head = sizeof(NATIVE_TENANT_UID) - 1;
	uint64_t uid;

	if (strncmp(name, NATIVE_TENANT_UID, head) == 0 && parse_u64(name + head, 0, UINT32_MAX - 1, &uid) == 0)
		return admit_tenant(s, (uid_t)uid, "");
	return admit_tenant(s, peer, name);
}

/* Return: 0, or -errno: it may not, or breaks the rules */
static int take_tenant(struct server *s, struct client *c, const struct native_message *m, size_t len)
{
	char name[NATIVE_TENANT_MAX + 1] = "";
	struct tenant *t;

	if (!is_trusted(s, c->uid))
		return -EPERM;
	if (c->state != CLIENT_IDLE || len == 0 || len > NATIVE_TENANT_MAX)
		return -EPROTO;
	memcpy(name, m->data, len);
	if (strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") != len)
		return -EPROTO;
	t = named(s, c->uid, name);
	if (!t)
		return -ENOMEM;
	t->n_clients++;
	c->tenant->n_clients--;
	c->tenant = t;
	return 0;
}

static int take_stats(struct server *s, struct client *c)
{
	struct native_head head = { .type = NATIVE_STATS_REPLY, .version = NATIVE_VERSION };
	auto_free char *text = NULL;

	if (c->state != CLIENT_IDLE)
		return -EPROTO;
	text = stats_write(s, is_trusted(s, c->uid) ? NULL : c->tenant);
	client_send_text(s, c, &head, text);
	return 0;
}

static int take(struct server *s, struct client *c, const struct native_message *m, size_t len, int fd)
{
	struct native_head differs = { .type = NATIVE_DIFFERS, .version = NATIVE_VERSION };

	if (m->head.version != NATIVE_VERSION) {
		client_send(s, c, &differs, NULL, 0);
		return -EPROTO;
	}
	switch (m->head.type) {
	case NATIVE_HELLO:
		return take_hello(s, c, m, len);
	case NATIVE_RUN:
		return take_run(s, c, m, len, fd);
	case NATIVE_INPUT:
		work_input(s, c, m->data, len);
		return 0;
	case NATIVE_ENV:
		if (c->state != CLIENT_IDLE)
			return -EPROTO;
		intake_environments(s, c);
		return 0;
	case NATIVE_TENANT:
		return take_tenant(s, c, m, len);
	case NATIVE_STATS:
		return take_stats(s, c);
	default:
		return -EPROTO;
	}
}

/* Return: 1 there may be more, 0 not now, -errno */
static int read_one(struct server *s, struct client *c)
{
	struct native_message m;
	int fds[FD_MAX_PASSED];
	size_t n_fds;
	ssize_t n = fd_recv(c->source.fd, &m, sizeof(m), fds, &n_fds);
	int r;

	if (n == -EAGAIN)
		return 0;
	if (n <= 0)
		return n == 0 ? 0 : (int)n; /* its end comes as an event of its own */
	r = n < (ssize_t)sizeof(m.head) || n_fds > 1 ? -EPROTO
						     : take(s, c, &m, (size_t)n - sizeof(m.head), n_fds ? fds[0] : -1);
	for (size_t i = 0; i < n_fds; i++)
		fd_close(&fds[i]);
	return r < 0 ? r : 1;
}

static void read_some(struct server *s, struct client *c)
{
	int r = 1;

	for (int i = 0; i < READ_MESSAGES && r > 0 && !c->is_gone && (c->source.events & EPOLLIN); i++)
		r = read_one(s, c);
	if (r >= 0 || c->is_gone)
		return;
	log_line(LOG_WARNING, "event=bad_client uid=%u error=%d", c->uid, -r);
	client_close(s, c);
}

/* No more will come of it: what is under way is cancelled, and its result still sent. */
static void shut(struct server *s, struct client *c)
{
	c->is_shut = true;
	if (c->state == CLIENT_WAITING) {
		admit_leave(s, c);
		work_fail(s, c, STATUS_CANCELLED, "stopped: the caller asked for it or went away");
	} else if (c->state == CLIENT_RUNNING) {
		work_cancel(c);
	} else if (!c->out) {
		client_close(s, c);
	}
	if (!c->is_gone)
		client_watch(s, c);
}

void client_event(struct server *s, struct client *c, uint32_t events)
{
	if (c->is_gone)
		return;
	if (events & (EPOLLHUP | EPOLLERR)) {
		client_close(s, c);
		return;
	}
	if (events & EPOLLOUT) {
		flush(s, c);
		if (!c->is_gone)
			client_watch(s, c);
		if (!c->out && c->state == CLIENT_RUNNING)
			work_watch(s, c);
	}
	if (events & EPOLLIN && !c->is_gone)
		read_some(s, c);
	if (events & EPOLLRDHUP && !c->is_gone && !c->is_shut)
		shut(s, c);
}

void client_reap(struct server *s)
{
	struct client **at = &s->clients;

	while (*at) {
		struct client *c = *at;

		if (!c->is_gone || c->state != CLIENT_IDLE) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		c->tenant->n_clients--;
		s->n_clients--;
		free(c->input);
		free(c);
	}
}
