# SPDX-License-Identifier: Apache-2.0
"""What every attack needs: the built program, the two kinds of caller, controls outside, residue.

An attack is Python text that defines attack(P).  It returns evidence (anything true) when it got through, something
false when there was nothing to get, and may raise.  The same text runs outside (the control, which must get through, or
the case proves nothing) and inside (which must be held in one of the stated ways).
"""

import ctypes
import dataclasses
import glob
import json
import os
import platform
import pwd
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import pytest

sys.path.insert(1, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "product"))
import harness
import via

HERE = os.path.dirname(os.path.abspath(__file__))
REPO = os.path.dirname(os.path.dirname(HERE))
BIN = os.environ.get("CLOCHE_BIN", os.path.join(REPO, "build", "cloche"))
PYTHON = "/usr/bin/python3"
USER = "cloche-test"
IS_ROOT = os.geteuid() == 0
CLEAN_ENV = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
PR_SET_CHILD_SUBREAPER = 36
PATIENCE = float(os.environ.get("CLOCHE_PATIENCE", "1"))  # how much longer things may take here: an emulated machine is slow
DOORS = via.chosen("local,server")  # by which every attack goes
door = "local"                      # by which requests go now
homes = {}                          # of the servers, by caller

RESULT_FIELDS = {
    "stdout": str, "stderr": str, "return_code": int, "execution_time": (int, float), "status": str, "message": str,
    "signal": (str, type(None)), "script_name": str, "run_id": str, "mode": str, "cpu_time": (int, float),
    "peak_memory_bytes": (int, type(None)), "queue_time": (int, float), "stdout_bytes": int, "stderr_bytes": int,
    "stdout_truncated": bool, "stderr_truncated": bool, "artifacts": list, "denials": (list, type(None)),
    "warnings": list,
}
STATUSES = {"ok", "error", "signaled", "timeout", "cpu_limit", "memory_limit", "output_limit", "cancelled", "rejected",
            "internal_error"}


def need_root():
    if not IS_ROOT:
        pytest.skip("needs: root")


def need_binary(path=None):
    if not os.access(path or BIN, os.X_OK):
        pytest.skip("no built program at %s (build it, or set CLOCHE_BIN)" % (path or BIN))


def need_x86_64():
    if platform.machine() != "x86_64":
        pytest.skip("needs: x86-64, whose system call numbers these are")


def ensure_user():
    """The ordinary user of these tests: made when it is not there."""
    try:
        return pwd.getpwnam(USER)
    except KeyError:
        need_root()
        subprocess.run(["useradd", "--system", "--create-home", "--shell", "/bin/sh", USER], check=True)
        return pwd.getpwnam(USER)


def as_user(who):
    """The words before a command that make it run as @who: "root" or "user"."""
    if who == "root":
        need_root()
        return []
    if not IS_ROOT:
        return []
    user = ensure_user()
    return ["setpriv", "--reuid=%d" % user.pw_uid, "--regid=%d" % user.pw_gid, "--clear-groups", "--"]


def home_of(who):
    if who == "root" or not IS_ROOT:
        return os.path.expanduser("~")
    return ensure_user().pw_dir


def environment(who, **more):
    return {**CLEAN_ENV, "HOME": home_of(who), **more}


# The text around an attack.  SC makes raw system calls, so that no library stands between the attack and the kernel.
PRELUDE = r'''
import ctypes, errno, fcntl, glob, json, mmap, os, resource, signal, socket, stat, struct, subprocess, sys, threading, time
P = json.loads(sys.argv[1])
NR = {"read":0,"mmap":9,"ioctl":16,"madvise":28,"mincore":27,"shmget":29,"shmat":30,"sendfile":40,"socket":41,"sendto":44,
  "setsockopt":54,"clone":56,"fcntl":72,"ptrace":101,"syslog":103,"personality":135,"setpriority":141,
  "sched_setaffinity":203,"sched_setscheduler":144,"mlockall":151,"modify_ldt":154,"pivot_root":155,"prctl":157,
  "adjtimex":159,"chroot":161,"acct":163,"settimeofday":164,"mount":165,"umount2":166,"swapon":167,"sethostname":170,"iopl":172,
  "setdomainname":171,"quotactl":179,"futex":202,"remap_file_pages":216,"mq_open":240,"add_key":248,"keyctl":250,"ioprio_set":251,
  "unshare":272,"splice":275,"tee":276,"vmsplice":278,"move_pages":279,"perf_event_open":298,"fanotify_init":300,"prlimit64":302,
  "name_to_handle_at":303,"open_by_handle_at":304,"setns":308,"process_vm_readv":310,"kcmp":312,"seccomp":317,
  "memfd_create":319,"bpf":321,"userfaultfd":323,"copy_file_range":326,"pkey_alloc":330,"io_uring_setup":425,"open_tree":428,
  "fsopen":430,"pidfd_open":434,"clone3":435,"pidfd_getfd":438,"process_madvise":440,"mount_setattr":442,"memfd_secret":447}
errno.errorcode[95] = "EOPNOTSUPP"   # it has two names; one is enough
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def SC(name, *args):
    ctypes.set_errno(0)
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in args] + [ctypes.c_long(0)] * (6 - len(args))
    r = libc.syscall(ctypes.c_long(NR.get(name, name)), *words)
    if r == -1:
        e = ctypes.get_errno()
        raise OSError(e, os.strerror(e), str(name))
    return r
def BUF(data):
    b = ctypes.create_string_buffer(data, len(data) + 1)
    BUF.keep.append(b)
    return ctypes.cast(b, ctypes.c_void_p)
BUF.keep = []
def AREA(size=1 << 20):
    m = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    BUF.keep.append(m)
    return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(m)))
def IN_CHILD(f, how=None):
    """What @f returns in a child of its own; its exception is raised here."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            out = {"value": f()}
        except OSError as e:
            out = {"errno": e.errno, "text": str(e)}
        except BaseException as e:
            out = {"other": repr(e)}
        os.write(w, json.dumps(out).encode())
        os._exit(0)
    os.close(w)
    data = b""
    while True:
        d = os.read(r, 65536)
        if not d:
            break
        data += d
    os.close(r)
    _, st = os.waitpid(pid, 0)
    if os.WIFSIGNALED(st):
        raise RuntimeError(signal.Signals(os.WTERMSIG(st)).name)
    out = json.loads(data)
    if "errno" in out:
        raise OSError(out["errno"], out["text"])
    if "other" in out:
        raise RuntimeError(out["other"])
    return out["value"]
'''
EPILOGUE = r'''
def _main():
    try:
        found = attack(P)
    except OSError as e:
        out = {"held": errno.errorcode.get(e.errno, type(e).__name__), "text": str(e)}
    except Exception as e:
        out = {"held": type(e).__name__, "text": str(e)}
    else:
        out = {"breach": str(found)} if found else {"held": "nothing"}
    sys.stdout.write("\n" + json.dumps(out) + "\n")
    sys.stdout.flush()
_main()
'''


@dataclasses.dataclass(frozen=True)
class Case:
    """One attack.  @held: each way in which being held may show: errno names, exception names, "nothing"."""
    name: str
    body: str
    held: tuple
    control: str            # "root", "user", "private" (root in throw-away namespaces) or "" with @why
    why: str = ""           # why there is no control
    request: dict = dataclasses.field(default_factory=dict)
    only: tuple = ("root", "user")

    def script(self):
        return PRELUDE + self.body + EPILOGUE


def verdict_of(stdout):
    return json.loads(stdout.strip().splitlines()[-1])


# Namespaces that die with the command, and a writable copy of what an attack wants to write to.
PRIVATE = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--ipc", "--uts", "--net", "--", "/bin/sh", "-ec",
    """
mount -t tmpfs tmpfs /mnt
for d in usr etc; do
    mkdir /mnt/$d.up /mnt/$d.work
    mount -t overlay overlay -o lowerdir=/$d,upperdir=/mnt/$d.up,workdir=/mnt/$d.work /$d
done
"$@"
exit $?
""", "sh"]


def run_control(case, params, folder, timeout=30, **popen):
    """The attack outside.  Return: its verdict."""
    path = os.path.join(folder, case.name + ".py")
    with open(path, "w") as f:
        f.write(case.script())
    os.chmod(path, 0o644)
    if case.control == "private":
        need_root()
        words = PRIVATE
    else:
        words = as_user(case.control)
    who = "root" if case.control == "private" else case.control
    p = subprocess.run(words + [PYTHON, path, json.dumps(params)], env=environment(who, **params.get("env", {})),
                       stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, cwd=folder,
                       start_new_session=True, **popen)
    assert p.returncode == 0, "the control died: %s" % p.stderr
    return verdict_of(p.stdout)


def assert_well_formed(result):
    for name, kind in RESULT_FIELDS.items():
        assert name in result, "%s is missing" % name
        assert isinstance(result[name], kind), "%s is %r" % (name, result[name])
    assert result["status"] in STATUSES
    assert result["execution_time"] >= 0
    if result["status"] == "ok":
        assert result["return_code"] == 0 and result["message"] == "" and result["signal"] is None, result
    else:
        assert result["message"], "no message with status %s" % result["status"]


def caller(who):
    account = pwd.getpwuid(os.geteuid()) if who == "root" or not IS_ROOT else ensure_user()
    if who not in homes:
        homes[who] = tempfile.mkdtemp(prefix="cloche-attack-home-", dir="/var/tmp")
        os.chmod(homes[who], 0o755)
        os.chown(homes[who], account.pw_uid, account.pw_gid)
    return harness.Who(account.pw_name, account.pw_uid, account.pw_gid, pathlib.Path(homes[who]), pathlib.Path(BIN))


def close_doors():
    via.close_all()
    while homes:
        shutil.rmtree(homes.popitem()[1])


def trigger_at(name, request, who, timeout, env):
    """One request by the door @name of a server of @who's.  Return: as trigger()"""
    way = via.way(caller(who), name, env)
    p = way.ask(json.dumps(request).encode(), timeout)
    assert p.returncode == 0, "%s: exit %d\n%s\n%s" % (name, p.returncode, p.stdout[-2000:], p.stderr[-2000:])
    result = json.loads(p.stdout)
    assert_well_formed(result)
    way.assert_nothing_left()
    assert_no_mounts()
    return result


def trigger(request, who="root", timeout=60, options=(), **popen):
    """One request by the door of now.  Return: the result, well-formed, with nothing of the run left behind."""
    need_binary()
    if door != "local":
        assert not options and set(popen) <= {"env"}, "by other doors there are requests alone"
        return trigger_at(door, request, who, timeout, popen.get("env"))
    before = snapshot()
    p = subprocess.run(as_user(who) + [BIN, "trigger", *options], input=json.dumps(request),
                       env=environment(who, **popen.pop("env", {})),
                       capture_output=True, text=True, timeout=timeout, cwd="/", **popen)
    assert p.returncode == 0, "trigger: exit %d\n%s\n%s" % (p.returncode, p.stdout[-2000:], p.stderr[-2000:])
    result = json.loads(p.stdout)
    assert_well_formed(result)
    assert_no_residue(before)
    return result


def begin(request, who):
    """A run at the same place as trigger()'s, left to itself.  Return: its process, which writes the result"""
    there = [] if door == "local" else ["--server", via.way(caller(who), door).server.path]
    p = subprocess.Popen(as_user(who) + [BIN, "trigger", *there], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                         env=environment(who), cwd="/")
    p.stdin.write(json.dumps(request))
    p.stdin.close()
    return p


def run_inside(case, params, who, **more):
    request = {"script_content": case.script(), "script_name": case.name + ".py", "timeout": 20,
               "args": [json.dumps(params)], **case.request}
    return trigger(request, who, **more)


def groups():
    """Every control group folder of ours, with the process that it names."""
    found = set()
    for top in glob.glob("/sys/fs/cgroup/*/") + ["/sys/fs/cgroup/"]:
        for pattern in ("cloche-*", "*/cloche-*", "*/*/cloche-*", "*/*/*/cloche-*"):
            found.update(glob.glob(os.path.join(top, pattern)))
    return found


def is_alive(pid):
    try:
        with open("/proc/%d/stat" % pid) as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def runs_script(pid):
    """It is a script's own process, or a child of it that is no other program."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return b"unnamed_script.py" in f.read()
    except OSError:
        return False


def adopt_orphans():
    """Whoever outlives a command of ours becomes our child, so that nothing can hide from left_processes()."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "become a subreaper")


def descendants():
    """Of ours, and their states; without the servers behind the doors, which begin and end processes as they see fit"""
    servers = via.servers()
    parents = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % entry) as f:
                words = f.read().rsplit(")", 1)[1].split()
            parents[int(entry)] = (int(words[1]), words[0])
        except OSError:
            pass
    found, fresh = {}, {os.getpid()}
    while fresh:
        fresh = {p for p, (parent, _) in parents.items() if parent in fresh} - servers
        found.update((p, parents[p][1]) for p in fresh)
    return found


def left_processes(known):
    """Live descendants that were not there before; the dead ones among them are reaped."""
    left = []
    for pid, state in descendants().items():
        if pid in known:
            continue
        if state in "ZX":
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass
        else:
            left.append(pid)
    return left


def left_groups(before):
    """Groups that are new and whose owner is dead.  Another run's live ones are not ours to judge."""
    left = []
    for path in groups() - before:
        words = os.path.basename(path).split("-")
        if len(words) > 1 and words[1].isdigit() and not is_alive(int(words[1])):
            left.append(path)
    return left


def described(pid):
    """What it is and what it waits for, as far as that can still be seen"""
    def told(name):
        try:
            with open(f"/proc/{pid}/{name}", "rb") as f:
                return f.read(300).replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError as e:
            return e.strerror
    return {name: told(name) for name in ("cmdline", "stat", "wchan", "syscall", "stack")}


def snapshot():
    return set(descendants()), groups()


def assert_no_residue(before, patience=15.0):
    """No process, mount or group of a run is left.  A busy machine has time to clear away."""
    end = time.monotonic() + max(patience, 5 * PATIENCE)  # less than scripts sleep, which must not end by themselves
    while True:
        left = (left_processes(before[0]), left_groups(before[1]))
        if not any(left):
            break
        assert time.monotonic() < end, "left behind: processes %s, groups %s" % ({p: described(p) for p in left[0]}, left[1])
        time.sleep(0.05)
    assert_no_mounts()


def assert_no_mounts():
    with open("/proc/self/mountinfo") as f:
        mounts = [line for line in f if "cloche" in line.replace("cloche-canary", "")]
    assert not [m for m in mounts if REPO not in m], "left behind: mounts %s" % mounts


def compile_c(source, out, *flags):
    if not shutil.which("gcc"):
        pytest.skip("no gcc to build %s with" % source)
    subprocess.run(["gcc", "-O1", "-Wall", "-o", out, source, *flags], check=True)
    return out
