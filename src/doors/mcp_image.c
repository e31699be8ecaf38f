/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/mcp_image.h"

#include <stdint.h>
#include <string.h>

#define SIDE_MAX 8000

static uint32_t big16(const char *p)
{
	return (uint32_t)(unsigned char)p[0] << 8 | (unsigned char)p[1];
}

static uint32_t big32(const char *p)
{
	return big16(p) << 16 | big16(p + 2);
}

static bool is_size(uint32_t width, uint32_t height)
{
	return width > 0 && height > 0 && width <= SIDE_MAX && height <= SIDE_MAX;
}

/* Chunks one behind the other: a header first, IEND last, nothing after it. */
static bool is_png(const char *data, size_t len)
{
	static const char signature[] = "\x89PNG\r\n\x1a\n";
	size_t at = sizeof(signature) - 1;

	if (len < at + 25 || memcmp(data, signature, at) != 0 || memcmp(data + at + 4, "IHDR", 4) != 0 ||
	    !is_size(big32(data + at + 8), big32(data + at + 12)))
		return false;
	while (len - at >= 12) {
		size_t size = big32(data + at);

		if (size > len - at - 12)
			return false;
		if (memcmp(data + at + 4, "IEND", 4) == 0)
			return at + 12 + size == len;
		at += 12 + size;
	}
	return false;
}

/* Start of frame: 0xc0 to 0xcf, but for three other things that live there. */
static bool is_frame(unsigned marker)
{
	return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

/* Segments up to the start of the scan, one of them with the size; then data up to the end's mark. */
static bool is_jpeg(const char *data, size_t len)
{
	bool has_size = false;
	size_t at = 2;

	if (len < 4 || big16(data) != 0xffd8 || big16(data + len - 2) != 0xffd9)
		return false;
	while (len - at >= 4) {
		unsigned marker = (unsigned char)data[at + 1];
		size_t size = big16(data + at + 2);

		if ((unsigned char)data[at] != 0xff || size < 2 || size > len - at - 2)
			return false;
		if (marker == 0xda)
			return has_size;
		if (is_frame(marker)) {
			if (size < 8 || !is_size(big16(data + at + 7), big16(data + at + 5)))
				return false;
			has_size = true;
		}
		at += 2 + size;
	}
	return false;
}

bool mcp_image_is_whole(const char *media_type, const char *data, size_t len)
{
	if (strcmp(media_type, "image/png") == 0)
		return is_png(data, len);
	return strcmp(media_type, "image/jpeg") == 0 && is_jpeg(data, len);
}
