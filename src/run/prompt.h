/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * prompt_be() - this process would rather have the CPU often and shortly than long
 *
 * It takes a few microseconds whenever something has happened, and somebody waits for that; the kernel's usual slice (3
 * ms) keeps it behind whoever has the CPU: most often a script's process that the kernel takes apart, whose end is all
 * that it was waiting for. Its share is no larger than anybody's, and children do not inherit it.  Kernels before 6.12
 * take no notice.  Where our caller has chosen a policy, or is favoured, nothing is changed.
 */
void prompt_be(void);
