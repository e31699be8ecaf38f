/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/macro.h"

/*
 * Memory by sampling, where no cgroup can be had.  Read through the sandbox's own proc and tmpfs mounts (folder
 * descriptors that its init handed over), by a process with CAP_SYS_PTRACE over it, so the script can't hide from it.
 */
struct sample {
	uint64_t resident_bytes; /* an upper bound, the trigger: RssAnon + RssShmem + swap of each process, plus what
				    the tmpfs hold (pages of theirs that are mapped count twice) */
	uint64_t fair_bytes;     /* decides; filled by sample_fair() alone */
	uint64_t cpu_ns;         /* user + system of the live processes and of those that they have waited for */
	uint32_t processes;      /* init included */
};

/*
 * sample_take() - cheap: status and stat of each process, fstatfs of each tmpfs (-1: none)
 * @proc_dir: an open folder of proc (O_PATH is enough); its offset is not used
 *
 * Processes that vanish meanwhile are left out.  Costs some 25 us per process.  Return: 0 or -errno.
 */
int sample_take(int proc_dir, const int *tmpfs, unsigned n_tmpfs, struct sample *ret) MUST_CHECK;

/*
 * sample_fair() - dear (smaps_rollup of each process walks its page tables): sample_take() and fair_bytes
 *
 * fair_bytes is Pss_Anon + SwapPss of all + the larger of (Pss_Shmem of all, what the tmpfs hold): a page that several
 * processes share counts once, and so does a tmpfs page that is mapped.  What is both shared memory outside the tmpfs
 * and matched by unmapped pages in them escapes: at most the size of the tmpfs.  A process whose smaps_rollup can't be
 * read counts with its Rss.
 */
int sample_fair(int proc_dir, const int *tmpfs, unsigned n_tmpfs, struct sample *ret) MUST_CHECK;
