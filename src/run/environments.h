/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/macro.h"
#include "job/conf.h"
#include "run/run.h"

/*
 * environments_write() - the configured Pythons as a JSON array of objects
 * @pools: how those that are kept ready stand (supervisor_pools())
 *
 * Each: name, python, version (by the names of files alone: the interpreter is not run; null: unknown), mode, preload, and
 * zygote_age (seconds), zygote_runs, zygote_memory_bytes, parked (null: none is kept ready).  Heap, the caller frees; NULL: no memory
 */
char *environments_write(const struct conf *c, const struct run_pool_state *pools, size_t n_pools) MUST_CHECK;
