# SPDX-License-Identifier: Apache-2.0
"""Hosts where it is hard: each is some words before a command, which make this host look like that one."""

import dataclasses
import os
import shutil
import subprocess

import pytest

from attack_support import BIN, PYTHON, USER, as_user, ensure_user, environment, need_root

IS_INSTALLED = os.path.realpath(BIN).startswith("/usr/")


@dataclasses.dataclass(frozen=True)
class Host:
    """One row of the table in docs/hosts.md."""
    name: str
    what: str             # for people
    words: object         # (who, tmp folder) -> the words before the command
    callers: tuple = ("root", "user")
    env: object = environment
    is_same: bool = True  # the outcome is the same on every machine that the tests are run on
    says: tuple = ()       # where it stops, the cause and the remedy have these words; () if it must not stop


def mounted(script):
    """Commands of @script in a mount namespace of their own, then the command as the caller."""
    def words(who, folder):
        need_root()
        return ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script + '\nexec "$@"', "sh", *as_user(who)]
    return words


def plainly(*before):
    return lambda who, folder: [*as_user(who), *before]


def denied(*rules):
    return lambda who, folder: [*as_user(who), os.path.join(folder, "deny"), *rules, "--"]


def bubblewrap(who, folder):
    """As agents run a tool's command: a few folders, their own /proc and /dev, no /sys, no /etc/passwd."""
    if not shutil.which("bwrap"):
        pytest.skip("no bubblewrap on this machine")
    words = [*as_user(who), "bwrap", "--new-session", "--die-with-parent", "--setenv", "HOME", "/work-space", "--ro-bind", "/usr", "/usr"]
    for path in ("/bin", "/sbin", "/lib", "/lib64", "/etc/alternatives", "/etc/ssl/certs", "/etc/ld.so.cache"):
        words += ["--ro-bind-try", path, path]
    words += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--dir", "/work-space"]
    if not IS_INSTALLED:
        words += ["--ro-bind", folder, folder]
    return [*words, "--chdir", "/work-space", "--"]


LANDLOCK = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(*args):
    r = libc.syscall(*args)
    if r < 0:
        sys.exit("landlock: " + os.strerror(ctypes.get_errno()))
    return r
all_of_abi_1 = 0x1fff
rules = call(444, struct.pack("Q", all_of_abi_1), 8, 0)
root = os.open("/", os.O_PATH)
call(445, rules, 1, struct.pack("=Qi", all_of_abi_1, root), 0)
call(157, 38, 1, 0, 0, 0)
call(446, rules, 0)
os.close(root)
os.close(rules)
os.execvp(sys.argv[1], sys.argv[1:])
"""


def bare_root(folder):
    """A root folder whose files are this host's /usr."""
    root = os.path.join(folder, "root")
    os.makedirs(root, exist_ok=True)
    for name in ("usr", "proc", "sys", "dev", "tmp", "etc", "run", "var", "root"):
        os.makedirs(os.path.join(root, name), exist_ok=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        if not os.path.lexists(os.path.join(root, name)):
            os.symlink("usr/" + name, os.path.join(root, name))
    for path in (folder, root, *(os.path.join(root, n) for n in os.listdir(root))):
        if not os.path.islink(path):
            os.chmod(path, 0o755)
    return root


started = set()  # callers for whom the engine has started a container


def podman(*options):
    def words(who, folder):
        if not shutil.which("podman"):
            pytest.skip("needs: podman that can start a container (it is not installed)")
        root = bare_root(folder)
        home = os.path.join(folder, "home-" + who)
        os.makedirs(home, exist_ok=True)
        if who == "user" and os.geteuid() == 0:
            user = ensure_user()
            os.chown(home, user.pw_uid, user.pw_gid)
            for path in ("/etc/subuid", "/etc/subgid"):
                if USER + ":" not in open(path).read():
                    with open(path, "a") as f:
                        f.write(f"{USER}:300000:65536\n")
        before = [*as_user(who), "env", "HOME=" + home, "XDG_RUNTIME_DIR=" + home]
        engine = [*before, "podman", "--cgroup-manager", "cgroupfs", "--events-backend", "none"]
        start = [*engine, "run", "--rm", "--interactive", "--network", "none", "--volume", "/usr:/usr:ro"]
        if who not in started:  # also makes what the engine leaves running for its next call
            p = subprocess.run([*start, "--rootfs", root, "/bin/true"], cwd="/", capture_output=True, text=True, timeout=120)
            if p.returncode != 0:
                pytest.skip("needs: podman that can start a container (%s)" % p.stderr.strip()[-200:])
            started.add(who)
        more = [] if IS_INSTALLED else ["--volume", f"{folder}/bin:{folder}/bin:ro"]
        return [*start, *more, *options, "--rootfs", root]
    return words


# What Docker's default filter refuses of what we need (a process without CAP_SYS_ADMIN).
DOCKER = ("syscall:clone3=ENOSYS", "syscall:unshare=EPERM", "syscall:setns=EPERM", "syscall:mount=EPERM", "syscall:umount2=EPERM",
          "syscall:fsopen=EPERM", "syscall:open_tree=EPERM", "syscall:sethostname=EPERM", "syscall:pivot_root=EPERM")
ENGINES = ("Docker", "seccomp=unconfined", "podman", "unmask=ALL", "Kubernetes", "seccompProfile")

PROFILE = """
profile cloche-test-container flags=(attach_disconnected) {
  capability,
  network,
  signal,
  ptrace,
  unix,
  umount,
  file,
}
"""


def apparmor(who, folder):
    """A profile that allows all that we need but mounting, as container engines' own do."""
    if not shutil.which("aa-exec") or subprocess.run(["aa-enabled", "--quiet"]).returncode != 0:
        pytest.skip("needs: apparmor in the kernel, and its tools")
    need_root()
    subprocess.run(["apparmor_parser", "-r", "-K"], input=PROFILE, text=True, check=True)
    return [*as_user(who), "aa-exec", "-p", "cloche-test-container", "--"]


def no_environment(who, **more):
    return more


HOSTS = [
    Host("bubblewrap", "inside bubblewrap, as agents run a tool's command", bubblewrap),
    Host("proc-masked", "parts of `/proc` covered, as in most containers", denied("proc-masked")),
    Host("no-sys", "without `/sys`", denied("no-sys")),
    Host("no-userns", "user namespaces forbidden (`user.max_user_namespaces=0`)", denied("sysctl:max_user_namespaces=0"),
         says=("user wall", "raise it", "user.max_user_namespaces")),
    Host("no-netns", "network namespaces forbidden (`user.max_net_namespaces=0`)", denied("sysctl:max_net_namespaces=0"),
         says=("network wall", "raise it", "user.max_net_namespaces")),
    Host("chroot", "in a chroot", denied("chroot"), callers=("root",), says=("user wall", "chroot", "pivot_root")),
    Host("seccomp", "a system call filter is on already", denied("syscall:prctl:9999=EPERM")),
    Host("filter", "under a filter such as Docker's own: no namespaces, no mounts", denied(*DOCKER),
         says=("user wall", "system call filter", *ENGINES)),
    Host("filter-names", "under a filter such as podman's own: a host name can't be set", denied("syscall:sethostname=EPERM"),
         says=("uts wall", "init-hostname", "system call filter", *ENGINES)),
    Host("landlock", "Landlock is on already", plainly(PYTHON, "-c", LANDLOCK), says=("mount wall", "Landlock", "start cloche outside")),
    Host("apparmor", "in an AppArmor profile such as Docker's own: no mounts", apparmor, is_same=False,
         says=("mount wall", "AppArmor", "apparmor=unconfined", "appArmorProfile", *ENGINES)),
    Host("no-environment", "an empty environment, not even `PATH` and `HOME`", plainly("env", "-i"), env=no_environment),
    Host("read-only", "a read-only root", mounted("mount -o remount,bind,ro /")),
    Host("full-tmp", "`/tmp` is full", mounted("mount -t tmpfs -o size=64k tmpfs /tmp; cat /dev/zero >/tmp/full 2>/dev/null || :")),
    Host("noexec-tmp", "`/tmp` is `noexec`", mounted("mount -t tmpfs -o noexec,nosuid tmpfs /tmp")),
    Host("nice", "under `nice -n 19`", plainly("nice", "-n", "19")),
    Host("descriptors", "64 descriptors (`ulimit -n 64`)", plainly("prlimit", "--nofile=64:64", "--")),
    Host("podman", "in a container with an engine's own settings (podman)", podman(), is_same=False,
         says=("wall can't be had here", *ENGINES)),
    Host("podman-open", "in a container with the settings of the remedy (podman)",
         podman("--security-opt", "seccomp=unconfined", "--security-opt", "unmask=ALL", "--security-opt", "apparmor=unconfined"),
         is_same=False),
]
