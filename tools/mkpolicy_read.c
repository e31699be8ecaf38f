/* SPDX-License-Identifier: Apache-2.0 */
/* Reads syscalls.tbl.  Everything that could be a slip of the pen is a fault: the table is what keeps scripts in. */
#include <errno.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mkpolicy.h"

#define MAX_WORDS 12

enum section { NONE, CONSTANTS, RULES, CALLS };

static const struct {
	const char *name;
	uint32_t ret;
} verdicts[] = {
	{ "allow", SECCOMP_RET_ALLOW },
	{ "fake0", SECCOMP_RET_ERRNO },
	{ "eperm", SECCOMP_RET_ERRNO | EPERM },
	{ "enosys", SECCOMP_RET_ERRNO | ENOSYS },
	{ "enotsup", SECCOMP_RET_ERRNO | ENOTSUP },
	{ "einval", SECCOMP_RET_ERRNO | EINVAL },
	{ "enomem", SECCOMP_RET_ERRNO | ENOMEM },
	{ "enotty", SECCOMP_RET_ERRNO | ENOTTY },
	{ "enoprotoopt", SECCOMP_RET_ERRNO | ENOPROTOOPT },
	{ "eopnotsupp", SECCOMP_RET_ERRNO | EOPNOTSUPP },
	{ "eprotonosupport", SECCOMP_RET_ERRNO | EPROTONOSUPPORT },
	{ "eafnosupport", SECCOMP_RET_ERRNO | EAFNOSUPPORT },
};

/* In the order of the bits of enum seccomp_variant. */
static const char *const variants[POLICY_VARIANTS] = { "no_inet", "no_memfd", "no_affinity" };

void policy_die(const struct policy_table *t, const char *fmt, ...)
{
	va_list ap;

	if (t->line)
		fprintf(stderr, "%s:%u: ", t->path, t->line);
	else
		fprintf(stderr, "%s: ", t->path);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

static void copy_name(const struct policy_table *t, char *ret, size_t size, const char *name)
{
	size_t len = strlen(name);

	if (len >= size)
		policy_die(t, "'%s' is longer than %zu bytes", name, size - 1);
	memcpy(ret, name, len + 1);
}

static bool is_number(const char *s, uint32_t *ret)
{
	char *end;
	unsigned long long v;

	if (*s < '0' || *s > '9')
		return false;
	errno = 0;
	v = strtoull(s, &end, 0); /* as in C: 0x is hexadecimal, a leading 0 octal */
	if (errno || *end || v > UINT32_MAX)
		return false;
	*ret = (uint32_t)v;
	return true;
}

static uint32_t read_value(struct policy_table *t, const char *s)
{
	uint32_t v;

	if (is_number(s, &v))
		return v;
	for (unsigned i = 0; i < t->n_consts; i++) {
		if (!strcmp(t->consts[i].name, s)) {
			t->consts[i].uses++;
			return t->consts[i].value;
		}
	}
	policy_die(t, "'%s' is neither a number nor a constant named above", s);
}

static uint32_t read_ret(const struct policy_table *t, const char *s)
{
	for (size_t i = 0; i < sizeof(verdicts) / sizeof(verdicts[0]); i++)
		if (!strcmp(verdicts[i].name, s))
			return verdicts[i].ret;
	policy_die(t, "'%s' is no verdict", s);
}

static void read_const(struct policy_table *t, char **w, unsigned n)
{
	struct policy_const *c = &t->consts[t->n_consts];

	if (n != 2 || t->n_consts == POLICY_MAX_CONSTS)
		policy_die(t, "a constant is NAME VALUE, and there are at most %d", POLICY_MAX_CONSTS);
	for (unsigned i = 0; i < t->n_consts; i++)
		if (!strcmp(t->consts[i].name, w[0]))
			policy_die(t, "constant '%s' is named twice", w[0]);
	copy_name(t, c->name, sizeof(c->name), w[0]);
	if (!is_number(w[1], &c->value))
		policy_die(t, "'%s' is no 32-bit number", w[1]);
	t->n_consts++;
}

static uint32_t read_mask(struct policy_table *t, char *s)
{
	bool is_inverted = *s == '~';
	uint32_t mask = 0;
	char *save = NULL;

	for (char *p = strtok_r(is_inverted ? s + 1 : s, "|", &save); p; p = strtok_r(NULL, "|", &save))
		mask |= read_value(t, p);
	if (!mask)
		policy_die(t, "an empty mask");
	return is_inverted ? ~mask : mask;
}

/* One test: 1&0xf=2,3 */
static void read_test(struct policy_table *t, char *s, struct policy_test *ret)
{
	char *op = strpbrk(s, "=!>"), *save = NULL;
	char *values;

	if (!op || (*op != '=' && op[1] != '='))
		policy_die(t, "'%s': a test is ARGUMENT[&MASK] and =, != or >= and values", s);
	ret->op = *op == '=' ? POLICY_EQ : *op == '!' ? POLICY_NE : POLICY_GE;
	values = *op == '=' ? op + 1 : op + 2;
	*op = '\0';
	if (s[0] < '0' || s[0] > '5' || (s[1] && s[1] != '&'))
		policy_die(t, "'%s': arguments are 0 to 5", s);
	ret->arg = (uint8_t)(s[0] - '0');
	ret->mask = s[1] ? read_mask(t, s + 2) : UINT32_MAX;
	for (char *p = strtok_r(values, ",", &save); p; p = strtok_r(NULL, ",", &save)) {
		uint32_t v = read_value(t, p);

		if (ret->n_values == POLICY_VALUES)
			policy_die(t, "more than %d values in one test", POLICY_VALUES);
		if (v & ~ret->mask)
			policy_die(t, "value '%s' has bits outside of its mask: it would never match", p);
		ret->values[ret->n_values++] = v;
	}
	if (!ret->n_values || (ret->op != POLICY_EQ && ret->n_values > 1))
		policy_die(t, "= takes one or more values, != and >= take one");
}

static void read_rule_line(struct policy_table *t, char **w, unsigned n, bool *is_open)
{
	struct policy_rule *r = &t->rules[t->n_rules];
	struct policy_clause *c = &r->clauses[r->n_clauses];

	if (!strcmp(w[0], "rule")) {
		if (*is_open || n != 2 || t->n_rules == POLICY_MAX_RULES)
			policy_die(t, "a rule is 'rule NAME' after the former one's 'else', and there are at most %d",
				   POLICY_MAX_RULES);
		for (unsigned i = 0; i < t->n_rules; i++)
			if (!strcmp(t->rules[i].name, w[1]))
				policy_die(t, "rule '%s' is there twice", w[1]);
		copy_name(t, r->name, sizeof(r->name), w[1]);
		*is_open = true;
		return;
	}
	if (!*is_open)
		policy_die(t, "'%s' outside of a rule", w[0]);
	if (!strcmp(w[0], "else")) {
		if (n != 2 || !r->n_clauses)
			policy_die(t, "'else VERDICT' ends a rule of at least one line");
		r->otherwise = read_ret(t, w[1]);
		t->n_rules++;
		*is_open = false;
		return;
	}
	if (n < 2 || n - 1 > POLICY_TESTS || r->n_clauses == POLICY_CLAUSES)
		policy_die(t, "a line is VERDICT and 1 to %d tests; a rule has at most %d lines", POLICY_TESTS,
			   POLICY_CLAUSES);
	c->ret = read_ret(t, w[0]);
	for (unsigned i = 1; i < n; i++)
		read_test(t, w[i], &c->tests[c->n_tests++]);
	r->n_clauses++;
}

static struct policy_verdict read_verdict(struct policy_table *t, const char *s)
{
	if (*s != '@')
		return (struct policy_verdict){ .rule = -1, .ret = read_ret(t, s) };
	for (unsigned i = 0; i < t->n_rules; i++) {
		if (!strcmp(t->rules[i].name, s + 1)) {
			t->rule_uses[i]++;
			return (struct policy_verdict){ .rule = (int32_t)i };
		}
	}
	policy_die(t, "there is no rule '%s'", s + 1);
}

/* A dash: this filter says nothing about the call. */
static struct policy_verdict read_tightening(struct policy_table *t, char *s, uint32_t *ret_variant)
{
	char *colon = strchr(s, ':');

	if (!strcmp(s, "-"))
		return (struct policy_verdict){ .rule = -1, .ret = SECCOMP_RET_ALLOW };
	if (!colon)
		return read_verdict(t, s);
	*colon = '\0';
	for (unsigned i = 0; i < POLICY_VARIANTS; i++) {
		if (ret_variant && !strcmp(variants[i], s)) {
			*ret_variant = 1u << i;
			return read_verdict(t, colon + 1);
		}
	}
	policy_die(t, "'%s' is no variant of this column", s);
}

/* A number column is checked for both machines, whichever the filters are made for: a column that nobody reads rots. */
static int32_t read_nr(const struct policy_table *t, const char *name, const char *column, uint32_t arch,
		       const char *arch_name)
{
	int nr = seccomp_syscall_resolve_name_arch(arch, name);
	uint32_t given;

	/* below -1: it exists elsewhere, not on this machine */
	if (!strcmp(column, "-")) {
		if (nr >= 0)
			policy_die(t, "'%s' does exist on %s: number %d", name, arch_name, nr);
		return -1;
	}
	if (!strcmp(column, "*")) {
		if (nr < 0)
			policy_die(t, "'%s' is unknown on %s: a slip, or give its number", name, arch_name);
		return nr;
	}
	if (!is_number(column, &given) || given > 0xffff)
		policy_die(t, "'%s' is no system call number", column);
	if (nr >= 0 && (uint32_t)nr != given)
		policy_die(t, "'%s' has number %d on %s, not %u", name, nr, arch_name, given);
	return (int32_t)given;
}

static void read_call(struct policy_table *t, char **w, unsigned n)
{
	struct policy_call *c = &t->calls[t->n_calls];
	int32_t x86_64, aarch64;

	if (n != 6 || t->n_calls == POLICY_MAX_CALLS)
		policy_die(t, "a call is NAME x86_64 aarch64 A B last, and there are at most %d", POLICY_MAX_CALLS);
	copy_name(t, c->name, sizeof(c->name), w[0]);
	x86_64 = read_nr(t, w[0], w[1], SCMP_ARCH_X86_64, "x86_64");
	aarch64 = read_nr(t, w[0], w[2], SCMP_ARCH_AARCH64, "aarch64");
	c->nr = !strcmp(t->arch, "x86_64") ? x86_64 : aarch64;
	for (unsigned i = 0; i < t->n_calls; i++) {
		if (!strcmp(t->calls[i].name, c->name))
			policy_die(t, "'%s' is there twice", c->name);
		if (c->nr >= 0 && t->calls[i].nr == c->nr)
			policy_die(t, "'%s' and '%s' have one number", c->name, t->calls[i].name);
	}
	c->a = read_verdict(t, w[3]);
	c->b = read_tightening(t, w[4], NULL);
	c->last = read_tightening(t, w[5], &c->last_variant);
	t->n_calls++;
}

static void check_all_used(struct policy_table *t)
{
	for (unsigned i = 0; i < t->n_consts; i++)
		if (!t->consts[i].uses)
			policy_die(t, "constant '%s' is used by no rule", t->consts[i].name);
	for (unsigned i = 0; i < t->n_rules; i++)
		if (!t->rule_uses[i])
			policy_die(t, "rule '%s' is used by no call", t->rules[i].name);
	if (!t->n_calls)
		policy_die(t, "no calls");
}

static void read_section(const struct policy_table *t, const char *word, enum section *section)
{
	static const char *const heads[] = { [CONSTANTS] = "[constants]", [RULES] = "[rules]", [CALLS] = "[calls]" };
	enum section next = *section + 1;

	if (next > CALLS || strcmp(word, heads[next]) != 0)
		policy_die(t, "'%s': the sections are [constants], [rules] and [calls], in this order", word);
	*section = next;
}

static void read_line(struct policy_table *t, char *line, enum section *section, bool *is_open)
{
	char *w[MAX_WORDS], *save = NULL;
	unsigned n = 0;

	line[strcspn(line, "#\n")] = '\0';
	for (char *p = strtok_r(line, " \t", &save); p; p = strtok_r(NULL, " \t", &save)) {
		if (n == MAX_WORDS)
			policy_die(t, "more than %d words", MAX_WORDS);
		w[n++] = p;
	}
	if (!n)
		return;
	if (w[0][0] == '[') {
		if (*is_open)
			policy_die(t, "a rule without its 'else'");
		read_section(t, w[0], section);
		return;
	}
	switch (*section) {
	case NONE:
		policy_die(t, "'%s' before the first section", w[0]);
	case CONSTANTS:
		read_const(t, w, n);
		break;
	case RULES:
		read_rule_line(t, w, n, is_open);
		break;
	case CALLS:
		read_call(t, w, n);
		break;
	}
}

void policy_read(const char *path, const char *arch, struct policy_table *ret)
{
	FILE *f = fopen(path, "re");
	enum section section = NONE;
	char line[512];
	bool is_open = false;

	ret->path = path;
	ret->arch = arch;
	if (strcmp(arch, "x86_64") != 0 && strcmp(arch, "aarch64") != 0)
		policy_die(ret, "there is no column for %s", arch);
	if (!f)
		policy_die(ret, "%s", strerror(errno));
	while (fgets(line, sizeof(line), f)) {
		ret->line++;
		if (strlen(line) == sizeof(line) - 1)
			policy_die(ret, "a line of over %zu bytes", sizeof(line) - 2);
		read_line(ret, line, &section, &is_open);
	}
	if (ferror(f))
		policy_die(ret, "can't be read");
	fclose(f);
	ret->line = 0;
	check_all_used(ret);
}
