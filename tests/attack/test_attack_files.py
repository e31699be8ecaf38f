# SPDX-License-Identifier: Apache-2.0
"""Reading and writing what belongs to the host."""

from attack_support import Case
from both import test_control, test_inside  # noqa: F401

ABSENT = ("ENOENT",)
SHUT = ("ENOENT", "EACCES", "EPERM")
READ_ONLY = ("EROFS", "EACCES", "EPERM", "ENOENT")

CASES = [
    Case("read-host-file", """
def attack(P):
    return open(P["secret"]).read()
""", ABSENT, "user"),
    Case("read-shadow", """
def attack(P):
    return "root:" in open("/etc/shadow").read()
""", ABSENT, "root"),
    Case("list-root-home", """
def attack(P):
    return ["."] + os.listdir("/root")
""", ABSENT, "root"),
    Case("list-homes-var-run", """
def attack(P):
    return [d for d in ("/home", "/var", "/run", "/sys/kernel", "/boot", "/mnt", "/srv", "/opt", "/media") if os.path.exists(d)]
""", ("nothing",), "user"),
    Case("users-of-the-host", """
def attack(P):
    return P["user"] in open("/etc/passwd").read()
""", ("nothing", "ENOENT"), "user"),
    Case("machine-id", """
def attack(P):
    return open("/etc/machine-id").read()
""", ABSENT, "user"),
    Case("host-name", """
def attack(P):
    return socket.gethostname() == P["hostname"]
""", ("nothing",), "user"),
    Case("configuration-of-the-host", """
def attack(P):
    names = ("fstab", "cloche", "ssh", "sudoers", "crontab", "apt", "shadow", "group-", "systemd")
    return [n for n in names if os.path.exists("/etc/" + n)]
""", ("nothing",), "user"),
    Case("environ-of-init", """
def attack(P):
    return open("/proc/1/environ", "rb").read() or True
""", SHUT, "private"),
    Case("memory-of-init", """
def attack(P):
    return open("/proc/1/mem", "rb")
""", SHUT, "private"),
    Case("root-of-init", """
def attack(P):
    return os.listdir("/proc/1/root")
""", SHUT, "private"),
    Case("descriptors-of-init", """
def attack(P):
    return os.listdir("/proc/1/fd")
""", SHUT, "private"),
    Case("environ-of-a-host-process", """
def attack(P):
    return open("/proc/%d/environ" % P["pid"], "rb").read()
""", ABSENT, "user"),
    Case("dots-above-the-root", """
def attack(P):
    for start in ("/proc/self/root", "/proc/self/cwd", "/tmp/", "/dev/fd"):
        try:
            return open(start + "/.." * 40 + P["secret"]).read()
        except OSError as e:
            last = e
    raise last
""", ABSENT, "user"),
    Case("dots-by-descriptor", """
def attack(P):
    d = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(64):
        d = os.open("..", os.O_RDONLY | os.O_DIRECTORY, dir_fd=d)
    return os.read(os.open(P["secret"].lstrip("/"), os.O_RDONLY, dir_fd=d), 99)
""", ABSENT, "user"),
    Case("machine-wide-proc", """
def attack(P):
    names = "sysrq-trigger kcore kmsg kallsyms keys timer_list key-users modules interrupts sys/kernel/core_pattern sys/kernel/ns_last_pid net/../1/maps"
    return [n for n in names.split() if os.access("/proc/" + n, os.F_OK)]
""", ("nothing",), "root"),
    Case("core-pattern", """
def attack(P):
    return open("/proc/sys/kernel/core_pattern", "r+")
""", SHUT + ("EROFS",), "root"),
    Case("devices", """
def attack(P):
    keep = {"null", "zero", "full", "random", "urandom", "shm", "fd", "stdin", "stdout", "stderr"}
    return sorted(set(os.listdir("/dev")) - keep)
""", ("nothing",), "user"),
    Case("sysfs", """
def attack(P):
    return [p for p in ("/sys/class", "/sys/block", "/sys/fs/cgroup", "/sys/firmware", "/sys/module") if os.path.exists(p)]
""", ("nothing",), "user"),
    Case("shared-memory-of-the-host", """
def attack(P):
    return open(P["posix_shm"]).read()
""", ABSENT, "user"),
    Case("secret-of-the-caller-in-memory", """
def attack(P):
    # The secret itself must not be spelt anywhere here, or it would be found in this script's own memory.
    hits, name, backwards = 0, b"SECRET_OF_THE_CALLER=", P["token_reversed"].encode()
    with open("/proc/self/mem", "rb", 0) as mem:
        for line in open("/proc/self/maps"):
            where, mode = line.split()[:2]
            if mode[0] != "r" or "[v" in line:
                continue
            a, b = (int(x, 16) for x in where.split("-"))
            try:
                mem.seek(a)
                data = mem.read(b - a)
            except (OSError, OverflowError):
                continue
            at = data.find(name)
            while at >= 0:
                found = data[at + len(name):at + len(name) + len(backwards)]
                hits += found[::-1] == backwards
                at = data.find(name, at + 1)
    return hits
""", ("nothing",), "user"),
    Case("environment-of-the-caller", """
def attack(P):
    return os.environ.get("SECRET_OF_THE_CALLER")
""", ("nothing",), "user"),
    Case("write-host-file", """
def attack(P):
    with open(P["write_me"], "a") as f:
        return f.write("taken")
""", ABSENT, "user"),
    Case("delete-host-file", """
def attack(P):
    os.unlink(P["write_me"])
    return True
""", ABSENT, "user"),
    Case("link-to-host-file", """
def attack(P):
    os.chdir(P["dir"])
    os.symlink(P["secret"], "link")
    return open("link").read()
""", ABSENT, "user"),
    Case("link-from-own-folder", """
def attack(P):
    os.chdir(P["dir"] if os.path.exists(P["dir"]) else "/tmp")
    os.symlink(P["secret"], "link-%d" % os.getpid())
    return open("link-%d" % os.getpid()).read()
""", ABSENT, "user"),
    Case("new-files-in-the-runtime", """
def attack(P):
    made = []
    last = None
    for d in ("/usr", "/usr/lib", "/usr/bin", os.path.dirname(os.__file__), "/usr/lib/python3/dist-packages", "/etc"):
        try:
            with open(d + "/cloche-was-here", "w"):
                made.append(d)
        except OSError as e:
            last = e
    if not made:
        raise last
    return made
""", READ_ONLY, "private"),
    Case("new-files-at-the-top", """
def attack(P):
    where = ["/mnt", "/usr"] if os.path.exists("/mnt") else ["/", "/dev", "/proc", "/etc", "/usr"]
    made = []
    last = None
    for d in where:
        try:
            with open(d + "/cloche-was-here", "w"):
                made.append(d)
        except OSError as e:
            last = e
    if not made:
        raise last
    return made
""", READ_ONLY, "private"),
    Case("library-in-place", """
def attack(P):
    return open(os.__file__, "r+b")
""", READ_ONLY, "private"),
    Case("mode-of-the-runtime", """
def attack(P):
    os.chmod(os.__file__, 0o777)
    return True
""", READ_ONLY, "private"),
    Case("device-node-char", """
def attack(P):
    os.mknod("/tmp/null-%d" % os.getpid() if not os.path.exists("/mnt") else "/mnt/null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    return True
""", ("EPERM", "EACCES"), "private"),
    Case("device-node-block", """
def attack(P):
    os.mknod("/tmp/disk-%d" % os.getpid() if not os.path.exists("/mnt") else "/mnt/disk", stat.S_IFBLK | 0o666, os.makedev(8, 0))
    return True
""", ("EPERM", "EACCES"), "private"),
    Case("setuid-program", """
def attack(P):
    out = subprocess.run([P["suid"]], capture_output=True, text=True).stdout
    return "euid=0" in out or "uid=0" in out
""", ABSENT, "user"),
    Case("handle-of-a-host-file", """
def attack(P):
    mount_id, h = ctypes.c_int(0), BUF(struct.pack("=Ii", 128, 0) + b"\\0" * 128)
    SC("name_to_handle_at", -100, BUF(P["secret"].encode()), h, ctypes.byref(mount_id), 0)
    d = os.open("/", os.O_RDONLY)
    return os.read(SC("open_by_handle_at", d, h, os.O_RDONLY), 99)
""", ("EPERM", "ENOSYS"), "root"),
    Case("group-of-the-host", """
def attack(P):
    for top in ("/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified"):
        try:
            return open(top + "/cgroup.procs", "r+")
        except OSError as e:
            last = e
    raise last
""", ABSENT, "root"),
]
