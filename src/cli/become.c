/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/become.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/macro.h"
#include "base/place.h"
#include "cli/cli.h"
#include "cli/say.h"

#ifndef CLOCHE_LIBEXECDIR
#error "CLOCHE_LIBEXECDIR: where our other programs are installed"
#endif

#define ARGS_MAX 40

int become_program(const char *name, const char *const *argv)
{
	char *args[ARGS_MAX + 2] = { (char *)(uintptr_t)name };
	char program[PATH_MAX];

	for (size_t n = 0; argv[n] && n < ARGS_MAX; n++)
		args[n + 1] = (char *)(uintptr_t)argv[n];
	if (place_beside(name, program, sizeof(program)) < 0)
		(void)snprintf(program, sizeof(program), "%s/%s", CLOCHE_LIBEXECDIR, name);
	(void)fflush(stdout);
	(void)execv(program, args);
	say("%s: %s", program, strerror(errno));
	return CLI_COULD_NOT;
}

int become_command(const struct become *b, int argc, char **argv)
{
	struct options o = { .items = NULL };
	struct refusal no = { .status = CLI_OK };
	int r = options_parse(argc, argv, b->command, &o, &no);
	int status = CLI_OK;

	if (r == 0 && options_have(&o, OPT_HELP)) {
		(void)fputs(b->usage, stdout);
		options_help(b->command);
		(void)fputs(b->examples, stdout);
	} else {
		if (r == 0)
			r = b->check(&o, &no);
		status = r < 0 ? refusal_tell(&no, false) : b->execute(&o);
	}
	options_done(&o);
	return status;
}
