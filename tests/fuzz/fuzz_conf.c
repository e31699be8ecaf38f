/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a configuration; the first one tells whether it may set maxima.  A refusal must say where and why. */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "job/conf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define must(x)                                                                                                        \
	do {                                                                                                           \
		if (!(x))                                                                                              \
			__builtin_trap();                                                                              \
	} while (0)

static void check_refusal(const struct err *e, const char *source)
{
	must(e->kind == ERR_INVALID);
	must(!source || strncmp(e->msg, source, strlen(source)) == 0);
	must(strlen(e->msg) > 7 && utf8_valid(e->msg, strlen(e->msg)));
	for (const char *s = e->msg; *s; s++)
		must((unsigned char)*s >= 0x20 && *s != 0x7f);
}

static void check_values(const struct conf *c)
{
	must(c->n_environments > 0 && strcmp(c->environments[0].name, "default") == 0);
	must(c->rules.n_profiles == c->n_environments);
	must(c->rules.timeout_ns > 0 && c->rules.max_timeout_ns > 0 && c->rules.max_script_bytes > 0);
	for (size_t i = 0; i < c->n_environments; i++) {
		must(c->environments[i].python[0] == '/');
		must(c->rules.profiles[i].name == c->environments[i].name);
	}
	for (size_t i = 0; i < LIMIT_DEFS; i++) {
		must(limit_get(&c->rules.defaults, &limit_defs[i]) <= limit_defs[i].ceiling);
		must(limit_get(&c->rules.max, &limit_defs[i]) <= limit_defs[i].ceiling);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data + 1;
	bool is_trusted = size > 0 && (data[0] & 1);
	struct err e = { 0 };
	struct conf c;
	int r;

	if (size == 0)
		return 0;
	must(conf_init(&c) == 0);
	r = conf_parse(&c, text, size - 1, "f.ini", is_trusted, &e);
	must(r == 0 || r == -EINVAL);
	if (r < 0)
		check_refusal(&e, "f.ini:");
	else
		must(conf_parse(&c, text, size - 1, "f.ini", is_trusted, &e) ==
		     0); /* laid over itself it is fine again */
	check_values(&c);
	if (conf_check(&c, &e) < 0)
		check_refusal(&e, NULL);
	conf_done(&c);
	return 0;
}
