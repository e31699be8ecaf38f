/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/macro.h"
#include "job/conf.h"

/*
 * environments_write() - the configured Pythons as a JSON array of objects
 *
 * Each: name, python, version (by the names of files alone: the interpreter is not run; null: unknown), mode, preload, and
 * zygote_age, zygote_runs, zygote_memory_bytes (null: none is kept ready).  Heap, the caller frees; NULL: no memory
 */
char *environments_write(const struct conf *c) MUST_CHECK;
