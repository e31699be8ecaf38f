/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

/*
 * What syscalls.tbl says, as plain data.  tools/mkpolicy reads the table into it and makes the filters; the unit test
 * gets the same data generated, and holds the filters to it by two other ways.
 */
#define POLICY_VALUES   8
#define POLICY_TESTS    3
#define POLICY_CLAUSES  12
#define POLICY_VARIANTS 3

/* How an argument is compared.  Always its low 32 bits, unsigned: see the head of syscalls.tbl. */
enum policy_op {
	POLICY_EQ, /* (arg & mask) is one of the values */
	POLICY_NE, /* (arg & mask) is not the value */
	POLICY_GE, /* (arg & mask) is the value or above */
};

struct policy_test {
	uint8_t arg; /* 0-5 */
	uint8_t op;
	uint8_t n_values;
	uint32_t mask;
	uint32_t values[POLICY_VALUES];
};

/* All tests hold: the verdict, as the kernel's SECCOMP_RET_* word. */
struct policy_clause {
	uint32_t ret;
	uint32_t n_tests;
	struct policy_test tests[POLICY_TESTS];
};

/* The first clause that holds decides. */
struct policy_rule {
	char name[24];
	uint32_t otherwise;
	uint32_t n_clauses;
	struct policy_clause clauses[POLICY_CLAUSES];
};

struct policy_verdict {
	int32_t rule; /* index of a rule, or -1: ret it is */
	uint32_t ret;
};

struct policy_call {
	char name[28];
	int32_t nr; /* on the machine that the filters are for; -1: it has no such call */
	struct policy_verdict a, b, last;
	uint32_t last_variant; /* 0: in every short filter; else in those whose variant has this bit */
};
