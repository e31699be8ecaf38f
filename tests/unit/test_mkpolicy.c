/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The emitter of the system call filters: made-up tables, much larger and wilder than the product's, must mean in a
 * simulator what a plain reading of them says; and a faulty table must end the build.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../tools/mkpolicy.h"
#include "base/macro.h"
#include "bpf_sim.h"

static uint32_t seed;

/* The same numbers on every run: a failure can be looked at again. */
static uint32_t roll(uint32_t below)
{
	seed = seed * 1664525u + 1013904223u;
	return (seed >> 8) % below;
}

static uint32_t roll_ret(void)
{
	uint32_t n = roll(7);

	return n < 2 ? SECCOMP_RET_ALLOW : SECCOMP_RET_ERRNO | n;
}

static uint32_t roll_value(void)
{
	return roll(3) ? roll(6) : roll(1u << 24) << 8 | roll(256);
}

static void make_rule(struct policy_rule *r)
{
	memset(r, 0, sizeof(*r));
	r->otherwise = roll_ret();
	r->n_clauses = 1 + roll(POLICY_CLAUSES);
	for (unsigned i = 0; i < r->n_clauses; i++) {
		struct policy_clause *c = &r->clauses[i];

		c->ret = roll_ret();
		c->n_tests = 1 + roll(POLICY_TESTS);
		for (unsigned k = 0; k < c->n_tests; k++) {
			struct policy_test *t = &c->tests[k];

			t->arg = (uint8_t)roll(3);
			t->op = (uint8_t)(roll(3) ? POLICY_EQ : roll(3));
			t->mask = roll(2) ? UINT32_MAX : roll(2) ? 0xf : roll_value() | 1;
			t->n_values = (uint8_t)(t->op == POLICY_EQ ? 1 + roll(POLICY_VALUES) : 1);
			for (unsigned v = 0; v < t->n_values; v++)
				t->values[v] = roll_value() & t->mask;
		}
	}
}

static struct policy_verdict roll_verdict(const struct policy_table *t)
{
	struct policy_verdict v = { .rule = -1, .ret = roll_ret() };

	if (t->n_rules && !roll(4))
		v.rule = (int32_t)roll(t->n_rules);
	return v;
}

/* Numbers in no order, with gaps and runs. */
static void make_table(struct policy_table *t, const char *arch, unsigned n_calls, unsigned n_rules)
{
	unsigned nr = roll(2);

	memset(t, 0, sizeof(*t));
	t->path = "made-up";
	t->arch = arch;
	t->n_rules = n_rules;
	for (unsigned i = 0; i < n_rules; i++)
		make_rule(&t->rules[i]);
	for (unsigned i = 0; i < n_calls; i++) {
		struct policy_call *c = &t->calls[t->n_calls++];

		c->nr = roll(20) ? (int32_t)nr : -1;
		nr += roll(8) ? 1 : 1 + roll(9);
		c->a = roll_verdict(t);
		c->b = roll_verdict(t);
		c->last = roll_verdict(t);
		c->last_variant = roll(2) ? 0 : 1u << roll(POLICY_VARIANTS);
	}
	for (unsigned i = 0; i < n_calls; i++) {
		struct policy_call swap = t->calls[i];
		unsigned other = roll(n_calls);

		t->calls[i] = t->calls[other];
		t->calls[other] = swap;
	}
}

static uint32_t by_model(const struct policy_table *t, enum policy_filter which, uint32_t variant,
			 const struct seccomp_data *d)
{
	for (unsigned i = 0; i < t->n_calls; i++) {
		const struct policy_call *c = &t->calls[i];

		if (c->nr < 0 || c->nr != d->nr)
			continue;
		if (which == POLICY_SHORT && c->last_variant && !(c->last_variant & variant))
			return SECCOMP_RET_ALLOW;
		return policy_model(t->rules, which == POLICY_A ? c->a : which == POLICY_B ? c->b : c->last, d);
	}
	return which == POLICY_A ? SECCOMP_RET_ERRNO | ENOSYS : SECCOMP_RET_ALLOW;
}

/* Returns how many jumps needed a stepping stone. */
static unsigned check_table(const struct policy_table *t, enum policy_filter which, uint32_t variant)
{
	static struct policy_prog p;
	static struct sock_filter insns[BPF_MAXINSNS];
	unsigned n_stones = 0;

	policy_compile(t, which, variant, &p);
	for (unsigned i = 0; i < p.n; i++) {
		insns[i] = p.back[p.n - 1 - i];
		n_stones += insns[i].code == (BPF_JMP | BPF_JA);
	}
	for (int nr = 0; nr < 1000; nr++) {
		for (unsigned i = 0; i < 12; i++) {
			struct seccomp_data d = { .nr = nr };
			uint32_t got, want;

			d.arch = strcmp(t->arch, "x86_64") ? AUDIT_ARCH_AARCH64 : AUDIT_ARCH_X86_64;
			for (unsigned k = 0; k < ARRAY_LEN(d.args); k++)
				d.args[k] = (uint64_t)roll_value() << 32 | roll_value();
			got = bpf_sim_run((struct bpf_prog){ insns, p.n }, &d);
			want = by_model(t, which, variant, &d);
			if (got != want)
				fail_msg("filter %d variant %u, call %d: %#x instead of %#x", which, variant, nr, got, want);
		}
	}
	return n_stones;
}

static void test_tables_mean_what_they_say(void **state)
{
	static struct policy_table t;
	unsigned n_stones = 0;

	(void)state;
	for (unsigned i = 0; i < 60; i++) {
		seed = i;
		make_table(&t, i % 2 ? "x86_64" : "aarch64", 1 + i * 9, i % 12);
		n_stones += check_table(&t, POLICY_A, 0);
		n_stones += check_table(&t, POLICY_B, 0);
		n_stones += check_table(&t, POLICY_SHORT, i % 8);
	}
	assert_true(n_stones > 100); /* far jumps were really among them */
}

/* Exit status of a child that reads or compiles; what it says on stderr goes to @ret_said. */
static int in_child(void (*body)(void *), void *arg, char *ret_said, size_t size)
{
	int fds[2], status;
	size_t used = 0;
	ssize_t n;
	pid_t pid;

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		if (dup2(fds[1], 2) < 0)
			_exit(98);
		body(arg);
		_exit(0);
	}
	assert_true(pid > 0);
	close(fds[1]);
	while ((n = read(fds[0], ret_said + used, size - 1 - used)) > 0)
		used += (size_t)n;
	assert_int_equal(n, 0);
	ret_said[used] = '\0';
	close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void compile_too_much(void *arg)
{
	static struct policy_table t;
	static struct policy_prog p;

	(void)arg;
	memset(&t, 0, sizeof(t));
	t.path = "made-up";
	t.arch = "x86_64";
	t.n_rules = POLICY_MAX_RULES;
	for (unsigned i = 0; i < t.n_rules; i++) {
		struct policy_rule *r = &t.rules[i];

		r->n_clauses = POLICY_CLAUSES;
		for (unsigned k = 0; k < r->n_clauses; k++) {
			r->clauses[k].n_tests = POLICY_TESTS;
			for (unsigned m = 0; m < POLICY_TESTS; m++) {
				r->clauses[k].tests[m] = (struct policy_test){ .mask = 0xff, .n_values = POLICY_VALUES };
				for (unsigned v = 0; v < POLICY_VALUES; v++)
					r->clauses[k].tests[m].values[v] = v;
			}
		}
		t.calls[t.n_calls++] = (struct policy_call){ .nr = (int32_t)i, .a = { .rule = (int32_t)i } };
	}
	policy_compile(&t, POLICY_A, 0, &p);
}

static void test_too_long_a_filter_is_refused(void **state)
{
	char said[512];

	(void)state;
	assert_int_equal(in_child(compile_too_much, NULL, said, sizeof(said)), 1);
	assert_non_null(strstr(said, "more than 4096 instructions"));
}

static void read_text(void *arg)
{
	static struct policy_table t;
	const char *text = arg;
	char path[64];
	int fd = memfd_create("table", MFD_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		_exit(99);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	policy_read(path, "x86_64", &t);
}

#define CONSTS "[constants]\nONE 1\n"
#define RULES  CONSTS "[rules]\nrule r\nallow 0=ONE\nelse eperm\n"
#define CALLS  RULES "[calls]\nclone * * @r - -\n"

static void test_good_table_is_read(void **state)
{
	char text[] = CALLS "open * - allow - -\nnewcall 900 900 allow - no_inet:eperm\n";
	char said[512];

	(void)state;
	assert_int_equal(in_child(read_text, text, said, sizeof(said)), 0);
	assert_string_equal(said, "");
}

static void test_bad_tables_are_refused(void **state)
{
	static const struct {
		const char *text, *says;
	} bad[] = {
		{ CALLS "reed * * allow - -\n", ":9: 'reed' is unknown on x86_64" },
		{ CALLS "open * * allow - -\n", "'open' is unknown on aarch64" },
		{ CALLS "read - * allow - -\n", "'read' does exist on x86_64" },
		{ CALLS "read 1 * allow - -\n", "'read' has number 0 on x86_64, not 1" },
		{ CALLS "clone * * eperm - -\n", "'clone' is there twice" },
		{ CALLS "newcall 56 900 eperm - -\n", "'newcall' and 'clone' have one number" },
		{ CALLS "read * * alow - -\n", "'alow' is no verdict" },
		{ CALLS "read * * - - -\n", "'-' is no verdict" },
		{ CALLS "read * * @x - -\n", "there is no rule 'x'" },
		{ CALLS "read * * allow -\n", "a call is NAME x86_64 aarch64 A B last" },
		{ CALLS "read * * allow - no_such:eperm\n", "'no_such' is no variant of this column" },
		{ CALLS "read * * allow no_inet:eperm -\n", "'no_inet' is no variant of this column" },
		{ RULES "[calls]\nread * * allow - -\n", "rule 'r' is used by no call" },
		{ CONSTS "[rules]\nrule r\nallow 0=1\nelse eperm\n[calls]\nread * * @r - -\n",
		  "constant 'ONE' is used by no rule" },
		{ CONSTS "ONE 2\n", "constant 'ONE' is named twice" },
		{ CONSTS "TWO 0x100000000\n", "'0x100000000' is no 32-bit number" },
		{ CONSTS "[rules]\nrule r\nallow 0=TWO\n", "'TWO' is neither a number nor a constant" },
		{ CONSTS "[rules]\nrule r\nallow 6=1\n", "arguments are 0 to 5" },
		{ CONSTS "[rules]\nrule r\nallow 0&1=2\n", "it would never match" },
		{ CONSTS "[rules]\nrule r\nallow 0=\n", "= takes one or more values" },
		{ CONSTS "[rules]\nrule r\nallow 0!=1,2\n", "!= and >= take one" },
		{ CONSTS "[rules]\nrule r\nallow 0<1\n", "a test is ARGUMENT" },
		{ CONSTS "[rules]\nrule r\nallow 0=1,2,3,4,5,6,7,8,9\n", "more than 8 values" },
		{ CONSTS "[rules]\nrule r\nallow 0=1\n[calls]\n", "a rule without its 'else'" },
		{ CONSTS "[rules]\nallow 0=1\n", "'allow' outside of a rule" },
		{ RULES "rule r\n", "rule 'r' is there twice" },
		{ "[calls]\n", "the sections are" },
		{ "read * * allow - -\n", "before the first section" },
		{ "", "no calls" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		char said[512], text[512];

		snprintf(text, sizeof(text), "%s", bad[i].text);
		if (in_child(read_text, text, said, sizeof(said)) != 1 || !strstr(said, bad[i].says))
			fail_msg("table %zu: wanted \"%s\", got \"%s\"", i, bad[i].says, said);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tables_mean_what_they_say),
		cmocka_unit_test(test_too_long_a_filter_is_refused),
		cmocka_unit_test(test_good_table_is_read),
		cmocka_unit_test(test_bad_tables_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
