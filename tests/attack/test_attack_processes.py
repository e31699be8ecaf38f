# SPDX-License-Identifier: Apache-2.0
"""Other processes, and outliving the run."""

import os
import subprocess
import time

import pytest

from attack_support import Case, PATIENCE, PYTHON, as_user, environment, is_alive, need_binary, trigger
from both import test_control, test_inside  # noqa: F401

NOBODY = ("ESRCH", "EPERM", "nothing")
DENIED = ("EPERM", "ENOSYS", "EACCES")

SIBLING = """
def sleeper():
    pid = os.fork()
    if pid == 0:
        time.sleep(30)
        os._exit(0)
    return pid
"""

CASES = [
    Case("signal-host-process", """
def attack(P):
    os.kill(P["pid"], 0)
    return True
""", NOBODY, "user"),
    Case("find-host-process", """
def attack(P):
    return [p for p in glob.glob("/proc/[0-9]*/stat") if int(p.split("/")[2]) == P["pid"]]
""", ("nothing",), "user"),
    Case("pidfd-of-host-process", """
def attack(P):
    return SC("pidfd_open", P["pid"], 0) > 0
""", NOBODY + ("EINVAL",), "user"),
    Case("ptrace-host-process", SIBLING + """
def attack(P):
    SC("ptrace", 16, P["pid"], 0, 0)
    os.waitpid(P["pid"], 0x40000000)
    SC("ptrace", 17, P["pid"], 0, 0)
    return True
""", NOBODY, "user"),
    Case("ptrace-sibling", SIBLING + """
def attack(P):
    pid = sleeper()
    try:
        SC("ptrace", 16, pid, 0, 0)
        return True
    finally:
        os.kill(pid, 9)
""", DENIED, "user"),
    Case("ptrace-traceme", """
def attack(P):
    return IN_CHILD(lambda: SC("ptrace", 0, 0, 0, 0) == 0)
""", DENIED, "user"),
    Case("read-memory-of-sibling", SIBLING + """
def attack(P):
    pid = sleeper()
    try:
        there = ctypes.create_string_buffer(b"abcdefgh")
        here = ctypes.create_string_buffer(8)
        vec = lambda b: BUF(struct.pack("=QQ", ctypes.addressof(b), 8))
        return SC("process_vm_readv", pid, vec(here), 1, vec(there), 1, 0)
    finally:
        os.kill(pid, 9)
""", DENIED, "user"),
    Case("descriptor-of-sibling", SIBLING + """
def attack(P):
    pid = sleeper()
    try:
        return SC("pidfd_getfd", SC("pidfd_open", pid, 0), 1, 0) > 0
    finally:
        os.kill(pid, 9)
""", DENIED, "user"),
    Case("compare-with-sibling", SIBLING + """
def attack(P):
    pid = sleeper()
    try:
        return SC("kcmp", os.getpid(), pid, 1, 0, 0) >= 0
    finally:
        os.kill(pid, 9)
""", DENIED, "user"),
    Case("advise-sibling", SIBLING + """
def attack(P):
    at = AREA().value
    pid = sleeper()
    try:
        return SC("process_madvise", SC("pidfd_open", pid, 0), BUF(struct.pack("=QQ", at, 1 << 20)), 1, 20, 0) >= 0
    finally:
        os.kill(pid, 9)
""", DENIED, "root"),
    Case("child-of-the-supervisor", """
def attack(P):
    pid = SC("clone", 0x8000 | 17, 0, 0, 0, 0)  # CLONE_PARENT: a sibling, which we could not reap
    if pid == 0:
        os._exit(0)
    return pid > 0
""", ("EPERM",), "user"),
    Case("negative-nice", """
def attack(P):
    SC("setpriority", 0, 0, -10 & 0xffffffff)
    return True
""", ("EACCES", "EPERM"), "root"),
    Case("real-time", """
def attack(P):
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    return True
""", ("EPERM", "EINVAL"), "root"),
    Case("real-time-io", """
def attack(P):
    SC("ioprio_set", 1, 0, (1 << 13) | 4)
    return True
""", ("EPERM", "ENOSYS"), "root"),
    Case("raise-own-limit", """
def attack(P):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard + 1, hard + 1))
    return True
""", ("EPERM", "ValueError"), "", "root of a container may lack CAP_SYS_RESOURCE"),
    Case("lock-memory", """
def attack(P):
    m = mmap.mmap(-1, 64 << 20)
    SC("mlockall", 1)
    return True
""", ("EPERM", "ENOMEM", "ENOSYS"), "root"),
    Case("program-from-memory", """
def attack(P):
    fd = SC("memfd_create", BUF(b"x"), 0)
    os.write(fd, open("/bin/cat", "rb").read())
    out = subprocess.run(["/proc/self/fd/%d" % fd, P["secret"]], pass_fds=[fd], capture_output=True).stdout
    return len(out) > 0
""", ("nothing", "ENOSYS", "ENOENT", "EACCES"), "user"),
    Case("interpreter-anew", """
def attack(P):
    code = "import sys; sys.stdout.write(open(sys.argv[1]).read())"
    out = subprocess.run([sys.executable, "-I", "-S", "-E", "-c", code, P["secret"]], capture_output=True).stdout
    return len(out) > 0
""", ("nothing",), "user"),
    Case("shell-reads-host", """
def attack(P):
    return len(subprocess.run("cat " + P["secret"], shell=True, capture_output=True).stdout) > 0
""", ("nothing", "ENOENT"), "user"),
    Case("foreign-keyring", """
def attack(P):
    key = SC("add_key", BUF(b"user"), BUF(b"cloche-canary"), BUF(b"x"), 1, -3 & 0xffffffff)
    return key > 0
""", DENIED, "user"),
]

DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        CLOSE
        time.sleep(300)
    os._exit(0)
os.wait()
print("main is done", flush=True)
"""


@pytest.mark.parametrize("how", ["keeps-pipes", "closes-pipes"])
def test_daemon_is_dead(who, how):
    """A daemon does not outlive the run, and does not hold the result back."""
    need_binary()
    script = DAEMON.replace("CLOSE", "os.closerange(0, 64)" if how == "closes-pipes" else "pass")
    start = time.monotonic()
    result = trigger({"script_content": script, "timeout": 100}, who, timeout=150)  # looks for residue
    assert (result["status"], result["stdout"]) == ("ok", "main is done\n"), result
    assert time.monotonic() - start < 25


def test_daemon_control():
    """Outside, the same daemon goes on living."""
    script = DAEMON.replace("CLOSE", "print(os.getpid(), flush=True); os.closerange(0, 64)")
    out = subprocess.run(as_user("user") + [PYTHON, "-c", script], capture_output=True, text=True, timeout=10,
                         env=environment("user")).stdout
    pid = int(next(line for line in out.splitlines() if line.isdigit()))
    assert is_alive(pid)
    os.kill(pid, 9)


def test_kill_everybody(who, canaries):
    """kill(-1, SIGKILL) reaches the processes of the run alone."""
    need_binary()
    canaries.reset()
    canaries.start_victim(who)
    script = """
import os, signal, time
for i in range(3):
    if os.fork() == 0:
        time.sleep(60)
os.kill(-1, signal.SIGKILL)
n = 0
while n < 3:
    os.wait()
    n += 1
print("alone")
"""
    try:
        result = trigger({"script_content": script, "timeout": 10}, who)
        assert (result["status"], result["stdout"]) == ("ok", "alone\n"), result
        canaries.assert_untouched()
    finally:
        canaries.end_victim()


@pytest.mark.parametrize("target", ["0", "-os.getpgid(0)", "os.getpid()", "os.getpgrp()"])
def test_kill_own_group(who, target):
    """A script that kills its own group is told as killed, and nobody else is hit."""
    need_binary()
    result = trigger({"script_content": "import os\nos.kill(%s, 9)" % target, "timeout": 10}, who)
    assert (result["status"], result["return_code"], result["signal"]) == ("signaled", -9, "SIGKILL"), result


@pytest.mark.parametrize("how", [
    "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    "import signal, time\nfor s in range(1, 65):\n    try: signal.signal(s, signal.SIG_IGN)\n    except (OSError, ValueError): pass\n"
    "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: time.sleep(1)",
    "import atexit, time\natexit.register(time.sleep, 60)",
    "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()",
    "while True: pass",
], ids=["stops-itself", "ignores-all", "atexit", "thread", "loop"])
def test_cannot_outlast_timeout(who, how):
    need_binary()
    start = time.monotonic()
    result = trigger({"script_content": how, "timeout": 0.5}, who)
    assert (result["status"], result["return_code"]) == ("timeout", -9), result
    assert 0.5 <= result["execution_time"] < 8
    assert time.monotonic() - start < 25


@pytest.mark.parametrize("bomb", [
    "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "import threading, time\nwhile True:\n    try: threading.Thread(target=time.sleep, args=(60,)).start()\n    except RuntimeError: time.sleep(0.01)",
    "import subprocess\nwhile True:\n    try: subprocess.Popen(['sleep', '60'])\n    except OSError: pass",
    "import os\nwhile True:\n    try:\n        if os.fork() == 0:\n            os.setsid()\n            if os.fork(): os._exit(0)\n    except OSError: pass",
], ids=["fork", "threads", "spawn", "double-fork"])
def test_process_bomb(who, bomb):
    """Ends at the wall clock with everything dead; a neighbour still gets its turn."""
    need_binary()
    start = time.monotonic()
    result = trigger({"script_content": bomb, "timeout": 1, "limits": {"processes": 24}}, who, timeout=30)
    assert result["status"] in ("timeout", "memory_limit", "cpu_limit"), result
    assert time.monotonic() - start < 28


def test_zombies(who):
    """Thousands of zombies of orphans are reaped by init, as soon as it gets a CPU."""
    need_binary()
    script = """
import os, time
def fork():
    for _ in range(1000):   # five seconds: if nobody reaps, no other try helps
        try: return os.fork()
        except BlockingIOError: time.sleep(0.005)
    return os.fork()
done = 0
while done < 3000:
    pid = fork()
    if pid == 0:
        if fork() == 0:
            os._exit(0)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    done += 1
print(done)
"""
    result = trigger({"script_content": script, "timeout": 60 * PATIENCE, "limits": {"processes": 32}}, who, timeout=90 * PATIENCE)
    assert (result["status"], result["stdout"]) == ("ok", "3000\n"), result
