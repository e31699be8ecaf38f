# SPDX-License-Identifier: Apache-2.0
"""PID 1 of the sandbox is out of the script's reach: it can't be killed, stopped, traced, read or slowed down."""

import json
import os
import subprocess

from attack_support import PRELUDE, PYTHON, need_binary, need_root, need_x86_64, trigger

ATTACKS = PRELUDE + r"""
limit = BUF(struct.pack("=QQ", 64, 64))
def word(path, mode):
    os.close(os.open(path, mode))
def vec():
    here = ctypes.create_string_buffer(8)
    BUF.keep.append(here)
    return BUF(struct.pack("=QQ", ctypes.addressof(here), 8)), BUF(struct.pack("=QQ", 0x400000, 8))
def attach():
    SC("ptrace", 16, 1, 0, 0)
    os.waitpid(1, 0x40000000)
    SC("ptrace", 17, 1, 0, 0)
table = {
    "ptrace attach": attach,
    "ptrace seize": lambda: SC("ptrace", 0x4206, 1, 0, 0),
    "process_vm_readv": lambda: SC("process_vm_readv", 1, vec()[0], 1, vec()[1], 1, 0),
    "pidfd_getfd": lambda: SC("pidfd_getfd", SC("pidfd_open", 1, 0), 1, 0),
    "kcmp": lambda: SC("kcmp", 1, os.getpid(), 1, 0, 0),
    "setns mount": lambda: SC("setns", SC("pidfd_open", 1, 0), 0x20000),
    "setns user": lambda: SC("setns", SC("pidfd_open", 1, 0), 0x10000000),
    "process_madvise": lambda: SC("process_madvise", SC("pidfd_open", 1, 0), vec()[1], 1, 20, 0),
    "move_pages": lambda: SC("move_pages", 1, 0, 0, 0, 0, 0),
    "migrate_pages": lambda: SC(256, 1, 0, 0, 0),
    "prlimit set": lambda: SC("prlimit64", 1, 7, limit, 0),
    "prlimit get": lambda: SC("prlimit64", 1, 7, 0, limit),
    "setpriority": lambda: SC("setpriority", 0, 1, 19),
    "setpriority high bits": lambda: SC("setpriority", 1 << 32, 1 | 1 << 32, 19),
    "sched_setaffinity": lambda: SC("sched_setaffinity", 1, 8, BUF(struct.pack("=Q", 1))),
    "sched_setscheduler": lambda: SC("sched_setscheduler", 1, 5, BUF(struct.pack("=i", 0))),
    "sched_setparam": lambda: SC(142, 1, BUF(struct.pack("=i", 0))),
    "sched_setattr": lambda: SC(314, 1, BUF(struct.pack("=IIQiIQQQ", 48, 5, 0, 0, 0, 0, 0, 0)), 0),
    "ioprio_set": lambda: SC("ioprio_set", 1, 1, 3 << 13),
    "get_robust_list": lambda: SC(274, 1, vec()[0], vec()[1]),
    "open environ": lambda: word("/proc/1/environ", os.O_RDONLY),
    "open maps": lambda: word("/proc/1/maps", os.O_RDONLY),
    "open mem": lambda: word("/proc/1/mem", os.O_RDONLY),
    "open mem for writing": lambda: word("/proc/1/mem", os.O_RDWR),
    "open fd 1": lambda: word("/proc/1/fd/1", os.O_WRONLY),
    "open root": lambda: word("/proc/1/root", os.O_RDONLY),
    "open cwd": lambda: word("/proc/1/cwd", os.O_RDONLY),
    "open ns/mnt": lambda: word("/proc/1/ns/mnt", os.O_RDONLY),
    "open exe": lambda: word("/proc/1/exe", os.O_RDONLY),
    "oom_score_adj": lambda: word("/proc/1/oom_score_adj", os.O_WRONLY),
    "read status": lambda: word("/proc/1/status", os.O_RDONLY),
}
out = {}
for name, f in table.items():
    try:
        f()
        out[name] = "OK"
    except OSError as e:
        out[name] = errno.errorcode.get(e.errno, str(e.errno))
print(json.dumps(out), flush=True)
"""

# No effect may be seen, whatever the call said: in a single-uid map a signal to init is accepted and dropped.
SIGNALS = """
import ctypes, os, signal, subprocess, sys, time
for s in list(range(1, 32)) + [34, 64]:
    try: os.kill(1, s)
    except OSError: pass
try: signal.pidfd_send_signal(os.pidfd_open(1), signal.SIGKILL)
except OSError: pass
try: ctypes.CDLL(None).syscall(129, 1, 9, 0)
except OSError: pass
if os.fork() == 0:
    if os.fork() == 0:
        time.sleep(0.3)
        os._exit(0)
    os._exit(0)
os.wait()
time.sleep(1)
print("there", subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True, text=True).stdout)
"""


def test_table_control(folder):
    """As PID 1's equal, dumpable: ptrace, memory, descriptors and limits are all there to be taken."""
    need_root()
    need_x86_64()
    path = os.path.join(folder, "attacks.py")
    with open(path, "w") as f:
        f.write(ATTACKS)
    out = subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "/bin/sh", "-c", '"$@"; exit $?', "sh",
        PYTHON, path, "{}"],
                         capture_output=True, text=True, check=True, timeout=20).stdout
    got = json.loads(out)
    works = {n for n, verdict in got.items() if verdict == "OK"}
    assert works >= {"ptrace attach", "pidfd_getfd", "kcmp", "prlimit set", "setpriority", "sched_setaffinity",
        "sched_setscheduler",
                     "open environ", "open mem for writing", "open root", "open cwd", "oom_score_adj"}, got


def test_table(who):
    need_binary()
    need_x86_64()
    result = trigger({"script_content": ATTACKS, "args": ["{}"], "timeout": 10}, who)
    assert result["status"] == "ok", result
    got = json.loads(result["stdout"])
    assert set(got.values()) <= {"EPERM", "EACCES", "ENOENT", "ENOSYS", "ESRCH"}, got
    assert got["prlimit set"] == "EPERM"


def test_signals_do_nothing(who):
    """After every signal, init is there, and reaps."""
    need_binary()
    result = trigger({"script_content": SIGNALS, "timeout": 10}, who)
    assert (result["status"], result["stdout"]) == ("ok", "there 1\n\n"), result
