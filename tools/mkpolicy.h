/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <linux/filter.h>
#include <stdint.h>

#include "sandbox/policy/model.h"

/*
 * mkpolicy - makes the system call filters from src/sandbox/policy/syscalls.tbl.  It runs at build time alone: the first
 * fault of the table is told with its line, and ends the build.
 */
#define POLICY_MAX_CONSTS 160
#define POLICY_MAX_RULES  32
#define POLICY_MAX_CALLS  600

struct policy_const {
	char name[32];
	uint32_t value;
	unsigned uses;
};

struct policy_table {
	const char *path;
	const char *arch; /* "x86_64" or "aarch64" */
	unsigned line;    /* being read; 0 when done */
	struct policy_const consts[POLICY_MAX_CONSTS];
	unsigned n_consts;
	struct policy_rule rules[POLICY_MAX_RULES];
	unsigned rule_uses[POLICY_MAX_RULES];
	unsigned n_rules;
	struct policy_call calls[POLICY_MAX_CALLS];
	unsigned n_calls;
};

enum policy_filter { POLICY_A, POLICY_B, POLICY_SHORT };

/* A filter under construction.  It grows from its end towards its start, so that every jump's target is known. */
struct policy_prog {
	struct sock_filter back[BPF_MAXINSNS]; /* back[0] is the last instruction */
	unsigned n;
	uint32_t ret_value[32]; /* the newest "return this" of each verdict, to be shared by jumps near enough */
	unsigned ret_label[32];
	unsigned n_rets;
};

/* policy_die() - "FILE:LINE: ..." on stderr, exit 1 */
void policy_die(const struct policy_table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3), noreturn));

/* policy_read() - the whole table; does not return on a fault.  @path and @arch are borrowed and outlive @ret. */
void policy_read(const char *path, const char *arch, struct policy_table *ret);

/* policy_compile() - one filter; @variant (enum seccomp_variant) counts for POLICY_SHORT only */
void policy_compile(const struct policy_table *t, enum policy_filter which, uint32_t variant, struct policy_prog *ret);
