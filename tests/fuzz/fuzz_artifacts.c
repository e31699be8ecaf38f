/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reader of what comes out of a sandbox.  The first byte tells into parts of which size the rest is cut; the same
 * bytes in one part must give the same.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "job/artifacts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define must(x)                                                                                                        \
	do {                                                                                                           \
		if (!(x))                                                                                              \
			__builtin_trap();                                                                              \
	} while (0)

static int read_all(const uint8_t *data, size_t size, size_t part, struct result *ret)
{
	struct artifacts_reader r;
	int fed = 0;
	int taken;

	artifacts_init(&r);
	for (size_t at = 0; at < size && fed == 0; at += part)
		fed = artifacts_feed(&r, data + at, size - at < part ? size - at : part);
	must(r.bytes <= COLLECT_ALL_BYTES);
	taken = artifacts_take(&r, ret);
	must(fed == 0 || taken != 0);
	return taken;
}

static void check(const struct artifact *a)
{
	must(a->name && a->name[0] && strlen(a->name) <= COLLECT_NAME_MAX + COLLECT_REASON_MAX);
	if (a->left_out) {
		must(a->left_out[0] && strlen(a->left_out) <= COLLECT_REASON_MAX && !a->body.data);
		return;
	}
	must(a->body.data && a->body.len == a->size && a->size <= COLLECT_FILE_BYTES && a->body.data[a->size] == '\0');
	must(a->name[0] != '/' && strcmp(a->name, "..") != 0 && strncmp(a->name, "../", 3) != 0);
	must(!strstr(a->name, "/../") && !strstr(a->name, "//"));
}

static void forget(struct result *res)
{
	for (size_t i = 0; i < res->n_artifacts; i++) {
		free(res->artifacts[i].name);
		free(res->artifacts[i].left_out);
		free(res->artifacts[i].body.data);
	}
	free(res->artifacts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct result cut = { .n_artifacts = 0 };
	struct result whole = { .n_artifacts = 0 };

	if (size == 0)
		return 0;
	must(read_all(data + 1, size - 1, (size_t)data[0] + 1, &cut) == read_all(data + 1, size - 1, size, &whole));
	must(cut.n_artifacts == whole.n_artifacts && whole.n_artifacts <= COLLECT_FILES + COLLECT_NOTES);
	for (size_t i = 0; i < whole.n_artifacts; i++) {
		const struct artifact *a = &whole.artifacts[i];
		const struct artifact *b = &cut.artifacts[i];

		check(a);
		must(strcmp(a->name, b->name) == 0 && a->size == b->size && !a->left_out == !b->left_out);
		must(a->left_out ? strcmp(a->left_out, b->left_out) == 0
				 : memcmp(a->body.data, b->body.data, a->body.len) == 0);
	}
	forget(&cut);
	forget(&whole);
	return 0;
}
