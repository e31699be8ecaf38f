# SPDX-License-Identifier: Apache-2.0
"""Bombs.  They get no control: that they work is plain, and nobody wants to see it."""

import glob
import json
import subprocess
import time

import pytest

from attack_support import (BIN, PATIENCE, as_user, descendants, environment, need_binary, need_root, runs_script,
                            trigger)

MiB = 1 << 20
SMALL = {"memory_bytes": 128 * MiB}

MEMORY = {
    "bytearray": "b = bytearray(8 << 30)\nfor i in range(0, len(b), 4096): b[i] = 1",
    "slow-leak": "import time\nkeep = []\nwhile True:\n    keep.append(b'x' * (1 << 20))\n    time.sleep(0.005)",
    "list-doubling": "a = [0]\nwhile True: a += a",
    "untouched-then-touched": "import mmap\nm = mmap.mmap(-1, 2 << 30, mmap.MAP_PRIVATE | 0x4000 | mmap.MAP_ANONYMOUS)\n"
                              "for i in range(0, len(m), 4096): m[i] = 1",
    "children-share": "import os, time\nfor i in range(8):\n    if os.fork() == 0:\n        b = bytearray(40 << 20)\n"
                      "        for i in range(0, len(b), 4096): b[i] = 1\n        time.sleep(60)\ntime.sleep(60)",
    "dev-shm": "f = open('/dev/shm/x', 'wb')\nkeep = []\nwhile True:\n    try: f.write(b'x' * (1 << 20)); f.flush()\n"
               "    except OSError: keep.append(b'x' * (1 << 20))",
}


@pytest.mark.parametrize("name", MEMORY)
def test_memory_bomb(who, name):
    """Each way to take memory ends with the run, by the limit of the whole sandbox."""
    need_binary()
    start = time.monotonic()
    result = trigger({"script_content": MEMORY[name], "timeout": 30, "limits": SMALL}, who)
    # An allocation that is refused at once is an honest end too.
    refused = "MemoryError" in result["stderr"] or "Cannot allocate memory" in result["stderr"]
    assert result["status"] == "memory_limit" or refused, result
    assert time.monotonic() - start < 20


def test_memory_files_are_bounded(who):
    """A memory file is charged like other memory, or is refused."""
    need_binary()
    script = """
import os
fds = []
while True:
    try:
        fds.append(os.memfd_create("x"))
    except OSError as e:
        print("refused", e.errno)
        break
    try:
        while True:
            os.write(fds[-1], b"x" * (1 << 20))
    except OSError as e:
        if e.errno != 27:   # one file ends at the limit on its size; then the next
            raise
"""
    result = trigger({"script_content": script, "timeout": 30, "limits": SMALL}, who)
    assert result["status"] == "memory_limit" or result["stdout"] == "refused 38\n", result


def test_pipes_are_bounded(who):
    """Pipe buffers end at the limit on descriptors or memory."""
    need_binary()
    script = """
import fcntl, os
n = 0
try:
    while True:
        r, w = os.pipe()
        try: fcntl.fcntl(w, 1031, 1 << 20)
        except OSError: pass
        os.set_blocking(w, False)
        try:
            while True: os.write(w, b"x" * 65536)
        except BlockingIOError: pass
        n += 1
except OSError as e:
    print(e.errno, n)
"""
    result = trigger({"script_content": script, "timeout": 30, "limits": {**SMALL, "open_files": 256}}, who)
    assert result["status"] == "memory_limit" or result["stdout"].startswith("24 "), result


def test_disk_is_bounded(who):
    """Filling /tmp ends with ENOSPC at the quota."""
    need_binary()
    script = """
n = 0
try:
    with open("/tmp/big", "wb", 0) as f:
        while True: n += f.write(b"x" * (1 << 20))
except OSError as e:
    print(e.errno, n >> 20)
"""
    result = trigger({"script_content": script, "timeout": 30, "limits": {"disk_bytes": 32 * MiB}}, who)
    code, size = map(int, result["stdout"].split())
    assert code == 28 and 24 <= size <= 32, result


def test_file_count_is_bounded(who):
    """Empty files end with ENOSPC at the quota of inodes, and go away fast."""
    need_binary()
    script = """
n = 0
try:
    while True:
        open("/tmp/f%d" % n, "w").close()
        n += 1
except OSError as e:
    print(e.errno, n)
"""
    start = time.monotonic()
    result = trigger({"script_content": script, "timeout": 30, "limits": {"disk_files": 1000}}, who)
    code, count = map(int, result["stdout"].split())
    assert code == 28 and 900 <= count <= 1000, result
    assert time.monotonic() - start < 20


@pytest.mark.parametrize("body", [
    "import os\nos.truncate(os.open('/tmp/a', os.O_CREAT | os.O_RDWR), 1 << 50)",
    "import os\nos.posix_fallocate(os.open('/tmp/a', os.O_CREAT | os.O_RDWR), 0, 1 << 40)",
], ids=["sparse", "allocate"])
def test_huge_file(who, body):
    """A sparse petabyte, even as an artifact, costs nobody anything."""
    need_binary()
    start = time.monotonic()
    result = trigger({"script_content": body, "artifacts": ["*"], "timeout": 10}, who)
    assert result["status"] in ("ok", "error"), result
    for a in result["artifacts"]:
        assert "left_out" in a or a["size"] <= 8 * MiB
    assert time.monotonic() - start < 20


def test_deep_and_odd_names(who):
    """Folders without end, names that are no text, modes that shut the owner out: the next run starts as ever."""
    need_binary()
    script = r"""
import os
for name in (b"\xff\xfe", b"new\nline", b"a" * 255, b"-rf", b" "):
    open(b"/tmp/" + name, "w").close()
depth = 0
try:
    while depth < 3000:
        os.mkdir("d"); os.chdir("d"); depth += 1
except OSError: pass
os.chmod("/tmp/d", 0); os.chmod("/tmp", 0)
print(depth > 1000)
"""
    start = time.monotonic()
    result = trigger({"script_content": script, "artifacts": ["**/*"], "timeout": 20}, who)
    assert (result["status"], result["stdout"]) == ("ok", "True\n"), result
    assert time.monotonic() - start < 25
    assert trigger({"script_content": "import os; print(os.listdir('/tmp'))", "script_name": "s.py"},
        who)["stdout"] == "['s.py']\n"


def test_descriptors_are_bounded(who):
    need_binary()
    script = """
import os
n = 0
try:
    while True: os.open("/dev/null", os.O_RDONLY); n += 1
except OSError as e:
    print(e.errno, n)
"""
    result = trigger({"script_content": script, "limits": {"open_files": 100}}, who)
    code, count = map(int, result["stdout"].split())
    assert code == 24 and count < 100, result


FLOODS = {
    "stdout": "import os\nwhile True: os.write(1, b'x' * 65536)",
    "stderr": "import os\nwhile True: os.write(2, b'x' * 65536)",
    "both-small": "import os\nwhile True:\n    os.write(1, b'a')\n    os.write(2, b'b')",
    "one-write": "import sys\nsys.stdout.write('y' * (100 << 20))",
    "not-text": "import os\nwhile True: os.write(1, bytes(range(256)) * 64)",
}


@pytest.mark.parametrize("name", FLOODS)
def test_output_flood(who, name):
    """A flood is cut to what is kept, and ends at the hard limit or the clock."""
    need_binary()
    limits = {"output_bytes": 4096, "output_bytes_hard": 4 * MiB, "memory_bytes": 512 * MiB}
    result = trigger({"script_content": FLOODS[name], "timeout": 5, "limits": limits}, who)
    assert result["status"] == "output_limit" or (name == "both-small" and result["status"] == "timeout"), result["status"]
    assert result["stdout_truncated"] or result["stderr_truncated"]
    for stream in ("stdout", "stderr"):
        assert len(result[stream]) < 4096 * 3 + 100
        assert result[stream + "_bytes"] <= 64 * MiB
    assert result["execution_time"] < 15


def test_cpu_by_children(who):
    """CPU seconds spent by many short processes count together."""
    need_binary()
    script = """
import os, time
while True:
    if os.fork() == 0:
        end = time.process_time() + 0.3
        while time.process_time() < end: pass
        os._exit(0)
    os.wait()
"""
    result = trigger({"script_content": script, "timeout": 20, "limits": {"cpu_seconds": 1}}, who)
    assert result["status"] == "cpu_limit", result
    assert result["cpu_time"] < 3


@pytest.mark.parametrize("body", [
    "10 ** 10 ** 9", "import re\nre.match('(a+)+$', 'a' * 64 + 'b')",
    "import sys\nsys.setrecursionlimit(1 << 30)\ndef f(): f()\nf()",
    "import json\njson.loads('[' * 10**7)", "compile('(' * 10**6, 'x', 'exec')", "eval('9' * 10**7)",
    "import zlib\nd = zlib.compress(b'0' * (64 << 20), 9)\nk = [zlib.decompress(d) for _ in range(99)]",
], ids=["power", "regex", "recursion", "json", "compile", "digits", "zip"])
def test_slow_c_code(who, body):
    """What holds the interpreter in C code is ended from outside all the same."""
    need_binary()
    start = time.monotonic()
    result = trigger({"script_content": body, "timeout": 1, "limits": {"memory_bytes": 256 * MiB}}, who)
    assert result["status"] in ("timeout", "memory_limit", "error", "signaled", "cpu_limit"), result
    assert result["execution_time"] < 8 and time.monotonic() - start < 30


def test_core_dump_starts_nobody(who):
    """A crash leaves no core and starts no handler of the host."""
    need_binary()
    before = {int(p.split("/")[2]) for p in glob.glob("/proc/[0-9]*")}
    result = trigger({"script_content": "import os\nos.abort()", "artifacts": ["*"]}, who)
    assert (result["status"], result["signal"]) == ("signaled", "SIGABRT"), result
    assert not result["artifacts"]
    for p in set(map(int, (d.split("/")[2] for d in glob.glob("/proc/[0-9]*")))) - before:
        try:
            with open("/proc/%d/comm" % p) as f:
                assert "core" not in f.read().replace("cloche", "")
        except OSError:
            pass


@pytest.mark.parametrize("stdin", [0, 16 * MiB - 1], ids=["empty", "full"])
def test_input_is_never_read(who, stdin):
    """Input that nobody reads, or a closed standard input, blocks nobody."""
    need_binary()
    result = trigger({"script_content": "import os\nos.close(0)\nprint('done')", "stdin": "x" * stdin}, who)
    assert (result["status"], result["stdout"]) == ("ok", "done\n"), result


@pytest.mark.by_itself
def test_neighbour_of_a_bomb(who):
    """Beside a CPU bomb with many processes, an honest run still ends soon."""
    need_binary()
    start = time.monotonic()
    trigger({"script_content": "print('here')"}, who)
    alone = time.monotonic() - start
    bomb = "import os\nfor _ in range(20):\n    if os.fork() == 0: break\nwhile True: pass"
    known = set(descendants())
    p = subprocess.Popen(as_user(who) + [BIN, "trigger"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        cwd="/",
                         env=environment(who))
    soon = max(8, 12 * alone) * PATIENCE
    p.stdin.write(json.dumps({"script_content": bomb, "timeout": 30 + soon, "limits": {"cpus": 0.5}}))
    p.stdin.close()
    while len([pid for pid in set(descendants()) - known if runs_script(pid)]) < 21:
        assert p.poll() is None  # all of the bomb's must be there, or they would look like the other run's
        time.sleep(0.05)
    start = time.monotonic()
    honest = trigger({"script_content": "print('here')"}, who)
    took = time.monotonic() - start
    is_beside = p.poll() is None
    p.terminate()
    result = json.loads(p.stdout.read())
    p.wait()
    assert result["status"] == "cancelled", result
    assert honest["stdout"] == "here\n" and is_beside and took < soon, (took, alone)


def test_descriptors_in_flight(who):
    """Sockets sent into sockets are bounded, and gone with the run."""
    need_binary()
    script = """
import array, socket
n = 0
try:
    while True:
        a, b = socket.socketpair()
        a.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [a.fileno(), b.fileno()]))])
        a.close(); b.close(); n += 1
        if n > 200000: break
except OSError as e:
    print(e.errno, n)
"""
    result = trigger({"script_content": script, "timeout": 20, "limits": {**SMALL, "open_files": 128}}, who, timeout=60)
    assert result["status"] == "memory_limit" or result["stdout"].split()[0] in ("109", "24", "12"), result


@pytest.mark.parametrize("body", [
    "import select\nwhile True: keep.append(select.epoll())",
    "import ctypes\nlibc = ctypes.CDLL(None)\nwhile libc.eventfd(0, 0) >= 0: pass\nraise OSError",
    "import ctypes\nlibc = ctypes.CDLL(None)\nwhile libc.inotify_init1(0) >= 0: pass\nraise OSError",
    "import ctypes\nlibc = ctypes.CDLL(None)\nt = ctypes.c_void_p()\nwhile libc.timer_create(1, None, ctypes.byref(t)) == 0: pass\nraise OSError",
], ids=["epoll", "eventfd", "inotify", "timers"])
def test_kernel_objects_are_bounded(who, body):
    """Objects of the kernel run out at a limit."""
    need_binary()
    script = "import os\nkeep = []\ntry:\n    exec(%r)\nexcept OSError: print('bounded')" % body
    result = trigger({"script_content": script, "timeout": 20, "limits": SMALL}, who)
    assert result["stdout"] == "bounded\n" or result["status"] == "memory_limit", result


def test_slow_teardown(who):
    """Many mappings and inodes are torn down within the budget."""
    need_binary()
    script = """
import mmap, os
keep = []
try:
    for i in range(60000): keep.append(mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ if i % 2 else 3))
except OSError: pass
print(len(keep) > 10000, flush=True)
os._exit(0)
"""
    start = time.monotonic()
    result = trigger({"script_content": script, "timeout": 20 * PATIENCE}, who, timeout=60 * PATIENCE)
    assert result["stdout"] == "True\n", result
    assert time.monotonic() - start - result["execution_time"] < 3 * PATIENCE


@pytest.mark.by_itself
@pytest.mark.root_starts_it
def test_real_time_is_not_handed_on(who):
    """A caller with real-time priority has scripts without: theirs would take a CPU from everybody for good."""
    need_binary()
    need_root()
    script = "import os\nprint(os.sched_getscheduler(0), os.sched_getparam(0).sched_priority)"
    caller = ["chrt", "--fifo", "10"] + as_user(who)
    outside = subprocess.run(caller + ["/usr/bin/python3", "-c", script], capture_output=True, text=True, timeout=20,
                             env=environment(who), cwd="/")
    assert outside.stdout == "1 10\n", outside
    inside = subprocess.run(caller + [BIN, "run", "-q", "-"], input=script, capture_output=True, text=True, timeout=20,
                            env=environment(who), cwd="/")
    assert (inside.returncode, inside.stdout) == (0, "0 0\n"), inside
