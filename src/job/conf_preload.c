/* SPDX-License-Identifier: Apache-2.0 */
#include "job/conf.h"

/* What scripts import soonest, and what costs a fork next to nothing. */
const char *const conf_default_preload[] = {
	"json",      "re",     "collections", "datetime",    "random",     "math",     "hashlib",    "itertools",
	"functools", "string", "time",        "dataclasses", "enum",       "typing",   "copy",       "operator",
	"heapq",     "bisect", "struct",      "os",          "contextlib", "textwrap", "statistics", NULL,
};
