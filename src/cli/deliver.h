/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "cli/say.h"
#include "job/result.h"

/*
 * Writes artifacts into a folder of the user's.  Their names come from the script: hostile until proven plain.
 */

/*
 * deliver_open() - open the folder, making it (not its parents) when it is not there
 *
 * Return: a descriptor that the caller closes, or -errno with @no filled (status 125).
 */
int deliver_open(const char *path, struct refusal *no) MUST_CHECK;

/*
 * deliver() - write every artifact below @dir, folders included, never through a link and never out of it
 * @path:      the folder as the user wrote it, for messages
 * @is_forced: replace what is there under the same name (a link itself, not what it leads to)
 * @is_quiet:  say nothing about those that the run left out
 *
 * Goes on after one that fails; each failure is said.  Return: 0, or -errno of the first failure.
 */
int deliver(const struct result *r, int dir, const char *path, bool is_forced, bool is_quiet);
