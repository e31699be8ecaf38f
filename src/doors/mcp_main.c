/* SPDX-License-Identifier: Apache-2.0 */
/* cloche mcp: a server of the Model Context Protocol for the client that started it. */
#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "doors/doors.h"
#include "doors/mcp_stdio.h"
#include "run/native.h"
#include "run/remote.h"
#include "run/settings.h"

/* What was asked for, and what came of it. */
struct program {
	const char *server; /* NULL: any, or none */
	bool is_local;
	struct settings settings;
	struct mcp_place place;
	char path[sizeof(((struct sockaddr_un *)NULL)->sun_path)]; /* of the server; empty: none */
};

static int parse(struct program *p, int argc, char **argv, struct err *e)
{
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--local") == 0)
			p->is_local = true;
		else if (strcmp(argv[i], "--server") == 0 && i + 1 < argc)
			p->server = argv[++i];
		else
			return err_set(e, ERR_INVALID, 0, "%.200s: not an option", argv[i]);
	}
	return p->is_local && p->server ? err_set(e, ERR_INVALID, 0, "--server: not together with --local") : 0;
}

/* One that nobody asked for is used only where it would give the same results. */
static bool is_usable(const struct program *p, const char *path)
{
	struct err ignored = { .kind = ERR_NONE };
	auto_fd int fd = -1;

	return remote_connect(path, settings_digest(&p->settings), &fd, &ignored) == REMOTE_SAME;
}

static int find_server(struct program *p, struct err *e)
{
	auto_fd int fd = -1;
	int r;

	if (p->server) {
		if (strlen(p->server) >= sizeof(p->path))
			return err_set(e, ERR_INVALID, ENAMETOOLONG, "--server");
		r = remote_connect(p->server, 0, &fd, e);
		if (r == REMOTE_SAME)
			(void)snprintf(p->path, sizeof(p->path), "%s", p->server);
		return r == REMOTE_SAME ? 0 : r < 0 ? r : -ECONNREFUSED;
	}
	if (p->is_local)
		return 0;
	for (unsigned n = 0; n < REMOTE_PLACES; n++) {
		if (remote_place(n, getenv("XDG_RUNTIME_DIR"), p->path, sizeof(p->path)) && is_usable(p, p->path))
			return 0;
	}
	p->path[0] = '\0';
	return 0;
}

/* Descriptors of any kind: a client may have given us a file. */
static struct event_base *make_base(void)
{
	struct event_config *config = event_config_new();
	struct event_base *base = NULL;

	if (config && event_config_require_features(config, EV_FEATURE_FDS) == 0)
		base = event_base_new_with_config(config);
	if (config)
		event_config_free(config);
	return base;
}

static int serve(struct program *p, struct err *e)
{
	struct mcp_terms terms;
	int r = settings_load(&p->settings, environ, e);

	if (r == 0)
		r = settings_finish(&p->settings, e);
	if (r == 0)
		r = find_server(p, e);
	if (r < 0)
		return r;
	terms = mcp_terms_of(&p->settings.conf.rules);
	p->place.base = make_base();
	if (!p->place.base)
		return err_set(e, ERR_HOST, ENOMEM, "event loop");
	if (p->path[0])
		r = runner_new(p->place.base, p->path, &p->place.server, e);
	if (r == 0 && !p->server)
		r = runner_own_new(p->place.base, &p->settings, &p->place.own, e);
	return r < 0 ? r : mcp_stdio(&p->place, &terms, STDIN_FILENO, STDOUT_FILENO, e);
}

int door_mcp(int argc, char **argv)
{
	struct program p = { .server = NULL };
	struct err e = { .kind = ERR_NONE };
	int r = parse(&p, argc, argv, &e);

	if (r < 0) {
		(void)fprintf(stderr, "cloche mcp: %s\n", e.msg);
		return DOOR_USAGE;
	}
	r = serve(&p, &e);
	if (r < 0)
		(void)fprintf(stderr, "cloche mcp: %s\n", e.msg);
	runner_free(p.place.server);
	runner_own_free(p.place.own);
	if (p.place.base)
		event_base_free(p.place.base);
	settings_done(&p.settings);
	return r == 0 ? DOOR_OK : e.kind == ERR_INVALID ? DOOR_USAGE : DOOR_COULD_NOT;
}
