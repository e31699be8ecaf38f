/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A zygote's memory, put in order before its first fork: what a fork will write lies side by side, and what there is much of
 * is in huge pages, of which a fork copies one entry instead of 512.
 */
#include "zygote/zygote.h"

#include <fcntl.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"

/* Of the interpreter's allocator: blocks of up to 512 bytes, in steps of 16, from pools that each have one size. */
#define VERSION_LARGE_POOLS 0x030a0000u
#define SMALL_MAX  512
#define SMALL_STEP 16
#define POOL_HEAD  48
#define SMALL_KEPT 65536 /* bytes of one size: no more, whatever allocator it is */

#define LARGE_MAX 65536
#define LARGE_MIN 24

/* Freed memory is all over the place.  Hold on to it, so that children have theirs side by side, from new pools. */
static void fill_pools(const struct server *s)
{
	size_t pool = s->version >= VERSION_LARGE_POOLS ? 16384 : 4096;

	for (size_t size = SMALL_STEP; size <= SMALL_MAX; size += SMALL_STEP) {
		for (size_t kept = 0; kept < SMALL_KEPT; kept += size) {
			uintptr_t block = (uintptr_t)PyObject_Malloc(size);

			if (!block || block % pool == POOL_HEAD) /* a pool's first */
				break;
		}
	}
}

/* The same for what the C library has: all that lies before the end of its heap. */
static void fill_heap(void)
{
	size_t left = mallinfo2().fordblks;
	char *end = malloc(LARGE_MAX);

	for (size_t size = LARGE_MAX; size >= LARGE_MIN; size -= size > 1024 ? size / 8 : 16) {
		while (left > size) {
			char *block = malloc(size);

			if (!block || block > end) {
				free(block);
				break;
			}
			left -= size;
		}
	}
	free(end);
}

/* Of Linux 6.1. */
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#define HUGE_PAGE  ((uintptr_t)2 << 20)
#define PAGE       4096
#define HUGE_FIRST 8 /* so many of them: below that there is nothing to gain, and each is taken apart where it is written */
#define REGION     (2 * HUGE_PAGE)

/* As in every interpreter since 3.4; not in the limited API. */
struct arena_allocator {
	void *ctx;
	void *(*alloc)(void *ctx, size_t size);
	void (*free)(void *ctx, void *arena, size_t size);
};
PyAPI_FUNC(void) PyObject_SetArenaAllocator(struct arena_allocator *) __attribute__((weak));

/* Where the next arenas are to be: an interpreter's own are a mebibyte each, scattered between its libraries. */
static struct {
	uintptr_t at;
	uintptr_t end;
	bool is_settled; /* a script's are as any interpreter's, but for what is left */
} region;

static void *map(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static void *arena_alloc(void *ctx, size_t size)
{
	uintptr_t at;

	(void)ctx;
	if (region.end - region.at < size && (region.is_settled || size > REGION))
		return map(size);
	if (region.end - region.at < size) {
		at = (uintptr_t)map(REGION + HUGE_PAGE);
		if (!at)
			return NULL;
		region.at = (at + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
		region.end = region.at + REGION;
		if (region.at > at)
			(void)munmap((void *)at, region.at - at);
		if (at + HUGE_PAGE > region.at)
			(void)munmap((void *)region.end, at + HUGE_PAGE - region.at);
	}
	at = region.at;
	region.at += size;
	return (void *)at;
}

static void arena_free(void *ctx, void *arena, size_t size)
{
	(void)ctx;
	(void)munmap(arena, size);
}

void memory_begin(void)
{
	struct arena_allocator ours = { .alloc = arena_alloc, .free = arena_free };

	if (PyObject_SetArenaAllocator)
		PyObject_SetArenaAllocator(&ours);
}

/* Whether most of it is there: what was never touched (BLAS reserves much) is not to be. */
static bool is_resident(int pagemap, uintptr_t at)
{
	uint64_t page[HUGE_PAGE / PAGE]; /* Documentation/admin-guide/mm/pagemap.rst: the highest bit is "present" */
	unsigned n = 0;

	if (pread(pagemap, page, sizeof(page), (off_t)(at / PAGE * sizeof(page[0]))) != sizeof(page))
		return false;
	for (size_t i = 0; i < sizeof(page) / sizeof(page[0]); i++)
		n += (unsigned)(page[i] >> 63);
	return n > HUGE_PAGE / PAGE / 2;
}

/* Return: how many huge pages could be made of our writable memory; @is_wanted: they are, as far as the kernel has them */
static unsigned collapse(bool is_wanted)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	auto_fd int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	char line[512];
	unsigned n = 0;

	while (maps && fgets(line, sizeof(line), maps)) {
		unsigned long from, to, inode;
		char access[8];

		if (sscanf(line, "%lx-%lx %7s %*s %*s %lu", &from, &to, access, &inode) != 4 || inode ||
		    strcmp(access, "rw-p") != 0)
			continue;
		for (uintptr_t at = (from + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1); at + HUGE_PAGE <= to; at += HUGE_PAGE) {
			if (!is_resident(pagemap, at))
				continue;
			n++;
			if (is_wanted)
				(void)madvise((void *)at, HUGE_PAGE, MADV_COLLAPSE);
		}
	}
	if (maps)
		(void)fclose(maps);
	return n;
}

void memory_settle(const struct server *s)
{
	fill_pools(s);
	fill_heap();
	region.is_settled = true;
	if (collapse(false) >= HUGE_FIRST)
		(void)collapse(true);
}
