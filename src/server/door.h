/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <sys/types.h>

#include "base/err.h"
#include "base/macro.h"

/*
 * door_spawn() - cloche-door http, beside our own program, as our child
 * @server: where the native socket is
 *
 * Of root's server it begins with root's rights (its sockets, the first token) and gives them up itself.
 * Return: 0 or -errno with @e set
 */
int door_spawn(const char *server, pid_t *ret, struct err *e) MUST_CHECK;
