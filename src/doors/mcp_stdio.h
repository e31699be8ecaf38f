/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "doors/mcp_call.h"

/*
 * mcp_stdio() - serve one client: a message a line on @in, a message a line on @out, until @in ends or nobody reads
 * @out
 *
 * Calls under way end with it.  Neither descriptor's flags are changed: others may share them.
 * Return: 0 or -errno with @e set.
 */
int mcp_stdio(const struct mcp_place *place, const struct mcp_terms *terms, int in, int out, struct err *e) MUST_CHECK;
