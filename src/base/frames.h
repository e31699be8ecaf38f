/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

/*
 * The stream in which files come out of a sandbox, told once for its writer (sandbox/collect.h) and its reader
 * (job/artifacts.h).  Each frame: struct collect_frame, name_len bytes, then (COLLECT_FILE only) size bytes.
 *
 *   COLLECT_FILE      name: relative path without empty, "." and ".." parts, no NUL; size: of the body that follows
 *   COLLECT_LEFT_OUT  name: a path, a folder ("." is the root) or a pattern, then one NUL, then the reason;
 *                     size: of the file, as far as known.  With the name of the frame just before: that body is void
 *   COLLECT_END       once, last; name_len and size are 0.  A stream without it was cut short
 *
 * Integers are in host byte order: both ends run on one machine, from one build.
 */
enum collect_kind { COLLECT_FILE = 1, COLLECT_LEFT_OUT, COLLECT_END };

struct collect_frame {
	uint32_t kind; /* enum collect_kind */
	uint32_t name_len;
	uint64_t size;
};

#define COLLECT_FILES      64  /* COLLECT_FILE frames in one stream, at most */
#define COLLECT_NOTES      128 /* COLLECT_LEFT_OUT frames in one stream, at most */
#define COLLECT_FILE_BYTES (UINT64_C(8) << 20)
#define COLLECT_ALL_BYTES  (UINT64_C(32) << 20) /* bodies together */
#define COLLECT_NAME_MAX   4096                 /* bytes of a name, at most */
#define COLLECT_REASON_MAX 256                  /* bytes of a reason, at most */
