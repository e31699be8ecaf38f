/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system call filters in a simulator, three ways: against expectations written by hand, against the
 * table read by a plain interpreter and against libseccomp's compilation of the same table.
 */
#include <errno.h>
#include <linux/audit.h>
#include <sched.h>
#include <seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/macro.h"
#include "bpf_sim.h"
#include "probe_syscalls.h"
#include "sandbox/policy/filters.h"
#include "sandbox/policy/table.h"
#include "sandbox/seccomp.h"

#define HIGH     UINT64_C(0x700000000)
#define SWEEP_NR 1000

static const struct bpf_prog prog_a = { policy_a, ARRAY_LEN(policy_a) };
static const struct bpf_prog prog_b = { policy_b, ARRAY_LEN(policy_b) };

static struct bpf_prog prog_short(unsigned variant)
{
	return (struct bpf_prog){ policy_short[variant].insns, policy_short[variant].n };
}

/* As loaded: B, A, then the short one. */
static uint32_t whole(unsigned variant, const struct seccomp_data *d)
{
	const struct bpf_prog progs[] = { prog_b, prog_a, prog_short(variant) };

	return bpf_sim_stack(progs, ARRAY_LEN(progs), d);
}

static uint32_t base(const struct seccomp_data *d)
{
	const struct bpf_prog progs[] = { prog_b, prog_a };

	return bpf_sim_stack(progs, ARRAY_LEN(progs), d);
}

static uint32_t expected_ret(int expected)
{
	if (expected == ALLOW)
		return SECCOMP_RET_ALLOW;
	return SECCOMP_RET_ERRNO | (expected == FAKE0 ? 0 : (uint32_t)expected);
}

static struct seccomp_data data_of(int nr, const uint64_t *args)
{
	struct seccomp_data d = { .nr = nr, .arch = AUDIT_ARCH_X86_64 };

	for (size_t i = 0; args && i < ARRAY_LEN(d.args); i++)
		d.args[i] = args[i];
	return d;
}

static const struct policy_call *call_of(int nr)
{
	for (size_t i = 0; i < ARRAY_LEN(policy_calls); i++)
		if (policy_calls[i].nr == nr && nr >= 0)
			return &policy_calls[i];
	return NULL;
}

static bool is_in_short(const struct policy_call *c, unsigned variant)
{
	return !c->last_variant || (c->last_variant & variant);
}

/* --- the table by libseccomp --------------------------------------------------------------------------------------- */

/* One rule for each combination of a line's values; @ret other than the filter's default. */
static void ref_add_clause(scmp_filter_ctx ctx, int nr, const struct policy_clause *c)
{
	unsigned pick[POLICY_TESTS] = { 0 }, k = 0;

	do {
		struct scmp_arg_cmp cmp[POLICY_TESTS];

		for (unsigned i = 0; i < c->n_tests; i++) {
			const struct policy_test *t = &c->tests[i];

			cmp[i] = (struct scmp_arg_cmp){ .arg = t->arg, .op = SCMP_CMP_MASKED_EQ, .datum_a = t->mask,
							.datum_b = t->values[pick[i]] };
			if (t->op != POLICY_EQ) /* compared in 64 bits: only asked about arguments without high ones */
				cmp[i] = (struct scmp_arg_cmp){ .arg = t->arg, .datum_a = t->values[0],
								.op = t->op == POLICY_NE ? SCMP_CMP_NE : SCMP_CMP_GE };
		}
		assert_int_equal(seccomp_rule_add_array(ctx, c->ret == SECCOMP_RET_ALLOW ?
							SCMP_ACT_ALLOW : SCMP_ACT_ERRNO(c->ret & SECCOMP_RET_DATA),
							nr, c->n_tests, cmp), 0);
		for (k = 0; k < c->n_tests && ++pick[k] == c->tests[k].n_values; k++)
			pick[k] = 0;
	} while (k < c->n_tests);
}

/* @is_allow_list: its default is ENOSYS, and of a rule it can hold the allowing lines only */
static void ref_add(scmp_filter_ctx ctx, const struct policy_call *c, struct policy_verdict v, bool is_allow_list)
{
	uint32_t rest = is_allow_list ? SECCOMP_RET_ERRNO | ENOSYS : SECCOMP_RET_ALLOW;
	bool is_past_allow = false;

	if (v.rule < 0) {
		if (v.ret != rest)
			assert_int_equal(seccomp_rule_add(ctx, v.ret == SECCOMP_RET_ALLOW ?
							  SCMP_ACT_ALLOW : SCMP_ACT_ERRNO(v.ret & SECCOMP_RET_DATA),
							  c->nr, 0), 0);
		return;
	}
	for (unsigned i = 0; i < policy_rules[v.rule].n_clauses; i++) {
		const struct policy_clause *cl = &policy_rules[v.rule].clauses[i];

		if (is_allow_list && cl->ret != SECCOMP_RET_ALLOW) {
			is_past_allow = true;
			continue;
		}
		assert_false(is_past_allow); /* a refusal first would need to be seen by libseccomp too */
		if (!is_allow_list)
			assert_int_not_equal(cl->ret, SECCOMP_RET_ALLOW);
		ref_add_clause(ctx, c->nr, cl);
	}
}

enum which { A, B, SHORT };

static struct policy_verdict column(const struct policy_call *c, enum which which, unsigned variant)
{
	const struct policy_verdict none = { .rule = -1, .ret = SECCOMP_RET_ALLOW };

	if (which == SHORT)
		return is_in_short(c, variant) ? c->last : none;
	return which == A ? c->a : c->b;
}

/* The result's instructions are never freed: a handful for the whole test. */
static struct bpf_prog ref_build(enum which which, unsigned variant)
{
	scmp_filter_ctx ctx = seccomp_init(which == A ? SCMP_ACT_ERRNO(ENOSYS) : SCMP_ACT_ALLOW);
	int fd = memfd_create("ref", MFD_CLOEXEC);
	struct bpf_prog p;
	off_t size;

	assert_non_null(ctx);
	assert_true(fd >= 0);
	assert_int_equal(seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS), 0);
	for (size_t i = 0; i < ARRAY_LEN(policy_calls); i++)
		if (policy_calls[i].nr >= 0)
			ref_add(ctx, &policy_calls[i], column(&policy_calls[i], which, variant), which == A);
	assert_int_equal(seccomp_export_bpf(ctx, fd), 0);
	seccomp_release(ctx);
	size = lseek(fd, 0, SEEK_END);
	assert_true(size > 0);
	p.n = (size_t)size / sizeof(struct sock_filter);
	p.insns = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0);
	assert_ptr_not_equal(p.insns, MAP_FAILED);
	close(fd);
	return p;
}

/* --- holding one filter to the others ------------------------------------------------------------------------------ */

struct subject {
	enum which which;
	unsigned variant;
	struct bpf_prog ours, ref;
	size_t n_checked;
};

static bool has_high_bits(const struct seccomp_data *d)
{
	for (size_t i = 0; i < ARRAY_LEN(d->args); i++)
		if (d->args[i] >> 32)
			return true;
	return false;
}

static void check(struct subject *s, const struct seccomp_data *d)
{
	const struct policy_call *c = call_of(d->nr);
	uint32_t rest = s->which == A ? SECCOMP_RET_ERRNO | ENOSYS : SECCOMP_RET_ALLOW;
	struct policy_verdict v = c ? column(c, s->which, s->variant) : (struct policy_verdict){ .rule = -1, .ret = rest };
	uint32_t got = bpf_sim_run(s->ours, d), model = policy_model(policy_rules, v, d);
	uint32_t ref = has_high_bits(d) ? got : bpf_sim_run(s->ref, d);

	s->n_checked++;
	if (s->which == A && v.rule >= 0 && got != SECCOMP_RET_ALLOW && ref == rest)
		ref = got; /* a rule's own errno: libseccomp can only say ENOSYS */
	if (got == model && got == ref)
		return;
	fail_msg("filter %d variant %u: call %d (%s) args %#llx %#llx %#llx %#llx: %#x, by the table %#x, by libseccomp %#x",
		 s->which, s->variant, d->nr, c ? c->name : "?", d->args[0], d->args[1], d->args[2], d->args[3], got, model, ref);
}

/* Bits from 32 up, in each argument and in all: never more permissive.  (They are not looked at, so: the same.) */
static void check_high(struct subject *s, const struct seccomp_data *d)
{
	static const uint64_t noise[] = { HIGH, UINT64_C(1) << 32, UINT64_C(0xffffffff00000000) };
	uint32_t plain = bpf_sim_run(s->ours, d);

	for (size_t n = 0; n < ARRAY_LEN(noise); n++) {
		for (size_t i = 0; i <= ARRAY_LEN(d->args); i++) {
			struct seccomp_data h = *d;

			for (size_t k = 0; k < ARRAY_LEN(d->args); k++)
				if (k == i || i == ARRAY_LEN(d->args))
					h.args[k] |= noise[n];
			check(s, &h);
			assert_int_equal(bpf_sim_run(s->ours, &h), plain);
		}
	}
}

/* Around one value: its neighbours, each of its bits turned over, and itself. */
static void check_value(struct subject *s, const struct seccomp_data *met, uint8_t arg, uint32_t value)
{
	struct seccomp_data d = *met;

	for (unsigned bit = 0; bit < 32; bit++) {
		d.args[arg] = value ^ (UINT32_C(1) << bit);
		check(s, &d);
	}
	d.args[arg] = (uint32_t)(value + 1u);
	check(s, &d);
	d.args[arg] = (uint32_t)(value - 1u);
	check(s, &d);
	d.args[arg] = value;
	check(s, &d);
	check_high(s, &d);
}

/* Each value of each line of a rule, the line's other tests met. */
static void check_rule(struct subject *s, int nr, const struct policy_rule *r)
{
	for (unsigned i = 0; i < r->n_clauses; i++) {
		const struct policy_clause *c = &r->clauses[i];
		struct seccomp_data met = data_of(nr, NULL);

		for (unsigned k = 0; k < c->n_tests; k++)
			met.args[c->tests[k].arg] = c->tests[k].values[0] + (c->tests[k].op == POLICY_NE);
		assert_int_equal(bpf_sim_run(s->ours, &met), c->ret); /* the line is not dead */
		for (unsigned k = 0; k < c->n_tests; k++)
			for (unsigned v = 0; v < c->tests[k].n_values; v++)
				check_value(s, &met, c->tests[k].arg, c->tests[k].values[v]);
	}
}

static void check_filter(enum which which, unsigned variant)
{
	static const uint64_t ones[] = { UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX };
	struct subject s = { .which = which, .variant = variant, .ref = ref_build(which, variant) };

	s.ours = which == A ? prog_a : which == B ? prog_b : prog_short(variant);
	for (int nr = 0; nr <= SWEEP_NR; nr++) {
		struct seccomp_data zeros = data_of(nr, NULL), full = data_of(nr, ones);

		check(&s, &zeros);
		check(&s, &full);
		check_high(&s, &zeros);
	}
	for (size_t i = 0; i < ARRAY_LEN(policy_calls); i++) {
		struct policy_verdict v = column(&policy_calls[i], which, variant);

		assert_in_range(policy_calls[i].nr, 0, SWEEP_NR);
		if (v.rule >= 0)
			check_rule(&s, policy_calls[i].nr, &policy_rules[v.rule]);
	}
	assert_true(s.n_checked > 20 * SWEEP_NR);
	for (size_t i = 0; i < n_probe_syscalls; i++) {
		struct seccomp_data d = data_of(probe_syscalls[i].nr, probe_syscalls[i].args);

		check(&s, &d);
	}
}

/* --- tests --------------------------------------------------------------------------------------------------------- */

static void test_probes(void **state)
{
	(void)state;
	assert_true(n_probe_syscalls > PROBE_SYSCALLS_BASE);
	for (size_t i = 0; i < n_probe_syscalls; i++) {
		const struct probe_syscall *p = &probe_syscalls[i];
		struct seccomp_data d = data_of(p->nr, p->args);
		uint32_t got = whole(0, &d);

		if (got != expected_ret(p->expected))
			fail_msg("%s: %#x instead of %#x", p->name, got, expected_ret(p->expected));
	}
}

static void test_a_is_the_table(void **state)
{
	(void)state;
	check_filter(A, 0);
}

static void test_b_is_the_table(void **state)
{
	(void)state;
	check_filter(B, 0);
}

static void test_short_is_the_table(void **state)
{
	(void)state;
	for (unsigned v = 0; v < SECCOMP_VARIANTS; v++)
		check_filter(SHORT, v);
}

/* What the lock-down does between the base filters and the short one; nothing of it is left after. */
static void test_short_takes_the_lock_down_away(void **state)
{
	static const struct probe_syscall calls[] = {
		{ "setns", SYS_setns, { 3, 0x7e020000 }, EPERM },
		{ "unshare(CLONE_NEWCGROUP)", SYS_unshare, { CLONE_NEWCGROUP }, EPERM },
		{ "setgroups", SYS_setgroups, { 0 }, EPERM },
		{ "capset", SYS_capset, { 0 }, EPERM },
		{ "seccomp", SYS_seccomp, { SECCOMP_SET_MODE_FILTER }, EPERM },
		{ "landlock_create_ruleset", SYS_landlock_create_ruleset, { 0 }, ENOSYS },
		{ "landlock_add_rule", SYS_landlock_add_rule, { 0 }, ENOSYS },
		{ "landlock_restrict_self", SYS_landlock_restrict_self, { 0 }, ENOSYS },
		{ "clone3", SYS_clone3, { 0 }, ENOSYS },
		{ "PR_SET_DUMPABLE", SYS_prctl, { PR_SET_DUMPABLE, 1 }, EPERM },
		{ "PR_SET_SECCOMP", SYS_prctl, { PR_SET_SECCOMP, 2 }, EPERM },
		{ "PR_CAPBSET_DROP", SYS_prctl, { PR_CAPBSET_DROP, 1 }, EPERM },
		{ "PR_CAP_AMBIENT", SYS_prctl, { PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL }, EPERM },
		{ "PR_GET_TID_ADDRESS", SYS_prctl, { PR_GET_TID_ADDRESS }, EPERM },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
		struct seccomp_data d = data_of(calls[i].nr, calls[i].args);

		if (base(&d) != SECCOMP_RET_ALLOW)
			fail_msg("%s is refused before the short filter", calls[i].name);
		for (unsigned v = 0; v < SECCOMP_VARIANTS; v++)
			if (whole(v, &d) != expected_ret(calls[i].expected))
				fail_msg("%s after variant %u: %#x", calls[i].name, v, whole(v, &d));
	}
}

static void test_variants(void **state)
{
	static const struct {
		struct probe_syscall p;
		unsigned variant;
	} calls[] = {
		{ { "inet", SYS_socket, { AF_INET, SOCK_STREAM }, EAFNOSUPPORT }, SECCOMP_NO_INET },
		{ { "inet6", SYS_socket, { AF_INET6, SOCK_DGRAM }, EAFNOSUPPORT }, SECCOMP_NO_INET },
		{ { "netlink", SYS_socket, { AF_NETLINK, SOCK_RAW }, EAFNOSUPPORT }, SECCOMP_NO_INET },
		{ { "inet high", SYS_socket, { AF_INET | HIGH, SOCK_STREAM }, EAFNOSUPPORT }, SECCOMP_NO_INET },
		{ { "unix", SYS_socket, { AF_UNIX, SOCK_STREAM }, ALLOW }, SECCOMP_NO_INET },
		{ { "memfd", SYS_memfd_create, { 0, 1 }, ENOSYS }, SECCOMP_NO_MEMFD },
		{ { "affinity", SYS_sched_setaffinity, { 0, 8 }, EPERM }, SECCOMP_NO_AFFINITY },
		{ { "affinity read", SYS_sched_getaffinity, { 0, 8 }, ALLOW }, SECCOMP_NO_AFFINITY },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
		struct seccomp_data d = data_of(calls[i].p.nr, calls[i].p.args);

		for (unsigned v = 0; v < SECCOMP_VARIANTS; v++) {
			uint32_t want = v & calls[i].variant ? expected_ret(calls[i].p.expected) : SECCOMP_RET_ALLOW;

			if (whole(v, &d) != want)
				fail_msg("%s in variant %u: %#x", calls[i].p.name, v, whole(v, &d));
		}
	}
}

static void test_foreign_abi_is_killed(void **state)
{
	static const uint32_t archs[] = { AUDIT_ARCH_I386, AUDIT_ARCH_AARCH64, AUDIT_ARCH_ARM, 0, UINT32_MAX };
	static const uint32_t x32[] = { 0x40000000, 0x40000001, 0x40000000 | 520, 0x7fffffff, 0x80000000, 0xfffffffe };
	static const int unknown[] = { -1, SWEEP_NR + 1, 5000, 0xffff, 0x3fffffff };

	(void)state;
	for (int nr = 0; nr <= 600; nr++) {
		for (size_t i = 0; i < ARRAY_LEN(archs); i++) {
			struct seccomp_data d = data_of(nr, NULL);

			d.arch = archs[i];
			assert_int_equal(bpf_sim_run(prog_a, &d), SECCOMP_RET_KILL_PROCESS);
			assert_int_equal(bpf_sim_run(prog_b, &d), SECCOMP_RET_KILL_PROCESS);
			assert_int_equal(bpf_sim_run(prog_short(7), &d), SECCOMP_RET_KILL_PROCESS);
		}
	}
	for (size_t i = 0; i < ARRAY_LEN(x32); i++) {
		struct seccomp_data d = data_of((int)x32[i], NULL);

		assert_int_equal(bpf_sim_run(prog_a, &d), SECCOMP_RET_KILL_PROCESS);
		assert_int_equal(bpf_sim_run(prog_b, &d), SECCOMP_RET_KILL_PROCESS);
		assert_int_equal(bpf_sim_run(prog_short(0), &d), SECCOMP_RET_KILL_PROCESS);
	}
	for (size_t i = 0; i < ARRAY_LEN(unknown); i++) {
		struct seccomp_data d = data_of(unknown[i], NULL);

		assert_int_equal(whole(0, &d), SECCOMP_RET_ERRNO | ENOSYS);
	}
}

/* Nothing above the low halves is read, so nothing there can matter: true of the program, not only of the samples. */
static void test_loads_low_halves_only(void **state)
{
	struct bpf_prog progs[2 + SECCOMP_VARIANTS] = { prog_a, prog_b };

	(void)state;
	for (unsigned v = 0; v < SECCOMP_VARIANTS; v++)
		progs[2 + v] = prog_short(v);
	for (size_t i = 0; i < ARRAY_LEN(progs); i++) {
		for (size_t k = 0; k < progs[i].n; k++) {
			const struct sock_filter *s = &progs[i].insns[k];

			if (BPF_CLASS(s->code) != BPF_LD)
				continue;
			if (s->k != offsetof(struct seccomp_data, nr) && s->k != offsetof(struct seccomp_data, arch))
				assert_int_equal((s->k - offsetof(struct seccomp_data, args)) % sizeof(uint64_t), 0);
			assert_int_not_equal(s->k, offsetof(struct seccomp_data, instruction_pointer));
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_probes),
		cmocka_unit_test(test_a_is_the_table),
		cmocka_unit_test(test_b_is_the_table),
		cmocka_unit_test(test_short_is_the_table),
		cmocka_unit_test(test_short_takes_the_lock_down_away),
		cmocka_unit_test(test_variants),
		cmocka_unit_test(test_foreign_abi_is_killed),
		cmocka_unit_test(test_loads_low_halves_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
