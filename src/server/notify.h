/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* notify_manager() - tell the service manager ("READY=1"), where NOTIFY_SOCKET says that one listens */
void notify_manager(const char *state);
