/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/frames.h"
#include "base/macro.h"

/*
 * Artifacts, read from inside: this runs in a fresh process in the sandbox (script's uid, same filters, own limits), after
 * every process of the script is dead.  Its output is a stream of frames (base/frames.h) on @out, which the reader
 * treats as hostile.
 */

#define COLLECT_DEPTH   64             /* folders below the root; what is deeper is left out with a note */
#define COLLECT_LOOKED  20000          /* directory entries looked at in all, then a note */
#define COLLECT_TIME_NS UINT64_C(5000000000) /* no new entry is begun after this, then a note */

/*
 * collect_artifacts() - walk /tmp (the folder @root), send each regular file that a pattern names
 * @root:   borrowed; a folder open for reading
 * @bundle: the run's pack (spec.h): SANDBOX_ARTIFACT patterns (glob.h), SANDBOX_FILE inputs (sent only when changed)
 * @out:    borrowed; a blocking pipe.  Have SIGPIPE ignored, so that a reader that went away is -EPIPE
 *
 * Files come sorted by path.  What a pattern names and is not sent, because of a cap or an error, is told with its
 * reason; links, FIFOs, sockets and devices are no files and are passed over.  Never follows a link (openat2 with
 * RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV is not available behind the filter,
 * so: openat with O_NOFOLLOW | O_NONBLOCK component by component, and nothing of another device), never blocks on a
 * FIFO, does not recurse, holds three descriptors and a few MiB of heap at most, reads no file over its cap.
 *
 * Return: 0 (the stream is whole, with its end), -EBADMSG (@bundle is not a pack), -ENOMEM, or -errno of writing @out.
 */
int collect_artifacts(int root, const char *bundle, size_t bundle_len, int out) MUST_CHECK;
