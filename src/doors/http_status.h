/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* http_status_reason() - "Not Found" of 404 */
const char *http_status_reason(int status);
