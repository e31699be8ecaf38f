/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 * Artifacts, read from inside: this runs in a fresh process in the sandbox (script's uid, same filters, own limits), after
 * every process of the script is dead.  Its output is a stream of frames on @out, which the reader treats as hostile:
 *   struct collect_frame, then name_len bytes, then (COLLECT_FILE only) size bytes.
 */
enum collect_kind { COLLECT_FILE = 1, COLLECT_LEFT_OUT, COLLECT_END };

struct collect_frame {
	uint32_t kind;
	uint32_t name_len; /* COLLECT_LEFT_OUT: name, NUL, reason */
	uint64_t size;
};

#define COLLECT_FILES      64
#define COLLECT_FILE_BYTES (UINT64_C(8) << 20)
#define COLLECT_ALL_BYTES  (UINT64_C(32) << 20)
#define COLLECT_NAME_MAX   4096

/*
 * collect_artifacts() - walk /tmp (the folder @root), send each regular file that a pattern names
 * @bundle: the run's pack (spec.h): SANDBOX_ARTIFACT patterns, SANDBOX_FILE inputs (sent only when changed)
 *
 * Never follows a link (openat2 with RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV is
 * not available behind the filter, so: openat with O_NOFOLLOW | O_NONBLOCK component by component), never blocks
 * on a FIFO, recurses in bounded depth and memory, ends in bounded time.  Return: 0 or -errno.
 */
int collect_artifacts(int root, const char *bundle, size_t bundle_len, int out);
