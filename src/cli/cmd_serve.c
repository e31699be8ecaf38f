/* SPDX-License-Identifier: Apache-2.0 */
/* cloche serve: becomes the server, which is a program of its own. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/become.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/say.h"
#include "job/conf.h"

static const char usage[] =
	"Usage: cloche serve [OPTIONS]\n"
	"\n"
	"Serves runs on a socket that run, trigger and batch of the same user (root's: of every user who may open it)\n"
	"find by themselves.  It stays in the foreground and writes a line about each run to standard error.\n"
	"\n";

static const char examples[] =
	"\n"
	"SIGTERM ends it when the runs have ended, at most ten seconds later; a second one at once.  SIGHUP reads the\n"
	"configuration again.  See cloche-serve(8), and cloche-http(7) for what is asked over HTTP.\n"
	"\n"
	"Examples:\n"
	"  cloche serve\n"
	"  cloche serve --listen 127.0.0.1:7411\n"
	"  cloche serve --socket /tmp/mine.sock\n"
	"  cloche run --server /tmp/mine.sock hello.py\n";

/* The server reads its settings itself, and the door that it starts reads the same: an option is a variable to them. */
static int put_setting(enum option_id id, const char *key, const char *value, struct refusal *no)
{
	struct err e = { .kind = ERR_NONE };
	char name[64] = "CLOCHE_HTTP_";
	struct conf conf;
	int r = conf_init(&conf);

	if (r < 0)
		return refuse_memory(no);
	r = conf_set(&conf, "http", key, value, option_name(id), true, &e);
	conf_done(&conf);
	if (r < 0)
		return refuse_err(no, r, option_name(id), &e);
	for (size_t i = strlen(name); *key && i < sizeof(name) - 1; i++, key++)
		name[i] = *key == '_' ? '_' : (char)(*key - 'a' + 'A');
	return setenv(name, value, 1) < 0 ? refuse_memory(no) : 0;
}

/* Return: 0 or -errno with @no filled */
static int put_settings(const struct options *o, struct refusal *no)
{
	const char *listen = options_last(o, OPT_LISTEN);
	const char *path = options_last(o, OPT_HTTP_SOCKET);
	char folder[PATH_MAX];
	char whole[2 * PATH_MAX];
	int r = 0;

	if (listen)
		r = put_setting(OPT_LISTEN, "listen", listen, no);
	if (r == 0 && path && *path && *path != '/' && getcwd(folder, sizeof(folder))) {
		(void)snprintf(whole, sizeof(whole), "%s/%s", folder, path);
		path = whole;
	}
	if (r == 0 && path)
		r = put_setting(OPT_HTTP_SOCKET, "socket", path, no);
	if (r == 0 && options_have(o, OPT_BEHIND_TLS_PROXY))
		r = put_setting(OPT_BEHIND_TLS_PROXY, "behind_tls_proxy", "yes", no);
	return r;
}

static int check(const struct options *o, struct refusal *no)
{
	if (o->n_operands)
		return refuse(no, "argument", o->operands[0], "none");
	if (options_have(o, OPT_SOCKET) && !*options_last(o, OPT_SOCKET))
		return refuse(no, "--socket", "", "the path of a socket");
	return put_settings(o, no);
}

static int execute(const struct options *o)
{
	const char *argv[] = { "serve", options_last(o, OPT_SOCKET), NULL };

	return become_program("cloched", argv);
}

int cmd_serve(int argc, char **argv)
{
	static const struct become b = {
		.command = ON_SERVE, .usage = usage, .examples = examples, .check = check, .execute = execute
	};

	return become_command(&b, argc, argv);
}
