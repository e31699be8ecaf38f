/* SPDX-License-Identifier: Apache-2.0 */
/* The system call filters, made at build time from policy/syscalls.tbl; here they are only handed to the kernel. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/macro.h"
#include "sandbox/policy/filters.h"
#include "sandbox/seccomp.h"

/* A filter that came out empty or cut short must not get as far as a program. */
_Static_assert(ARRAY_LEN(policy_a) > 150 && ARRAY_LEN(policy_a) <= BPF_MAXINSNS, "filter A has no sane length");
_Static_assert(ARRAY_LEN(policy_b) > 50 && ARRAY_LEN(policy_b) <= BPF_MAXINSNS, "filter B has no sane length");
_Static_assert(ARRAY_LEN(policy_short_0) > 20 && ARRAY_LEN(policy_short_7) <= BPF_MAXINSNS,
	       "the short filter has no sane length");
_Static_assert(ARRAY_LEN(policy_short) == SECCOMP_VARIANTS, "a short filter for each variant");

#define WATCHED_MAX 128 /* instructions */

/* struct sock_fprog with its pointer const: the kernel only reads, and the filters stay in read-only memory. */
struct filter_prog {
	unsigned short len;
	const struct sock_filter *filter;
};
_Static_assert(sizeof(struct filter_prog) == sizeof(struct sock_fprog), "the kernel's layout");

static int load(const struct sock_filter *insns, unsigned short n, unsigned flags)
{
	const struct filter_prog prog = { .len = n, .filter = insns };

	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &prog);
}

int seccomp_load_base(void)
{
	/* B first: of two refusals the kernel reports that of the filter loaded last, and A's is the plainer one */
	if (load(policy_b, ARRAY_LEN(policy_b), 0) < 0)
		return -1;
	return load(policy_a, ARRAY_LEN(policy_a), 0);
}

static int load_short(unsigned variant, unsigned flags)
{
	if (variant >= SECCOMP_VARIANTS) {
		errno = EINVAL;
		return -1;
	}
	return load(policy_short[variant].insns, policy_short[variant].n, flags);
}

int seccomp_load_short(unsigned variant)
{
	return load_short(variant, 0);
}

int seccomp_load_heard(unsigned variant)
{
	return load_short(variant, SECCOMP_FILTER_FLAG_NEW_LISTENER);
}

/*
 * The short filter behind two comparisons.  Filters A and B are asked as well, and a refusal of theirs outranks this: only
 * calls that they allow are reported.  The short filter itself says nothing about these two where it is used like this.
 */
int seccomp_load_watched(unsigned variant)
{
	static const struct sock_filter head[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socketpair, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
	};
	struct sock_filter all[WATCHED_MAX];
	unsigned short n;

	if (variant >= SECCOMP_VARIANTS || (variant & SECCOMP_NO_INET) ||
	    policy_short[variant].n > WATCHED_MAX - ARRAY_LEN(head)) {
		errno = EINVAL;
		return -1;
	}
	n = (unsigned short)(ARRAY_LEN(head) + policy_short[variant].n);
	memcpy(all, head, sizeof(head));
	memcpy(all + ARRAY_LEN(head), policy_short[variant].insns, policy_short[variant].n * sizeof(*all));
	return load(all, n, SECCOMP_FILTER_FLAG_NEW_LISTENER);
}
