# SPDX-License-Identifier: Apache-2.0
"""The policy as this suite expects it, written down apart from the product's own table: names, arguments, verdicts."""

# Reached by number; whatever the kernel says to bad arguments is fine.
ALLOW = set("""
read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 lseek close close_range dup dup2 dup3
open openat creat stat fstat lstat newfstatat statx statfs fstatfs access faccessat faccessat2 getcwd chdir fchdir
getdents getdents64 readlink readlinkat mkdir mkdirat rmdir unlink unlinkat rename renameat renameat2 link linkat symlink
symlinkat chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utime utimes utimensat futimesat truncate ftruncate
fallocate fadvise64 fsync fdatasync msync sync_file_range flock umask getxattr lgetxattr fgetxattr listxattr llistxattr
flistxattr inotify_init inotify_init1 inotify_add_watch inotify_rm_watch
mmap munmap mprotect mremap madvise brk mlock mlock2 mlockall munlock munlockall membarrier
poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 eventfd eventfd2
signalfd signalfd4 timerfd_create timerfd_settime timerfd_gettime pipe pipe2
bind connect listen accept accept4 getsockname getpeername sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg shutdown
getsockopt setsockopt
fork vfork execve execveat exit exit_group wait4 waitid kill tkill tgkill pidfd_open pidfd_send_signal
set_tid_address set_robust_list get_robust_list rseq futex futex_waitv arch_prctl
rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigsuspend rt_sigtimedwait sigaltstack restart_syscall pause alarm
setitimer getitimer timer_create timer_settime timer_gettime timer_getoverrun timer_delete nanosleep clock_nanosleep
clock_gettime clock_getres gettimeofday time times
getpid getppid gettid getuid geteuid getgid getegid getresuid getresgid getgroups getpgid getpgrp getsid getrlimit getrusage
getpriority getcpu getrandom setpgid setsid setrlimit setpriority setuid setgid setreuid setregid setresuid setresgid
sched_yield sched_getparam sched_getscheduler sched_get_priority_max sched_get_priority_min sched_rr_get_interval
sched_getaffinity sched_getattr sched_setparam sched_setscheduler sched_setaffinity sched_setattr
get_mempolicy ioprio_get capget uname sysinfo
""".split())

# Reached with some arguments only: what else they may say to bad ones.
SOME = {
    "clone": {"EPERM", "EINVAL"}, "socket": {"EAFNOSUPPORT", "EPERM", "EINVAL", "EPROTONOSUPPORT"},
    "socketpair": {"EAFNOSUPPORT", "EPERM", "EINVAL", "EPROTONOSUPPORT", "EOPNOTSUPP"},
    "ioctl": {"ENOTTY", "EBADF", "EPERM"},
    "fcntl": {"EPERM", "EINVAL", "EBADF", "ENOSYS"}, "prctl": {"EPERM", "EINVAL"}, "personality": {"0", "EPERM", "OK"},
    "prlimit64": {"EPERM", "EINVAL"}, "memfd_create": {"EPERM", "EINVAL", "EFAULT", "ENOSYS"},
    "mknod": {"EPERM", "EFAULT"}, "mknodat": {"EPERM", "EFAULT", "EBADF"},
}

EPERM = set("""
ptrace process_vm_readv process_vm_writev kcmp pidfd_getfd process_madvise unshare setns chroot pivot_root mount umount2 bpf
perf_event_open userfaultfd name_to_handle_at open_by_handle_at init_module finit_module delete_module create_module
kexec_load kexec_file_load reboot swapon swapoff acct quotactl quotactl_fd syslog sethostname setdomainname settimeofday
clock_settime clock_adjtime adjtimex iopl ioperm vhangup setgroups setfsuid setfsgid capset fanotify_init fanotify_mark
seccomp ioprio_set set_mempolicy mbind migrate_pages move_pages rt_sigqueueinfo rt_tgsigqueueinfo mincore
""".split())

SUCCESS = {"sync", "syncfs"}  # pretended: a flush of the whole host is nobody's
NOT_SUPPORTED = {"setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr"}

# The kernel keeps these from every filter (they serve its own trampolines) and refuses them outside of those.
PASSED_BY = {335: {"signal 4", "ENOSYS", "EPERM"}, 336: {"ENXIO", "ENOSYS", "EPERM"}}

# Newer than some headers.
NEWER = {"fchmodat2": 452}

# Not called by the sweep: they end or stop the caller, or give the sweep's own child away.
NOT_SWEPT = {"exit", "exit_group", "pause", "rt_sigreturn", "fork", "vfork", "rt_sigsuspend", "restart_syscall",
             "select", "poll", "set_tid_address"}

H = 0x700000000
BAD_FAMILY = {"EAFNOSUPPORT", "EPERM", "ENOSYS", "EACCES", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT", "EINVAL"}
NO = {"EPERM"}
ABSENT = {"ENOSYS"}
FAMILY = {"unix": 1, "inet": 2, "inet6": 10, "key": 15, "netlink": 16, "packet": 17, "rds": 21, "can": 29, "tipc": 30,
          "rxrpc": 33, "alg": 38, "vsock": 40, "smc": 43, "xdp": 44}


def socket_probes():
    rows = [(f"socket {name}", "socket", (FAMILY[family] | high, kind, proto), expect)
            for name, family, kind, proto, high, expect in (
        ("unix", "unix", 1, 0, 0, {"OK"}), ("unix dgram", "unix", 2, 0, 0, {"OK"}),
        ("inet stream", "inet", 1, 0, 0, {"OK"}),
        ("inet6 dgram", "inet6", 2, 0, 0, {"OK"}), ("inet tcp", "inet", 1, 6, 0, {"OK"}),
        ("inet udp", "inet", 2, 17, 0, {"OK"}),
        ("netlink route", "netlink", 3, 0, 0, {"OK"}), ("unix cloexec", "unix", 1 | 0o2000000, 0, 0, {"OK"}),
        ("inet raw", "inet", 3, 1, 0, BAD_FAMILY), ("inet raw 255", "inet", 3, 255, 0, BAD_FAMILY),
        ("inet6 raw", "inet6", 3, 58, 0, BAD_FAMILY),
        ("mptcp", "inet", 1, 262, 0, BAD_FAMILY), ("sctp", "inet", 1, 132, 0, BAD_FAMILY),
        ("udplite", "inet", 2, 136, 0, BAD_FAMILY),
        ("icmp", "inet", 2, 1, 0, BAD_FAMILY), ("unix raw type", "unix", 3, 1, 0, BAD_FAMILY),
        ("netlink xfrm", "netlink", 3, 6, 0, BAD_FAMILY), ("netlink audit", "netlink", 3, 9, 0, BAD_FAMILY),
        ("netlink netfilter", "netlink", 3, 12, 0, BAD_FAMILY), ("netlink uevent", "netlink", 3, 15, 0, BAD_FAMILY),
        ("netlink generic", "netlink", 3, 16, 0, BAD_FAMILY), ("netlink diag", "netlink", 3, 4, 0, BAD_FAMILY),
        ("packet", "packet", 3, 0, 0, BAD_FAMILY), ("rds", "rds", 5, 0, 0, BAD_FAMILY),
        ("key", "key", 3, 2, 0, BAD_FAMILY),
        ("can", "can", 3, 1, 0, BAD_FAMILY), ("tipc", "tipc", 2, 0, 0, BAD_FAMILY),
        ("rxrpc", "rxrpc", 2, 2, 0, BAD_FAMILY),
        ("alg", "alg", 5, 0, 0, BAD_FAMILY), ("vsock", "vsock", 1, 0, 0, BAD_FAMILY),
        ("xdp", "xdp", 3, 0, 0, BAD_FAMILY),
        ("smc", "smc", 1, 0, 0, BAD_FAMILY), ("alg high", "alg", 5, 0, H, BAD_FAMILY),
        ("vsock high", "vsock", 1, 0, H, BAD_FAMILY),
        ("packet high", "packet", 3, 0, H, BAD_FAMILY), ("inet raw high", "inet", 3, 1, H, BAD_FAMILY))]
    rows += [("socket vsock type high", "socket", (40, 1 | H, 0), BAD_FAMILY),
             ("socket raw type high", "socket", (2, 3 | H, 1 | H), BAD_FAMILY),
             ("socketpair inet", "socketpair", (2, 1, 0, 0), BAD_FAMILY | {"EOPNOTSUPP", "EFAULT"}),
             ("socketpair vsock", "socketpair", (40, 1, 0, 0), BAD_FAMILY)]
    return rows


def argument_probes():
    gone = {"ENOTTY", "EPERM"}
    rows = [(f"ioctl {n}", "ioctl", (0, r, 0), gone) for n, r in (
        ("TIOCSTI", 0x5412), ("TIOCSTI high", 0x5412 | H), ("TIOCLINUX", 0x541c), ("TIOCSETD", 0x5423),
        ("TIOCSCTTY", 0x540e),
        ("TIOCCONS", 0x541d), ("FICLONE", 0x40049409), ("FIDEDUPERANGE", 0xc0189436), ("FS_IOC_SETFLAGS", 0x40086602),
        ("SIOCSIFFLAGS", 0x8914), ("SIOCSIFADDR", 0x8916), ("FIOASYNC", 0x5452), ("NS_GET_USERNS", 0xb701),
        ("BLKROSET", 0x125d))]
    rows += [("ioctl TCGETS", "ioctl", (0, 0x5401, 0), {"ENOTTY"}),
             ("ioctl FIONREAD", "ioctl", (0, 0x541b, 0), {"EFAULT", "OK", "ENOTTY"})]
    rows += [(f"clone {n}", "clone", (f | 17, 0, 0, 0, 0), NO) for n, f in (
        ("user", 0x10000000), ("mount", 0x20000), ("pid", 0x20000000), ("net", 0x40000000), ("ipc", 0x8000000),
        ("uts", 0x4000000),
        ("cgroup", 0x2000000), ("net high", 0x40000000 | H))]
    rows += [(f"fcntl {n}", "fcntl", (0, c, 0), {"EPERM", "EINVAL", "ENOSYS"}) for n, c in (
        ("F_NOTIFY", 1026), ("F_SETLEASE", 1024), ("F_SETOWN", 8), ("F_SETSIG", 10), ("F_SETOWN_EX", 15),
        ("F_SETOWN high", 8 | H))]
    rows += [("fcntl F_GETFL", "fcntl", (0, 3, 0), {"OK"}), ("fcntl F_GETFD", "fcntl", (0, 1, 0), {"OK"})]
    rows += [(f"prctl {n}", "prctl", a, {"EPERM", "EINVAL", "ENOSYS"}) for n, a in (
        ("SET_SECCOMP", (22, 2, 0, 0, 0)), ("SET_MM", (35, 1, 0, 0, 0)), ("SET_PTRACER", (0x59616d61, 1, 0, 0, 0)),
        ("SET_DUMPABLE 1", (4, 1, 0, 0, 0)), ("SYSCALL_USER_DISPATCH", (59, 0, 0, 0, 0)),
        ("SCHED_CORE", (62, 0, 0, 0, 0)),
        ("CAPBSET_DROP", (24, 1, 0, 0, 0)), ("SET_SECUREBITS", (28, 0, 0, 0, 0)), ("SET_KEEPCAPS", (8, 1, 0, 0, 0)),
        ("CAP_AMBIENT", (47, 4, 0, 0, 0)), ("SPEC_CTRL", (53, 0, 0, 0, 0)), ("MCE_KILL", (33, 0, 0, 0, 0)),
        ("SET_SECCOMP high", (22 | H, 2, 0, 0, 0)))]
    rows += [("prctl GET_NAME", "prctl", (16, 0, 0, 0, 0), {"EFAULT"}),
             ("prctl GET_DUMPABLE", "prctl", (3, 0, 0, 0, 0), {"OK"}),
             ("prctl SET_NO_NEW_PRIVS", "prctl", (38, 1, 0, 0, 0), {"OK"}),
             ("personality query", "personality", (0xffffffff,), {"OK"}),
             ("personality NO_RANDOMIZE", "personality", (0x40000,), NO),
             ("personality READ_IMPLIES_EXEC", "personality", (0x400000,), NO),
             ("personality PER_LINUX32", "personality", (8,), NO),
             ("prlimit64 pid 1", "prlimit64", (1, 7, 0, 0), NO), ("prlimit64 self", "prlimit64", (0, 7, 0, 0), {"OK"}),
             ("sched_setscheduler pid 1", "sched_setscheduler", (1, 0, 0), {"EPERM", "ESRCH"}),
             ("sched_setaffinity pid 1", "sched_setaffinity", (1, 8, 0), {"EPERM", "ESRCH"}),
             ("sched_setparam pid 1", "sched_setparam", (1, 0), {"EPERM", "ESRCH"}),
             ("setpriority pid 1", "setpriority", (0, 1, 19), {"EPERM", "ESRCH"}),
             ("memfd_create huge", "memfd_create", ("x", 4), {"EPERM", "EINVAL", "ENOSYS"}),
             ("mmap huge", "mmap", (0, 2 << 20, 3, 0x40022, -1, 0), {"ENOMEM"}),
             ("mmap", "mmap", (0, 4096, 3, 0x22, -1, 0), {"OK"}),
             ("madvise mergeable", "madvise", (0, 4096, 12), {"EINVAL", "EPERM"}),
             ("madvise hwpoison", "madvise", (0, 4096, 100), {"EINVAL", "EPERM"}),
             ("madvise soft offline", "madvise", (0, 4096, 101), {"EINVAL", "EPERM"}),
             ("madvise mergeable high", "madvise", (0, 4096, 12 | H), {"EINVAL", "EPERM"}),
             ("mknodat char", "mknodat", (-100, "/tmp/zz", 0o020666, 0x103), NO),
             ("mknodat block", "mknodat", (-100, "/tmp/zy", 0o060666, 0x800), NO),
             ("mknodat fifo", "mknodat", (-100, "/tmp/zx", 0o010600, 0), {"OK"}),
             ("setsockopt TCP_ULP", "setsockopt", (0, 6, 31, 0, 0), {"ENOPROTOOPT", "EPERM"}),
             ("setsockopt TCP_REPAIR", "setsockopt", (0, 6, 19, 0, 0), {"ENOPROTOOPT", "EPERM"}),
             ("setsockopt TCP_MD5SIG", "setsockopt", (0, 6, 14, 0, 0), {"ENOPROTOOPT", "EPERM"}),
             ("setsockopt ATTACH_FILTER", "setsockopt", (0, 1, 26, 0, 0), {"ENOPROTOOPT", "EPERM"}),
             ("setsockopt ATTACH_BPF", "setsockopt", (0, 1, 50, 0, 0), {"ENOPROTOOPT", "EPERM"}),
             ("setsockopt REUSEPORT_EBPF", "setsockopt", (0, 1, 52, 0, 0), {"ENOPROTOOPT", "EPERM"}),
             ("setsockopt ZEROCOPY", "setsockopt", (0, 1, 60, 0, 0), {"ENOPROTOOPT", "EPERM"}),
             ("setsockopt xtables", "setsockopt", (0, 0, 64, 0, 0), NO),
             ("setsockopt xtables high", "setsockopt", (0, 0, 64 | H, 0, 0), NO),
             ("setsockopt ATTACH_FILTER high", "setsockopt", (0, 1 | H, 26 | H, 0, 0), {"ENOPROTOOPT", "EPERM"}),
             ("sendto OOB", "sendto", (0, 0, 0, 1, 0, 0), {"EOPNOTSUPP"}),
             ("sendto ZEROCOPY", "sendto", (0, 0, 0, 0x4000000, 0, 0), {"EOPNOTSUPP"}),
             ("recvfrom OOB", "recvfrom", (0, 0, 0, 1, 0, 0), {"EOPNOTSUPP", "ENOTSOCK"}),
             ("sendto OOB high", "sendto", (0, 0, 0, 1 | H, 0, 0), {"EOPNOTSUPP"})]
    rows += [(f"futex {op}", "futex", (0, op, 0, 0, 0, 0), ABSENT) for op in (6, 7, 8, 11, 12, 13, 6 | 128, 6 | H)]
    return rows


def number_probes():
    """Refused whole: called with zeros, which would say EFAULT or EBADF behind the filter."""
    refused = sorted(EPERM - {"create_module", "kexec_file_load", "quotactl_fd"})
    absent = """clone3 io_uring_setup io_uring_enter io_uring_register splice tee vmsplice sendfile copy_file_range fsopen fsconfig fsmount
        fspick open_tree move_mount mount_setattr openat2 keyctl add_key request_key shmget shmat msgget semget mq_open io_setup pkey_alloc
        memfd_secret modify_ldt landlock_create_ruleset landlock_restrict_self readahead remap_file_pages process_mrelease lookup_dcookie
        """.split()
    rows = [(n, n, (0,) * 6, NO) for n in refused] + [(n, n, (0,) * 6, ABSENT) for n in absent]
    rows += [(f"number {n}", n, (0,) * 6, ABSENT) for n in (451, 453, 457, 458, 459, 461, 467, 500, 5000, 65535)]
    rows += [("sync", "sync", (), {"OK"}), ("setxattr", "setxattr", (0, 0, 0, 0, 0), {"EOPNOTSUPP"})]
    return rows


PROBES = socket_probes() + argument_probes() + number_probes()
