/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mkpolicy TABLE ARCH FILTERS.h MODEL.h
 *
 * FILTERS.h gets the filters as constant arrays, MODEL.h the table itself as data for tests.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mkpolicy.h"

static void write_prog(FILE *f, const char *name, const struct policy_prog *p)
{
	fprintf(f, "\nstatic const struct sock_filter %s[%u] = {", name, p->n);
	for (unsigned i = 0; i < p->n; i++) {
		const struct sock_filter *s = &p->back[p->n - 1 - i];

		fprintf(f, "%s{ 0x%02x, %u, %u, 0x%x },", i % 4 ? " " : "\n\t", s->code, s->jt, s->jf, s->k);
	}
	fprintf(f, "\n};\n");
}

static void write_filters(FILE *f, const struct policy_table *t)
{
	static struct policy_prog p;
	char name[32];

	fprintf(f,
		"/* Made from syscalls.tbl: edit that. */\n#pragma once\n\n#include <linux/filter.h>\n\n"
		"#ifndef __%s__\n#error \"these filters are for %s\"\n#endif\n",
		t->arch, t->arch);
	policy_compile(t, POLICY_A, 0, &p);
	write_prog(f, "policy_a", &p);
	policy_compile(t, POLICY_B, 0, &p);
	write_prog(f, "policy_b", &p);
	for (unsigned v = 0; v < 1u << POLICY_VARIANTS; v++) {
		policy_compile(t, POLICY_SHORT, v, &p);
		snprintf(name, sizeof(name), "policy_short_%u", v);
		write_prog(f, name, &p);
	}
	fprintf(f,
		"\nstatic const struct {\n\tconst struct sock_filter *insns;\n\tunsigned short n;\n} policy_short[%u] = {\n",
		1u << POLICY_VARIANTS);
	for (unsigned v = 0; v < 1u << POLICY_VARIANTS; v++)
		fprintf(f, "\t{ policy_short_%u, sizeof(policy_short_%u) / sizeof(policy_short_%u[0]) },\n", v, v, v);
	fprintf(f, "};\n");
}

static void write_clause(FILE *f, const struct policy_clause *c)
{
	fprintf(f, "\t\t{ 0x%x, %u, {", c->ret, c->n_tests);
	for (unsigned i = 0; i < c->n_tests; i++) {
		const struct policy_test *t = &c->tests[i];

		fprintf(f, " { %u, %u, %u, 0x%x, {", t->arg, t->op, t->n_values, t->mask);
		for (unsigned k = 0; k < t->n_values; k++)
			fprintf(f, " 0x%x,", t->values[k]);
		fprintf(f, " } },");
	}
	fprintf(f, " } },\n");
}

static void write_model(FILE *f, const struct policy_table *t)
{
	fprintf(f, "/* Made from syscalls.tbl: edit that. */\n#pragma once\n\n#include \"sandbox/policy/model.h\"\n");
	fprintf(f, "\n#define POLICY_CONSTS(X) \\\n");
	for (unsigned i = 0; i < t->n_consts; i++)
		fprintf(f, "\tX(%s, 0x%xu)%s\n", t->consts[i].name, t->consts[i].value, i + 1 < t->n_consts ? " \\" : "");
	fprintf(f, "\nstatic const struct policy_rule policy_rules[%u] = {\n", t->n_rules);
	for (unsigned i = 0; i < t->n_rules; i++) {
		const struct policy_rule *r = &t->rules[i];

		fprintf(f, "\t{ \"%s\", 0x%x, %u, {\n", r->name, r->otherwise, r->n_clauses);
		for (unsigned k = 0; k < r->n_clauses; k++)
			write_clause(f, &r->clauses[k]);
		fprintf(f, "\t} },\n");
	}
	fprintf(f, "};\n\nstatic const struct policy_call policy_calls[%u] = {\n", t->n_calls);
	for (unsigned i = 0; i < t->n_calls; i++) {
		const struct policy_call *c = &t->calls[i];

		fprintf(f, "\t{ \"%s\", %d, { %d, 0x%x }, { %d, 0x%x }, { %d, 0x%x }, %u },\n", c->name, c->nr, c->a.rule,
			c->a.ret, c->b.rule, c->b.ret, c->last.rule, c->last.ret, c->last_variant);
	}
	fprintf(f, "};\n");
}

static void write_file(const char *path, const struct policy_table *t,
		       void (*write_it)(FILE *, const struct policy_table *))
{
	FILE *f = fopen(path, "we");

	if (!f) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		exit(1);
	}
	write_it(f, t);
	if (fflush(f) || ferror(f) || fclose(f)) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		exit(1);
	}
}

int main(int argc, char **argv)
{
	static struct policy_table t;

	if (argc != 5) {
		fprintf(stderr, "usage: mkpolicy TABLE ARCH FILTERS.h MODEL.h\n");
		return 2;
	}
	policy_read(argv[1], argv[2], &t);
	write_file(argv[3], &t, write_filters);
	write_file(argv[4], &t, write_model);
	return 0;
}
