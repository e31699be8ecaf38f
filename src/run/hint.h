/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "job/conf.h"
#include "job/result.h"

#define HINT_TAIL 1024 /* bytes of the end of stderr that are enough */

/*
 * hint_missing_module() - when a script ended because a module is missing that another environment preloads, say so
 * @environment: where it ran
 * @err, @len:   the end of its stderr: the script's words, hence hostile
 *
 * Adds to @r's message; does nothing when there is nothing to say.  Return: 0 or -ENOMEM
 */
int hint_missing_module(const struct conf *c, const char *environment, const char *err, size_t len,
			struct result *r) MUST_CHECK;
