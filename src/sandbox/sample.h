/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/macro.h"

/*
 * Memory by sampling, where no cgroup can be had.  Read through the sandbox's own proc and tmpfs mounts (folder
 * descriptors that its init handed over), by a process with CAP_SYS_PTRACE over it, so the script can't hide from it.
 */
struct sample {
	uint64_t resident_bytes; /* RssAnon + RssShmem of every process, plus what the tmpfs hold that nobody maps: the trigger */
	uint64_t fair_bytes;     /* Pss (Pss_Anon + Pss_Shmem) instead of Rss: decides; filled by sample_fair() */
	uint64_t cpu_ns;         /* user + system of the live processes */
	uint32_t processes;
};

/* sample_take() - cheap: statm/status of each process, fstatfs of each tmpfs (-1: none).  Return: 0 or -errno */
int sample_take(int proc_dir, const int *tmpfs, unsigned n_tmpfs, struct sample *ret) MUST_CHECK;

/* sample_fair() - dear (smaps_rollup of each process): fills fair_bytes */
int sample_fair(int proc_dir, const int *tmpfs, unsigned n_tmpfs, struct sample *ret) MUST_CHECK;
