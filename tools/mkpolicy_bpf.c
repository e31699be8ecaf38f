/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table's filters as classic BPF.
 *
 * Theory of operation: a filter is the checks of architecture and ABI, a balanced tree of "number at or above K?" over
 * runs of neighbouring numbers with one verdict, and one block of argument tests per rule.  It is written backwards: the
 * n-th instruction written is the n-th from the end, and that n is its label.  Code can then only jump to labels that
 * exist, and a conditional jump, which reaches 255 instructions, is given a stepping stone when its target is too far.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "mkpolicy.h"

#define X32_BIT 0x40000000u
#define NR_SKIP UINT32_MAX /* what a tracer leaves when it cancels a call */

struct segment {
	uint32_t start; /* up to the next segment's */
	struct policy_verdict v;
};

struct compiler {
	const struct policy_table *t;
	struct policy_prog *p;
	struct segment segs[2 * POLICY_MAX_CALLS + 1];
	unsigned n_segs;
	unsigned rule_label[POLICY_MAX_RULES];
};

static unsigned push(struct compiler *c, uint16_t code, uint8_t jt, uint8_t jf, uint32_t k)
{
	if (c->p->n == BPF_MAXINSNS)
		policy_die(c->t, "a filter of more than %d instructions", BPF_MAXINSNS);
	c->p->back[c->p->n++] = (struct sock_filter){ .code = code, .jt = jt, .jf = jf, .k = k };
	return c->p->n;
}

static unsigned load(struct compiler *c, size_t offset)
{
	return push(c, BPF_LD | BPF_W | BPF_ABS, 0, 0, (uint32_t)offset);
}

/* A label for @to that is at most @max instructions away from the next one written. */
static unsigned near(struct compiler *c, unsigned to, unsigned max)
{
	if (c->p->n - to <= max)
		return to;
	return push(c, BPF_JMP | BPF_JA, 0, 0, c->p->n - to);
}

static unsigned jump(struct compiler *c, uint16_t op, uint32_t k, unsigned yes, unsigned no)
{
	yes = near(c, yes, UINT8_MAX - 1); /* the other's stepping stone may come between */
	no = near(c, no, UINT8_MAX);
	if (c->p->n - yes > UINT8_MAX || c->p->n - no > UINT8_MAX) /* cut to eight bits it would lead anywhere */
		policy_die(c->t, "a jump of more than %d instructions", UINT8_MAX);
	return push(c, BPF_JMP | op | BPF_K, (uint8_t)(c->p->n - yes), (uint8_t)(c->p->n - no), k);
}

static unsigned give(struct compiler *c, uint32_t ret)
{
	struct policy_prog *p = c->p;
	unsigned i = 0;

	while (i < p->n_rets && p->ret_value[i] != ret)
		i++;
	/* A fresh copy costs as much as a stepping stone, and is one instruction less to run. */
	if (i < p->n_rets && p->n - p->ret_label[i] < UINT8_MAX - 8)
		return p->ret_label[i];
	if (i == sizeof(p->ret_value) / sizeof(p->ret_value[0]))
		policy_die(c->t, "too many different verdicts");
	if (i == p->n_rets)
		p->n_rets++;
	p->ret_value[i] = ret;
	p->ret_label[i] = push(c, BPF_RET | BPF_K, 0, 0, ret);
	return p->ret_label[i];
}

static unsigned compile_test(struct compiler *c, const struct policy_test *t, unsigned yes, unsigned no)
{
	if (t->op == POLICY_NE)
		jump(c, BPF_JEQ, t->values[0], no, yes);
	else if (t->op == POLICY_GE)
		jump(c, BPF_JGE, t->values[0], yes, no);
	else
		for (unsigned i = t->n_values; i-- > 0;)
			no = jump(c, BPF_JEQ, t->values[i], yes, no);
	if (t->mask != UINT32_MAX)
		push(c, BPF_ALU | BPF_AND | BPF_K, 0, 0, t->mask);
	/* The low half only; both machines are little-endian. */
	return load(c, offsetof(struct seccomp_data, args) + t->arg * sizeof(uint64_t));
}

static unsigned compile_rule(struct compiler *c, const struct policy_rule *r)
{
	unsigned next = give(c, r->otherwise);
	const struct policy_test *next_test = NULL;

	for (unsigned i = r->n_clauses; i-- > 0;) {
		const struct policy_clause *cl = &r->clauses[i];
		unsigned start = give(c, cl->ret), fail = next;

		for (unsigned k = cl->n_tests; k-- > 0;) {
			const struct policy_test *t = &cl->tests[k];

			/* The next line begins with a load of what is loaded already: pass over it. */
			if (k == 0 && next_test && t->mask == UINT32_MAX && next_test->arg == t->arg)
				fail = next - 1;
			start = compile_test(c, t, start, fail);
		}
		next = start;
		next_test = &cl->tests[0];
	}
	return next;
}

static unsigned compile_tree(struct compiler *c, unsigned from, unsigned to)
{
	unsigned mid = from + (to - from) / 2, high, low;
	const struct policy_verdict *v = &c->segs[from].v;

	if (to - from == 1)
		return v->rule >= 0 ? c->rule_label[v->rule] : give(c, v->ret);
	high = compile_tree(c, mid, to);
	low = compile_tree(c, from, mid);
	return jump(c, BPF_JGE, c->segs[mid].start, high, low);
}

static struct policy_verdict verdict_of(const struct policy_call *call, enum policy_filter which, uint32_t variant)
{
	struct policy_verdict v = { .rule = -1, .ret = SECCOMP_RET_ALLOW };

	switch (which) {
	case POLICY_A:
		return call->a;
	case POLICY_B:
		return call->b;
	case POLICY_SHORT:
		if (!call->last_variant || (call->last_variant & variant))
			return call->last;
		break;
	}
	return v;
}

static int by_nr(const void *a, const void *b)
{
	const struct policy_call *x = a, *y = b;

	return (x->nr > y->nr) - (x->nr < y->nr);
}

static void add_segment(struct compiler *c, uint32_t start, struct policy_verdict v)
{
	struct segment *last = c->n_segs ? &c->segs[c->n_segs - 1] : NULL;

	if (last && last->start == start) /* nothing lies between two neighbours */
		last->v = v;
	else if (!last || last->v.rule != v.rule || last->v.ret != v.ret)
		c->segs[c->n_segs++] = (struct segment){ .start = start, .v = v };
}

static void make_segments(struct compiler *c, enum policy_filter which, uint32_t variant, uint32_t unknown)
{
	static struct policy_call sorted[POLICY_MAX_CALLS];
	struct policy_verdict rest = { .rule = -1, .ret = unknown };
	unsigned n = 0;
	uint32_t next = 0;

	for (unsigned i = 0; i < c->t->n_calls; i++)
		if (c->t->calls[i].nr >= 0)
			sorted[n++] = c->t->calls[i];
	qsort(sorted, n, sizeof(sorted[0]), by_nr);
	for (unsigned i = 0; i < n; i++) {
		uint32_t nr = (uint32_t)sorted[i].nr;

		if (nr > next || !i)
			add_segment(c, next, rest);
		add_segment(c, nr, verdict_of(&sorted[i], which, variant));
		next = nr + 1;
	}
	add_segment(c, next, rest);
}

void policy_compile(const struct policy_table *t, enum policy_filter which, uint32_t variant, struct policy_prog *ret)
{
	static struct compiler c;
	int is_x86 = !strcmp(t->arch, "x86_64");
	uint32_t unknown = SECCOMP_RET_ALLOW;
	unsigned kill, next;

	if (which == POLICY_A)
		unknown = SECCOMP_RET_ERRNO | ENOSYS;
	memset(ret, 0, sizeof(*ret));
	memset(&c, 0, sizeof(c));
	c.t = t;
	c.p = ret;
	make_segments(&c, which, variant, unknown);
	for (unsigned i = 0; i < c.n_segs; i++)
		if (c.segs[i].v.rule >= 0 && !c.rule_label[c.segs[i].v.rule])
			c.rule_label[c.segs[i].v.rule] = compile_rule(&c, &t->rules[c.segs[i].v.rule]);
	next = compile_tree(&c, 0, c.n_segs);
	kill = give(&c, SECCOMP_RET_KILL_PROCESS);
	if (is_x86) {
		unsigned high = jump(&c, BPF_JEQ, NR_SKIP, give(&c, unknown), kill);

		next = jump(&c, BPF_JGE, X32_BIT, high, next);
	}
	if (next != ret->n) /* a load goes on to what was written last */
		push(&c, BPF_JMP | BPF_JA, 0, 0, ret->n - next);
	next = load(&c, offsetof(struct seccomp_data, nr));
	jump(&c, BPF_JEQ, is_x86 ? AUDIT_ARCH_X86_64 : AUDIT_ARCH_AARCH64, next, kill);
	load(&c, offsetof(struct seccomp_data, arch));
}
