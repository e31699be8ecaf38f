/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* landlock_abi() - what the kernel has: 0 none, 1 too old for us (renames would fail), 2.. */
int landlock_abi(void);

/*
 * landlock_restrict() - write only below /tmp and /dev/shm and to /dev/null, zero, full; no signal or abstract socket out
 *
 * After:   the mounts are final, no_new_privs is set   Before: the short filter (it refuses landlock_*)
 * TCP rules only with @no_tcp: they go by port, so they would break a script's own servers on 127.0.0.1.
 * Async-signal-safe.  Return: 0 or -1 with errno.
 */
int landlock_restrict(int no_tcp);
