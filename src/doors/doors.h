/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The doors: each is one subcommand of cloche-door.  argv[0] is its name; Return: the exit status. */
int door_http(int argc, char **argv);
int door_mcp(int argc, char **argv);
int door_token(int argc, char **argv);
int door_history(int argc, char **argv);

struct err;

/* door_fail() - a command's last words.  Return: the exit status for them */
int door_fail(const struct err *e);

#define DOOR_OK        0
#define DOOR_USAGE     2
#define DOOR_COULD_NOT 125
#define DOOR_NOT_FOUND 127
