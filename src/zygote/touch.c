/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is done ahead, so that a script's run writes to few pages: each is one that the kernel must copy for it.
 *
 * Zygote and children run the same small script.  The zygote, again and again, until what an interpreter learns as it
 * goes (specialised code, its cache of attributes, symbols of libraries) is learnt once for all children.  A child,
 * once, while it waits for its job: what it writes is its own afterwards.
 */
#include "zygote/zygote.h"

#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sandbox/inside.h"

#define PRACTICE 20 /* more than the eight calls after which an interpreter adapts a function */

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

void touch(const struct server *s)
{
	static char text[] = "def f_(n):\n    return n\nprint(end='')\n";
	PyObject *globals;
	PyObject *v = NULL;
	FILE *file;

	dress(s, s->sample.data, s->sample.len, false, ZYGOTE_SCRIPT);
	globals = PyDict_New();
	file = fmemopen(text, sizeof(text) - 1, "rb");
	if (file && globals)
		v = run_stream(file, ZYGOTE_SCRIPT, globals);
	else if (file)
		(void)fclose(file);
	if (v)
		end_touch(s, globals, v);
	Py_XDECREF(globals);
	PyErr_Clear();
}

static int take_sample(struct server *s)
{
	int r = pack_add(&s->sample, SANDBOX_ARG, NULL, "", 0);

	if (r == 0)
		r = pack_add(&s->sample, SANDBOX_ARG, NULL, ZYGOTE_SCRIPT, strlen(ZYGOTE_SCRIPT));
	for (char **e = environ; r == 0 && *e; e++)
		r = pack_add(&s->sample, SANDBOX_ENV, NULL, *e, strlen(*e));
	return r;
}

/* A new interpreter lock's keys are made in every child: the linker looks for what makes them once. */
static void make_key(void)
{
	Py_tss_t *key = PyThread_tss_alloc();

	if (key && PyThread_tss_create(key) == 0)
		PyThread_tss_delete(key);
	PyThread_tss_free(key);
}

int settle(struct server *s)
{
	int r = take_sample(s);

	for (int i = 0; r == 0 && i < PRACTICE; i++) {
		PyObject *v = PyObject_CallFunctionObjArgs(s->reseed, NULL);

		if (!v)
			return -EPROTO;
		Py_DECREF(v);
		touch(s);
	}
	make_key();
	(void)PyGC_Collect(); /* the interpreter's lists of free objects, too */
	fill_pools(s);
	fill_heap();
	return r;
}
