/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cloche-door: everything that is asked in another language than the native socket's.
 *
 * A door is a client of cloched without any privilege: what it is told passes to the native socket as it came, and
 * what comes from there goes out as cloched wrote it.
 *
 *	main.c     which door
 *	runner.c   runs at cloched, on an event loop
 *	http.c     http: the HTTP server (door.h)
 *	token_cmd.c  token: who may ask over the network
 *	mcp.c      mcp: the Model Context Protocol
 *	history_cmd.c  history: what ran, from the file that cloched has written
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/macro.h"
#include "doors/doors.h"
#include "job/text.h"

static const struct door {
	const char *name;
	int (*run)(int argc, char **argv);
} doors[] = {
	{ "http", door_http },
	{ "mcp", door_mcp },
	{ "token", door_token },
	{ "history", door_history },
};

int door_fail(const struct err *e)
{
	char line[sizeof(e->msg)];

	(void)fprintf(stderr, "cloche: %s\n", text_visible_in(line, sizeof(line), e->msg, strlen(e->msg)));
	return e->kind == ERR_INVALID ? DOOR_USAGE : e->kind == ERR_NOT_FOUND ? DOOR_NOT_FOUND : DOOR_COULD_NOT;
}

int main(int argc, char **argv)
{
	/* what of 0, 1, 2 is closed must not become something of ours */
	for (int fd = 0; fd <= 2; fd++) {
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) /* NOLINT(android-cloexec-open) */
			return DOOR_COULD_NOT;
	}
	(void)signal(SIGPIPE, SIG_IGN);
	for (size_t i = 0; argc > 1 && i < ARRAY_LEN(doors); i++) {
		if (strcmp(argv[1], doors[i].name) == 0)
			return doors[i].run(argc - 1, argv + 1);
	}
	(void)fputs("cloche-door is started by cloche and cloched, not by hand\n", stderr);
	return DOOR_USAGE;
}
