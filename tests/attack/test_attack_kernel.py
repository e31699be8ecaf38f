# SPDX-License-Identifier: Apache-2.0
"""Namespaces, mounts and the rest of the kernel's surface."""

from attack_support import Case
from both import test_control, test_inside  # noqa: F401

DENIED = ("EPERM", "ENOSYS", "EACCES")
FLAGS = {"user": 0x10000000, "mount": 0x20000, "pid": 0x20000000, "network": 0x40000000, "ipc": 0x8000000,
    "uts": 0x4000000,
         "cgroup": 0x2000000, "time": 0x80}


def call(name, text, held=DENIED, control="user", why=""):
    """One system call in a child of its own; what it returns is the evidence."""
    return Case(name, "def attack(P):\n    return IN_CHILD(lambda: (%s) is not None)\n" % text, held, control, why)


CASES = [call("unshare-" + n, "SC('unshare', %d)" % f, control="user" if n == "user" else "root") for n,
    f in FLAGS.items()]
CASES += [
    call("clone-user", "SC('clone', 0x10000000 | 17, 0, 0, 0, 0) or os._exit(0)"),
    call("clone-user-high-bits", "SC('clone', 0x710000000 | 17, 0, 0, 0, 0) or os._exit(0)"),
    call("clone3-user", "SC('clone3', BUF(struct.pack('=11Q', 0x10000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0)), 88) or os._exit(0)",
         ("ENOSYS",)),
    call("setns-mount-own", "SC('setns', os.open('/proc/self/ns/mnt', os.O_RDONLY), 0)", control="root"),
    call("setns-net-own", "SC('setns', os.open('/proc/self/ns/net', os.O_RDONLY), 0)", control="root"),
    call("setns-init", "SC('setns', SC('pidfd_open', 1, 0), 0x20000)", DENIED + ("ESRCH", "EINVAL"), "private"),
    call("mount-tmpfs", "SC('mount', BUF(b'none'), BUF(b'/tmp'), BUF(b'tmpfs'), 0, 0)", control="private"),
    call("mount-proc", "SC('mount', BUF(b'proc'), BUF(b'/tmp'), BUF(b'proc'), 0, 0)", control="private"),
    call("remount-writable",
        "SC('mount', 0, BUF(b'/usr'), 0, 0x20 | 0x1000, 0) if os.path.ismount('/usr') else SC('mount', 0, BUF(b'/'), 0, 0x20 | 0x1000, 0)",
         control="private"),
    call("bind-mount", "SC('mount', BUF(b'/'), BUF(b'/tmp'), 0, 0x1000, 0)", control="private"),
    call("unmount", "SC('umount2', BUF(b'/mnt' if os.path.exists('/mnt') else b'/proc'), 2)", control="private"),
    call("chroot", "SC('chroot', BUF(b'/tmp'))", control="private"),
    call("pivot-root", "(SC('mount', BUF(b'none'), BUF(b'/mnt'), BUF(b'tmpfs'), 0, 0) if os.path.exists('/mnt') else 0,"
         " SC('pivot_root', BUF(b'/mnt'), BUF(b'/mnt')))", control="private"),
    call("fsopen", "SC('fsopen', BUF(b'tmpfs'), 0)", control="root"),
    call("open-tree-clone", "SC('open_tree', -100, BUF(b'/'), 1)", control="root"),
    call("mount-setattr", "SC('mount_setattr', -100, BUF(b'/mnt'), 0, BUF(struct.pack('=4Q', 1, 0, 0, 0)), 32)",
        control="private"),
    call("host-name-set", "SC('sethostname', BUF(b'taken'), 5)", control="private"),
    call("domain-name-set", "SC('setdomainname', BUF(b'taken'), 5)", control="private"),
    call("time-zone-set", "SC('settimeofday', 0, BUF(struct.pack('=ii', 0, 0)))", control="root"),
    call("kernel-log", "SC('syslog', 3, BUF(b' ' * 4096), 4096) or 1", control="root"),
    call("bpf-map", "SC('bpf', 0, BUF(struct.pack('=IIII', 2, 4, 4, 1) + b'\\0' * 112), 128)", control="root"),
    call("perf-event", "SC('perf_event_open', BUF(struct.pack('=IIQQQQQ', 1, 112, 0, 0, 0, 0, 0) + b'\\0' * 64), 0, -1, -1, 0)",
         control="root"),
    call("keyring", "SC('keyctl', 0, -3 & 0xffffffff, 1)"),
    call("io-uring", "SC('io_uring_setup', 8, BUF(b'\\0' * 120))", ("ENOSYS", "EPERM")),
    call("user-fault", "SC('userfaultfd', 0o2000000)", control="root"),
    call("segment-table", "SC('modify_ldt', 0, BUF(b' ' * 64), 64)"),
    call("port-io", "SC('iopl', 3)", control="", why="the hypervisor or lockdown may refuse it to root"),
    call("accounting", "SC('acct', 0)", control="root"),
    call("fanotify", "SC('fanotify_init', 0, 0)", control="root"),
    Case("splice-pipe", """
def attack(P):
    a, b = os.pipe(), os.pipe()
    os.write(a[1], b"x")
    return SC("splice", a[0], 0, b[1], 0, 1, 0)
""", ("ENOSYS", "EPERM"), "user"),
    Case("splice-page-cache", """
def attack(P):
    a = os.pipe()
    return SC("splice", os.open(os.__file__, os.O_RDONLY), 0, a[1], 0, 16, 0)
""", ("ENOSYS", "EPERM"), "user"),
    Case("gift-pages", """
def attack(P):
    a = os.pipe()
    b = ctypes.create_string_buffer(16)
    return SC("vmsplice", a[1], BUF(struct.pack("=QQ", ctypes.addressof(b), 16)), 1, 0)
""", ("ENOSYS", "EPERM"), "user"),
    Case("send-file", """
def attack(P):
    a, b = socket.socketpair()
    return SC("sendfile", a.fileno(), os.open(os.__file__, os.O_RDONLY), 0, 16)
""", ("ENOSYS", "EPERM"), "user"),
    Case("system-v-memory-of-the-host", """
def attack(P):
    at = SC("shmat", SC("shmget", P["shm_key"], 4096, 0), 0, 0o10000)
    return ctypes.string_at(at, 32)
""", DENIED + ("ENOENT",), "user"),
    call("system-v-memory", "SC('shmget', 0, 4096, 0o1600)", ("ENOSYS", "EPERM")),
    call("message-queue", "SC('mq_open', BUF(b'cloche-canary-%d' % os.getpid()), 0o102, 0o600, 0)",
        ("ENOSYS", "EPERM"), "private"),
    call("no-randomization", "SC('personality', 0x0040000)"),
    call("readable-is-executable", "SC('personality', 0x0400000)"),
    call("second-filter",
        "(SC('prctl', 38, 1, 0, 0, 0), SC('prctl', 22, 2, BUF(struct.pack('=HxxxxxxQ', 1, BUF(struct.pack('=HBBI', 6, 0, 0, 0x7fff0000)).value)), 0, 0))"),
    call("memory-map-of-self", "SC('prctl', 35, 1, 0x400000, 0, 0)", DENIED + ("EINVAL",), "",
        "the value that the kernel takes depends on the layout"),
    call("syscall-dispatch", "SC('prctl', 59, 0, 0, 0, 0)", DENIED + ("EINVAL",)),
    call("name-tracer", "SC('prctl', 0x59616d61, -1, 0, 0, 0)", DENIED + ("EINVAL",), "", "only with Yama"),
    call("huge-pages", "SC('mmap', 0, 2 << 20, 3, 0x40022, -1, 0)", ("ENOMEM", "EPERM"), "",
        "only where huge pages are reserved"),
    call("huge-memory-file", "SC('memfd_create', BUF(b'x'), 4)", ("EPERM", "EINVAL", "ENOSYS"), "root"),
    call("secret-memory", "SC('memfd_secret', 0)", ("ENOSYS", "EPERM"), "", "off unless booted with it"),
    call("merge-pages", "SC('madvise', AREA(), 4096, 12)",
         ("EINVAL", "EPERM")),
    call("priority-inheritance", "SC('futex', BUF(b'\\0' * 8), 6, 0, 0, 0, 0)", ("ENOSYS", "EPERM")),
    call("page-cache-look", "SC('mincore', AREA(), 4096, BUF(b' '))"),
    call("protection-keys", "SC('pkey_alloc', 0, 0)", ("ENOSYS", "EPERM"), "", "not on every processor"),
    call("lease", "SC('fcntl', os.open('/tmp/lease-%d' % os.getpid(), os.O_CREAT | os.O_RDWR, 0o600), 1024, 1)",
         ("EPERM", "EINVAL", "ENOSYS"), "private"),
    Case("extended-attribute", """
def attack(P):
    where = (P["dir"] if os.path.exists(P["dir"]) else "/tmp") + "/attr"
    open(where, "w").close()
    os.setxattr(where, "user.x", b"1")
    return True
""", ("EOPNOTSUPP", "ENOTSUP", "EPERM"), "", "not on every file system"),
]
