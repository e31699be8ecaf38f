/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "sandbox/inside.h"
#include "sandbox/outside.h"

/* child_main() - a fresh child of the supervisor: lock-down, then the work of its role; never returns */
_Noreturn void child_main(const struct inside *in, enum sandbox_role role, const char *bundle, size_t len);
