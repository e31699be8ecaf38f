/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * door_become() - execute cloche-door, the program of the commands that ask a server in another language than its own
 * @argv: the command's name and its options, NULL-terminated
 *
 * Return: only on failure, which was said: the exit status.
 */
int door_become(const char *const *argv);
