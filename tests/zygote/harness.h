/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/pack.h"
#include "run/zygote.h"
#include "sandbox/outside.h"

/* The harness's two halves: harness.c has the home and the zygote in it, harness_box.c one sandbox after the other. */

struct bench {
	struct outside o;
	struct zygote z;
	const char *config;
	size_t config_len;
	const char *python;
};

extern const char *environment[64]; /* the zygote's and the scripts', with a NULL at its end */

_Noreturn void die(const struct err *e);
_Noreturn void die_text(const char *what);
void config_add(struct pack *p, uint32_t kind, const char *name, const void *data, size_t len);

/* wait_readable() - the program ends if nothing comes in 20 s */
void wait_readable(int fd);

/* run_one() - a script once, in a sandbox of its own; what came of it is a line on standard output */
void run_one(struct bench *b, bool is_warm, const char *name, const char *text, size_t len);

/* measure() - warm runs, one after the other; their times are a line on standard output */
void measure(struct bench *b, const char *name, const char *text, size_t len, unsigned times);
