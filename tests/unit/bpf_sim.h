/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>

#include "sandbox/policy/model.h"

struct bpf_prog {
	const struct sock_filter *insns;
	size_t n;
};

/* What the simulator says of a program that the kernel would refuse: no verdict has these bits. */
#define BPF_SIM_FAULT UINT32_C(0xdeadbeef)

/* bpf_sim_run() - one filter's verdict, or BPF_SIM_FAULT for an instruction, offset or jump that a filter may not have */
uint32_t bpf_sim_run(struct bpf_prog p, const struct seccomp_data *d);

/* bpf_sim_stack() - the kernel's choice among @n filters, @progs[0] loaded first: strictest, then loaded last */
uint32_t bpf_sim_stack(const struct bpf_prog *progs, size_t n, const struct seccomp_data *d);

/* bpf_sim_action() - larger is more permissive */
static inline int32_t bpf_sim_action(uint32_t ret)
{
	return (int32_t)(ret & SECCOMP_RET_ACTION_FULL);
}

/* policy_model() - the verdict as the table has it, by a plain reading of its data; @v.rule is an index into @rules */
uint32_t policy_model(const struct policy_rule *rules, struct policy_verdict v, const struct seccomp_data *d);
