/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/door.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/macro.h"
#include "cli/cli.h"
#include "cli/say.h"

#ifndef CLOCHE_LIBEXECDIR
#error "CLOCHE_LIBEXECDIR: where cloche-door is installed"
#endif

#define PROGRAM  "cloche-door"
#define ARGS_MAX 32

/* Beside the running program (a build tree), else where it was installed. */
static void find_program(char *ret, size_t size)
{
	ssize_t n = readlink("/proc/self/exe", ret, size - 1);
	char *slash;

	if (n > 0) {
		ret[n] = '\0';
		slash = strrchr(ret, '/');
		if (slash && (size_t)(slash + 1 - ret) + sizeof(PROGRAM) <= size) {
			memcpy(slash + 1, PROGRAM, sizeof(PROGRAM));
			if (access(ret, X_OK) == 0)
				return;
		}
	}
	(void)snprintf(ret, size, "%s/" PROGRAM, CLOCHE_LIBEXECDIR);
}

int door_become(const char *const *argv)
{
	char *args[ARGS_MAX + 2] = { (char *)(uintptr_t)PROGRAM };
	char program[PATH_MAX];
	size_t n = 0;

	while (argv[n] && n < ARGS_MAX) {
		args[n + 1] = (char *)(uintptr_t)argv[n];
		n++;
	}
	find_program(program, sizeof(program));
	(void)fflush(stdout);
	(void)execv(program, args);
	say("%s: %s", program, strerror(errno));
	return CLI_COULD_NOT;
}
