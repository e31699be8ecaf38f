/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/options.h"

/* A command that is a program of its own: it is looked through here, and then we become that program. */
struct become {
	enum option_command command;
	const char *usage;    /* before and after the list of options in --help */
	const char *examples;
	/* Return: 0, or -errno with @no filled */
	int (*check)(const struct options *o, struct refusal *no);
	/* only become_program() ends it well.  Return: the exit status */
	int (*execute)(const struct options *o);
};

/* become_command() - the whole command.  Return: the exit status */
int become_command(const struct become *b, int argc, char **argv);

/*
 * become_program() - execute @program, beside ours or where it was installed
 * @argv: its arguments without its name, NULL-terminated
 *
 * Return: only on failure, which was said: the exit status.
 */
int become_program(const char *program, const char *const *argv);
