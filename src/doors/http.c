/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cloche-door http --server SOCKET [--http-socket PATH] [--listen HOST:PORT] [--behind-tls-proxy]
 *
 * cloched starts it and ends it.  What needs root's rights, if it has them (sockets, the first token), is done before
 * the first byte of a client is read; then they are given up.
 */
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "doors/door.h"
#include "doors/doors.h"
#include "doors/mcp_http.h"

#define DESCRIPTORS   8192
#define GRACE_SECONDS 10

/* What the command line says, over what the configuration says. */
struct arguments {
	const char *server;
	const char *socket;
	const char *listen;
	bool is_behind_tls_proxy;
};

void door_log(bool is_bad, const char *fmt, ...)
{
	char line[900];
	size_t used;
	va_list ap;

	if (getenv("JOURNAL_STREAM"))
		used = (size_t)snprintf(line, sizeof(line), "<%d>", is_bad ? 3 : 6);
	else
		used = (size_t)snprintf(line, sizeof(line), "level=%s ", is_bad ? "error" : "info");
	va_start(ap, fmt);
	(void)vsnprintf(line + used, sizeof(line) - used - 1, fmt, ap);
	va_end(ap);
	for (char *p = line; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			*p = '?';
	used = strlen(line);
	line[used] = '\n';
	(void)!write(STDERR_FILENO, line, used + 1);
}

static int read_arguments(int argc, char **argv, struct arguments *a)
{
	static const struct option options[] = {
		{ "server", required_argument, NULL, 's' },
		{ "http-socket", required_argument, NULL, 'u' },
		{ "listen", required_argument, NULL, 'l' },
		{ "behind-tls-proxy", no_argument, NULL, 'b' },
		{ NULL, 0, NULL, 0 },
	};
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		switch (option) {
		case 's':
			a->server = optarg;
			break;
		case 'u':
			a->socket = optarg;
			break;
		case 'l':
			a->listen = optarg;
			break;
		case 'b':
			a->is_behind_tls_proxy = true;
			break;
		default:
			return -EINVAL;
		}
	}
	return a->server && optind == argc ? 0 : -EINVAL;
}

/* A secret for the server's own user, where he alone can read it; made anew at each start. */
static int make_local_token(struct door *d, struct err *e)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	char secret[TOKEN_TEXT_SIZE];
	auto_free char *folder = NULL;
	auto_free char *path = NULL;
	auto_fd int fd = -1;

	if (!runtime || *runtime != '/')
		runtime = geteuid() == 0 ? "/run" : NULL;
	if (!runtime)
		return 0; /* nowhere to put it */
	if (asprintf(&folder, "%s/cloche", runtime) < 0 || asprintf(&path, "%s/http-token", folder) < 0)
		return err_set(e, ERR_HOST, ENOMEM, "start");
	(void)mkdir(folder, geteuid() == 0 ? 0755 : 0700);
	(void)unlink(path);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0 || token_make(secret, d->local_hash) < 0 || fd_write_all(fd, secret, strlen(secret)) < 0 ||
	    fd_write_all(fd, "\n", 1) < 0)
		return err_set(e, ERR_HOST, errno, "%s", path);
	explicit_bzero(secret, sizeof(secret));
	d->has_local = true;
	return 0;
}

/* Whose server it is: whoever has made its socket. */
static int find_owner(struct door *d, const char *server, struct err *e)
{
	struct stat st;

	if (stat(server, &st) < 0)
		return err_set(e, ERR_HOST, errno, "server %s", server);
	d->server_uid = st.st_uid;
	d->server_gid = st.st_gid;
	(void)snprintf(d->local_tenant, sizeof(d->local_tenant), "uid-%u", st.st_uid);
	return 0;
}

static int open_tokens(struct door *d, struct err *e)
{
	char *path = NULL;
	int r = tokens_path(d->server_uid, &path, e);

	if (r < 0)
		path = strdup("/nonexistent"); /* no home, no tokens */
	if (!path)
		return err_set(e, ERR_HOST, ENOMEM, "tokens");
	r = tokens_open(&d->tokens, path, e);
	if (r < 0) { /* it may be mended while we run */
		door_log(true, "event=tokens error=\"%s\"", e->msg);
		d->tokens.path = d->tokens.path ? d->tokens.path : strdup(path);
		r = d->tokens.path ? 0 : err_set(e, ERR_HOST, ENOMEM, "tokens");
	}
	free(path);
	return r;
}

/* Everything that may need rights. */
static int open_sockets(struct door *d, const struct arguments *a, struct http_listeners *l, struct err *e)
{
	const struct conf_http *conf = &d->settings.conf.http;
	const char *path = a->socket ? a->socket : conf->socket;
	const char *address = a->listen ? a->listen : conf->listen;
	bool is_behind = a->is_behind_tls_proxy || conf->is_behind_tls_proxy;
	int r = 0;

	if (!path && !address)
		return err_set(e, ERR_INVALID, 0, "neither --http-socket nor --listen says where to listen");
	if (path)
		r = listen_unix(path, d->settings.conf.server.group, &l->unix_fd, e);
	if (r == 0 && address)
		r = listen_tcp(address, is_behind, &l->tcp_fd, &d->listen_host, e);
	if (r == 0 && address)
		r = make_local_token(d, e);
	if (r == 0)
		r = privileges_drop(d->server_gid, e);
	return r;
}

static bool on_mcp_enter(void *door, struct http_conn *c, const char *request, size_t len, char **ret_refusal)
{
	struct limit_refusal no;

	if (limits_take(door, http_conn_caller(c), request, len, &no) == 0)
		return true;
	*ret_refusal = no.error;
	return false;
}

static void on_mcp_leave(void *door, const struct http_caller *who)
{
	limits_leave(door, who);
}

void mcp_post(struct door *d, struct http_conn *c)
{
	mcp_http_request(d->mcp, c);
}

/* The parts, on the loop. */
static int build(struct door *d, const struct arguments *a, struct http_listeners *l, struct err *e)
{
	struct mcp_gate gate = { .userdata = d, .on_enter = on_mcp_enter, .on_leave = on_mcp_leave };
	struct mcp_terms terms = mcp_terms_of(&d->settings.conf.rules);
	struct http_app app = {
		.userdata = d,
		.patience_ns = d->settings.conf.http.patience_ns,
		.on_head = judge_head,
		.on_request = judge_request,
		.on_refuse = judge_refuse,
		.on_answer = metrics_count,
	};
	int r;

	d->base = event_base_new();
	if (!d->base)
		return err_set(e, ERR_HOST, ENOMEM, "start");
	r = runner_new(d->base, a->server, &d->runner, e);
	if (r == 0)
		r = http_server_new(d->base, &app, &d->http, e);
	if (r == 0)
		r = mcp_http_new(d->base, d->runner, &terms, &gate, &d->mcp, e);
	if (r == 0 && l->unix_fd >= 0)
		r = http_server_listen(d->http, take_fd(&l->unix_fd), true, e);
	if (r == 0 && l->tcp_fd >= 0)
		r = http_server_listen(d->http, take_fd(&l->tcp_fd), false, e);
	return r;
}

/* The first time: what is held may end; the second: not. */
static void on_stop(evutil_socket_t number, short what, void *userdata)
{
	static const struct timeval grace = { .tv_sec = GRACE_SECONDS };
	static const struct timeval often = { .tv_usec = 200000 };
	struct door *d = userdata;

	(void)number;
	(void)what;
	if (d->is_stopping || http_server_stop(d->http) == 0)
		(void)event_base_loopbreak(d->base);
	d->is_stopping = true;
	(void)event_add(d->empty, &often);
	(void)event_base_loopexit(d->base, &grace);
}

/* Are all connections gone? */
static void on_poll(evutil_socket_t fd, short what, void *userdata)
{
	struct door *d = userdata;

	(void)fd;
	(void)what;
	if (http_server_count(d->http) == 0)
		(void)event_base_loopbreak(d->base);
}

static int loop(struct door *d, struct err *e)
{
	struct event *signals[] = {
		evsignal_new(d->base, SIGTERM, on_stop, d),
		evsignal_new(d->base, SIGINT, on_stop, d),
	};
	int r = 0;

	d->empty = event_new(d->base, -1, EV_PERSIST, on_poll, d);
	if (!d->empty)
		r = err_set(e, ERR_HOST, ENOMEM, "start");
	for (size_t i = 0; i < ARRAY_LEN(signals); i++)
		if (r == 0 && (!signals[i] || event_add(signals[i], NULL) < 0))
			r = err_set(e, ERR_HOST, ENOMEM, "start");
	if (r == 0)
		door_log(false, "event=http_ready pid=%d", (int)getpid());
	if (r == 0 && event_base_dispatch(d->base) < 0)
		r = err_set(e, ERR_HOST, errno, "the event loop");
	for (size_t i = 0; i < ARRAY_LEN(signals); i++)
		if (signals[i])
			event_free(signals[i]);
	if (d->empty)
		event_free(d->empty);
	return r;
}

static void door_done(struct door *d)
{
	d->is_stopping = true;
	mcp_http_free(d->mcp);
	http_server_free(d->http);
	about_done(d);
	live_done(d);
	runner_free(d->runner);
	limits_done(d);
	tokens_done(&d->tokens);
	settings_done(&d->settings);
	free(d->listen_host);
	free(d->counts);
	if (d->base)
		event_base_free(d->base);
}

/* Who has started us takes us with him. */
static void follow_parent(pid_t parent)
{
	(void)prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		(void)raise(SIGTERM);
}

static void raise_descriptors(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) < 0)
		return;
	l.rlim_cur = l.rlim_max < DESCRIPTORS ? l.rlim_max : DESCRIPTORS;
	(void)setrlimit(RLIMIT_NOFILE, &l);
}

int door_http(int argc, char **argv)
{
	struct http_listeners listeners = { .unix_fd = -1, .tcp_fd = -1 };
	struct arguments a = { .server = NULL };
	struct err e = { .kind = ERR_NONE };
	pid_t parent = getppid();
	struct door d = { .base = NULL };
	int r;

	if (read_arguments(argc, argv, &a) < 0) {
		door_log(true,
			 "event=http error=\"usage: http --server SOCKET [--http-socket PATH] [--listen HOST:PORT] "
			 "[--behind-tls-proxy]\"");
		return DOOR_USAGE;
	}
	raise_descriptors();
	r = settings_load(&d.settings, environ, &e);
	if (r == 0)
		r = settings_finish(&d.settings, &e);
	if (r == 0)
		r = find_owner(&d, a.server, &e);
	if (r == 0)
		r = open_sockets(&d, &a, &listeners, &e);
	if (r == 0)
		r = open_tokens(&d, &e);
	if (r == 0)
		r = build(&d, &a, &listeners, &e);
	follow_parent(parent);
	if (r == 0)
		r = loop(&d, &e);
	if (r < 0)
		door_log(true, "event=http error=\"%s\"", e.msg);
	door_done(&d);
	fd_close(&listeners.unix_fd);
	fd_close(&listeners.tcp_fd);
	return r == 0 ? DOOR_OK : e.kind == ERR_INVALID ? DOOR_USAGE : DOOR_COULD_NOT;
}
