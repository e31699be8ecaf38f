/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/* Scope-bound ownership.  The variable must be initialised where it is declared. */
#define auto_free              __attribute__((cleanup(auto_freep)))
#define auto_fd                __attribute__((cleanup(auto_fdp)))
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))
#define MUST_CHECK             __attribute__((warn_unused_result))
#define ARRAY_LEN(a)           (sizeof(a) / sizeof((a)[0]))
