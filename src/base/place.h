/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <sys/un.h>

#include "base/err.h"
#include "base/macro.h"

/* Where things are: beside our own program, in a list of variables, at a socket's path. */

/*
 * place_beside() - the path of @name in the folder of the program that runs
 *
 * Return: 0; -errno: the folder is not known, or @name is not in it (-ENOENT, ...).
 */
int place_beside(const char *name, char *ret, size_t size) MUST_CHECK;

/* place_variable() - the value of @name in @variables ("K=V", NULL-terminated; NULL: none).  Return: borrowed; NULL: not there */
const char *place_variable(char *const *variables, const char *name);

/*
 * place_clear() - make @at free for bind(): a socket file that nobody listens at any more is removed, anything else stays
 * @type: SOCK_STREAM, SOCK_SEQPACKET
 *
 * Return: 0, or -errno with @e set (ERR_INVALID: it is no socket; ERR_HOST: somebody answers there, ...).
 */
int place_clear(const struct sockaddr_un *at, int type, struct err *e) MUST_CHECK;
