/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/*
 * mcp_image_is_whole() - may these bytes go to a client as a picture of @media_type
 *
 * A file's name says nothing of what is in it, and a model's host that is handed a broken or huge picture can refuse
 * the whole conversation from then on.  So: image/png and image/jpeg alone, complete by their outline, at most 8000 by
 * 8000.
 */
bool mcp_image_is_whole(const char *media_type, const char *data, size_t len);
