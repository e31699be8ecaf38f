/* SPDX-License-Identifier: Apache-2.0 */
#include "server/confine.h"

#include <errno.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pwd.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NOBODY   65534
#define CAPS_MAX 63
#define NEWEST   462 /* mseal: what comes after it was not looked at */

#if defined(__x86_64__)
#define OUR_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OUR_ARCH AUDIT_ARCH_AARCH64
#else
#error "no list of system calls for this machine"
#endif

/* What no thread of the server has a use for: new programs and processes, others' processes, mounts, the kernel's
 * workings. */
static const unsigned refused[] = {
	SYS_execve,
	SYS_execveat,
	SYS_unshare,
	SYS_setns,
	SYS_ptrace,
	SYS_process_vm_readv,
	SYS_process_vm_writev,
	SYS_process_madvise,
	SYS_pidfd_getfd,
	SYS_kcmp,
	SYS_mount,
	SYS_umount2,
	SYS_pivot_root,
	SYS_chroot,
	SYS_move_mount,
	SYS_open_tree,
	SYS_fsopen,
	SYS_fsconfig,
	SYS_fsmount,
	SYS_fspick,
	SYS_mount_setattr,
	SYS_swapon,
	SYS_swapoff,
	SYS_bpf,
	SYS_perf_event_open,
	SYS_userfaultfd,
	SYS_keyctl,
	SYS_add_key,
	SYS_request_key,
	SYS_init_module,
	SYS_finit_module,
	SYS_delete_module,
	SYS_kexec_load,
	SYS_kexec_file_load,
	SYS_reboot,
	SYS_io_uring_setup,
	SYS_io_uring_enter,
	SYS_io_uring_register,
	SYS_name_to_handle_at,
	SYS_open_by_handle_at,
	SYS_fanotify_init,
	SYS_fanotify_mark,
	SYS_personality,
	SYS_quotactl,
	SYS_acct,
	SYS_settimeofday,
	SYS_clock_settime,
	SYS_clock_adjtime,
	SYS_adjtimex,
	SYS_sethostname,
	SYS_setdomainname,
	SYS_vhangup,
	SYS_syslog,
	SYS_lookup_dcookie,
	SYS_nfsservctl,
	SYS_mknodat,
	SYS_setuid,
	SYS_setgid,
	SYS_setreuid,
	SYS_setregid,
	SYS_setresuid,
	SYS_setresgid,
	SYS_setgroups,
	SYS_setfsuid,
	SYS_setfsgid,
	SYS_capset,
	SYS_remap_file_pages,
	SYS_mbind,
	SYS_migrate_pages,
	SYS_move_pages,
	SYS_shmget,
	SYS_msgget,
	SYS_semget,
	SYS_mq_open,
#ifdef __x86_64__
	SYS_fork,
	SYS_vfork,
	SYS_mknod,
	SYS_iopl,
	SYS_ioperm,
	SYS_modify_ldt,
	SYS_uselib,
	SYS_ustat,
	SYS_sysfs,
	SYS__sysctl,
	SYS_create_module,
	SYS_get_kernel_syms,
	SYS_query_module,
#endif
};

/* A program of the filter's, written from top to bottom. */
struct program {
	struct sock_filter code[2 * sizeof(refused) / sizeof(refused[0]) + 64];
	unsigned short n;
};

static void put(struct program *p, uint16_t code, uint8_t yes, uint8_t no, uint32_t k)
{
	p->code[p->n++] = (struct sock_filter) { .code = code, .jt = yes, .jf = no, .k = k };
}

static void answer(struct program *p, uint32_t verdict)
{
	put(p, BPF_RET | BPF_K, 0, 0, verdict);
}

static void load(struct program *p, size_t offset)
{
	put(p, BPF_LD | BPF_W | BPF_ABS, 0, 0, (uint32_t)offset);
}

/* Half of an argument; the machines that we know are little endian. */
static void load_argument(struct program *p, unsigned i)
{
	load(p, offsetof(struct seccomp_data, args) + i * sizeof(uint64_t));
}

/* @nr with all of @bits in argument @i: @set; with any of them missing: @unset.  Any other number goes on behind it. */
static void by_bits(struct program *p, unsigned nr, unsigned i, uint32_t bits, uint32_t set, uint32_t unset)
{
	put(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 5, nr);
	load_argument(p, i);
	put(p, BPF_ALU | BPF_AND | BPF_K, 0, 0, bits);
	put(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, bits);
	answer(p, set);
	answer(p, unset);
}

static void write_filter(struct program *p)
{
	const uint32_t no = SECCOMP_RET_ERRNO | EPERM;
	const uint32_t unknown = SECCOMP_RET_ERRNO | ENOSYS;

	load(p, offsetof(struct seccomp_data, arch));
	put(p, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, OUR_ARCH);
	answer(p, SECCOMP_RET_KILL_PROCESS);
	load(p, offsetof(struct seccomp_data, nr));
	put(p, BPF_JMP | BPF_JGT | BPF_K, 0, 1, NEWEST); /* the x32 calls among them */
	answer(p, unknown);
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		put(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, refused[i]);
		answer(p, no);
	}
	/* threads only; their library takes clone where there is no clone3, whose flags can't be seen */
	put(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_clone3);
	answer(p, unknown);
	by_bits(p, SYS_clone, 0, CLONE_THREAD, SECCOMP_RET_ALLOW, no);
	/* no code but what is there already */
	by_bits(p, SYS_mmap, 2, PROT_EXEC, no, SECCOMP_RET_ALLOW);
	by_bits(p, SYS_mprotect, 2, PROT_EXEC, no, SECCOMP_RET_ALLOW);
	by_bits(p, SYS_pkey_mprotect, 2, PROT_EXEC, no, SECCOMP_RET_ALLOW);
	/* AF_UNIX alone */
	put(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 4, SYS_socket);
	load_argument(p, 0);
	put(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, AF_UNIX);
	answer(p, SECCOMP_RET_ALLOW);
	answer(p, no);
	answer(p, SECCOMP_RET_ALLOW);
}

void confine_find_user(struct front_user *ret)
{
	const struct passwd *p = getpwnam("cloche");

	*ret = (struct front_user) { .uid = NOBODY, .gid = NOBODY };
	if (p && p->pw_uid != 0 && p->pw_gid != 0) {
		*ret = (struct front_user) { .uid = p->pw_uid, .gid = p->pw_gid, .is_own = true };
		return;
	}
	p = getpwnam("nobody");
	if (p && p->pw_uid != 0 && p->pw_gid != 0)
		*ret = (struct front_user) { .uid = p->pw_uid, .gid = p->pw_gid };
}

/* Return: 1; 0: there is no other user here; -errno */
static int become(const struct front_user *u)
{
	if (setgroups(0, NULL) < 0 || setresgid(u->gid, u->gid, u->gid) < 0 || setresuid(u->uid, u->uid, u->uid) < 0) {
		/* root of a user namespace with one id, or without the right */
		return errno == EPERM || errno == EINVAL ? 0 : -errno;
	}
	return 1;
}

static int drop_capabilities(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { { 0 } };

	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	return (int)syscall(SYS_capset, &header, none);
}

int confine(const struct front_user *u, struct err *e)
{
	struct program p = { .n = 0 };
	struct sock_fprog filter = { .filter = p.code };
	int r;

	for (int cap = 0; cap <= CAPS_MAX; cap++) /* the kernel has fewer, or we no right to */
		(void)prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
	r = become(u);
	if (r < 0)
		return err_set(e, ERR_HOST, -r, "become user %u", u->uid);
	if (drop_capabilities() < 0)
		return err_set(e, ERR_HOST, errno, "give up capabilities");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return err_set(e, ERR_HOST, errno, "give up privileges");
	write_filter(&p);
	filter.len = p.n;
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) < 0)
		return err_set(e, ERR_HOST, errno, "refuse system calls");
	return r;
}
