/* SPDX-License-Identifier: Apache-2.0 */
#include "bpf_sim.h"

#include <stdbool.h>
#include <string.h>

/* Conditional jumps of seccomp filters compare with constants only. */
static bool condition(uint16_t op, uint32_t a, uint32_t k, bool *ret_is_known)
{
	*ret_is_known = true;
	switch (op) {
	case BPF_JEQ:
		return a == k;
	case BPF_JGE:
		return a >= k;
	case BPF_JGT:
		return a > k;
	case BPF_JSET:
		return a & k;
	}
	*ret_is_known = false;
	return false;
}

uint32_t bpf_sim_run(struct bpf_prog p, const struct seccomp_data *d)
{
	uint32_t a = 0;
	size_t pc = 0;
	bool is_known;

	while (pc < p.n) { /* ends: jumps go forward only */
		const struct sock_filter *s = &p.insns[pc++];

		switch (BPF_CLASS(s->code)) {
		case BPF_LD:
			if (s->code != (BPF_LD | BPF_W | BPF_ABS) || s->k % 4 || s->k >= sizeof(*d))
				return BPF_SIM_FAULT;
			memcpy(&a, (const char *)d + s->k, sizeof(a));
			break;
		case BPF_ALU:
			if (s->code != (BPF_ALU | BPF_AND | BPF_K))
				return BPF_SIM_FAULT;
			a &= s->k;
			break;
		case BPF_JMP:
			if (s->code == (BPF_JMP | BPF_JA)) {
				if (s->k >= p.n)
					return BPF_SIM_FAULT;
				pc += s->k;
				break;
			}
			pc += condition(BPF_OP(s->code), a, s->k, &is_known) ? s->jt : s->jf;
			if (!is_known || BPF_SRC(s->code) != BPF_K)
				return BPF_SIM_FAULT;
			break;
		case BPF_RET:
			return s->code == (BPF_RET | BPF_K) ? s->k : BPF_SIM_FAULT;
		default:
			return BPF_SIM_FAULT;
		}
	}
	return BPF_SIM_FAULT;
}

uint32_t bpf_sim_stack(const struct bpf_prog *progs, size_t n, const struct seccomp_data *d)
{
	uint32_t ret = SECCOMP_RET_ALLOW;

	while (n-- > 0) {
		uint32_t v = bpf_sim_run(progs[n], d);

		if (v == BPF_SIM_FAULT)
			return v;
		if (bpf_sim_action(v) < bpf_sim_action(ret))
			ret = v;
	}
	return ret;
}

static bool model_test(const struct policy_test *t, const struct seccomp_data *d)
{
	uint32_t v = (uint32_t)d->args[t->arg] & t->mask;

	if (t->op == POLICY_NE)
		return v != t->values[0];
	if (t->op == POLICY_GE)
		return v >= t->values[0];
	for (unsigned i = 0; i < t->n_values; i++)
		if (v == t->values[i])
			return true;
	return false;
}

uint32_t policy_model(const struct policy_rule *rules, struct policy_verdict v, const struct seccomp_data *d)
{
	const struct policy_rule *r;

	if (v.rule < 0)
		return v.ret;
	r = &rules[v.rule];
	for (unsigned i = 0; i < r->n_clauses; i++) {
		const struct policy_clause *c = &r->clauses[i];
		unsigned k = 0;

		while (k < c->n_tests && model_test(&c->tests[k], d))
			k++;
		if (k == c->n_tests)
			return c->ret;
	}
	return r->otherwise;
}
