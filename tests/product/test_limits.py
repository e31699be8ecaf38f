# SPDX-License-Identifier: Apache-2.0
"""Each limit, reached for real: what the script sees, and how near the limit it comes."""
import os

import pytest

MIB = 1 << 20


def test_processes(who):
    script = """
import errno, os, time
n = 0
try:
    while n < 200:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        n += 1
except OSError as e:
    print(errno.errorcode[e.errno], type(e).__name__)
print(n)
"""
    r = who.trigger(script, limits={"processes": 16}, timeout=20)
    assert r.verdict == ("ok", 0)
    assert r.lines[0] == "EAGAIN BlockingIOError"
    assert 12 <= int(r.lines[1]) + 1 <= 16, "the main process counts"


def test_processes_counts_threads(who):
    script = """
import threading, time
n = 0
try:
    while n < 200:
        threading.Thread(target=time.sleep, args=(5,), daemon=True).start()
        n += 1
except RuntimeError as e:
    print(e)
print(n)
"""
    r = who.trigger(script, limits={"processes": 16}, timeout=20)
    assert r.verdict == ("ok", 0) and r.lines[0] == "can't start new thread"
    assert 12 <= int(r.lines[1]) + 1 <= 16


def test_fork_bomb_ends_with_the_run(who, residue):
    script = ("import os, sys\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass\n")
    r = who.trigger(script, args=[residue.mark], timeout=1)
    assert r.verdict in (("timeout", -9), ("memory_limit", -9))
    residue.assert_none()
    assert who.trigger("print(1)").stdout == "1\n"


def test_zombies_are_reaped(who):
    script = """
import os, time
def fork():
    for _ in range(1000):       # until init gets a CPU; if it does not reap, five seconds are in vain
        try: return os.fork()
        except BlockingIOError: time.sleep(0.005)
    return os.fork()
for _ in range(300):            # orphans, one after the other: more than the limit in all
    pid = fork()
    if pid == 0:
        if fork() == 0:
            os._exit(0)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    time.sleep(0.001)
print('fine')
"""
    r = who.trigger(script, limits={"processes": 32})
    assert (r.verdict, r.stdout) == (("ok", 0), "fine\n"), r


FILL = """
import errno, os
n = 0
with open('{folder}/big', 'wb', buffering=0) as f:
    try:
        while n < 64 << 20:
            n += f.write(b'x' * 65536)
    except OSError as e:
        print(errno.errorcode[e.errno])
print(n)
"""


@pytest.mark.parametrize("folder", ["/tmp", "/dev/shm"])
def test_disk_bytes(who, folder):
    limit = 8 * MIB
    r = who.trigger(FILL.format(folder=folder), limits={"disk_bytes": limit})
    assert r.lines[0] == "ENOSPC" and r.verdict == ("ok", 0)
    assert limit * 0.9 <= int(r.lines[1]) <= limit


def test_disk_files(who):
    script = """
import errno
n = 0
try:
    while n < 5000:
        open(f'/tmp/f{n}', 'w').close()
        n += 1
except OSError as e:
    print(errno.errorcode[e.errno])
print(n)
"""
    r = who.trigger(script, limits={"disk_files": 200})
    assert r.lines[0] == "ENOSPC"
    assert 180 <= int(r.lines[1]) <= 200


def test_open_files(who):
    script = """
import errno, os, resource
n = 0
try:
    while n < 5000:
        os.open('/dev/null', os.O_RDONLY)
        n += 1
except OSError as e:
    print(errno.errorcode[e.errno])
print(n)
for value in ((4096, 4096), (100, 4096)):
    try: resource.setrlimit(resource.RLIMIT_NOFILE, value); print('raised')
    except (ValueError, OSError): print('refused')   # Python's words for EPERM
"""
    r = who.trigger(script, limits={"open_files": 64})
    # the three pipes, and the script's own file while it is read or not
    assert r.lines[0] == "EMFILE" and 59 <= int(r.lines[1]) <= 61
    assert r.lines[2:] == ["refused", "refused"]


@pytest.mark.parametrize("cpus", [0.5, 1, 1.5, 2])
def test_cpu_count_agrees(who, cpus):
    if cpus > os.cpu_count():
        cpus = os.cpu_count()
    script = """
import os, multiprocessing
print(os.cpu_count(), multiprocessing.cpu_count(), os.environ['PYTHON_CPU_COUNT'])
print(sorted({os.environ[n] for n in ('OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'MKL_NUM_THREADS')}))
"""
    r = who.trigger(script, limits={"cpus": cpus})
    n = max(1, int(-(-cpus // 1)))
    assert r.lines == [f"{n} {n} {n}", f"['{n}']"]


def test_cpus_hold(who, is_sampled):
    script = """
import os, time
if os.fork() == 0:
    while True: pass
end = time.monotonic() + 1.5
while time.monotonic() < end: pass
"""
    r = who.trigger(script, limits={"cpus": 0.5}, timeout=20)
    share = r.cpu_time / r.execution_time
    if is_sampled and share > 0.7:
        assert any("cpu" in w.lower() for w in r.warnings), "a limit that does not hold is told"
    else:
        assert share <= 0.7, r


def test_limits_that_hold_by_weaker_means_are_told(who, is_sampled):
    warnings = who.trigger("pass").warnings
    if is_sampled:
        text = " ".join(warnings).lower()
        assert "memory" in text and "sampl" in text
        assert any(c.isdigit() for c in text), "with the possible overshoot"
    else:
        assert not any("memory" in w.lower() for w in warnings), warnings


def test_root_has_real_limits(who, is_sampled):
    if who.is_root:
        assert not is_sampled, "as root memory is held by a control group on every host that has one"
    else:
        # an ordinary user's first run works, whatever holds its limits
        assert who.trigger("print('works')").stdout == "works\n"


def test_requiring_a_limit_in_full(who, is_sampled):
    p = who.run("print('ran')", "--require", "cgroup")
    if is_sampled:
        assert p.returncode == 125 and p.stdout == b"" and b"cgroup" in p.stderr, p
    else:
        assert (p.returncode, p.stdout) == (0, b"ran\n")


def test_limits_are_in_force_before_the_script(who):
    """rlimits as the interpreter's first line sees them."""
    script = """
import resource
for name in ('CORE', 'NOFILE', 'NPROC', 'MEMLOCK', 'FSIZE'):
    print(name, *resource.getrlimit(getattr(resource, 'RLIMIT_' + name)))
"""
    r = who.trigger(script, limits={"open_files": 99, "processes": 17})
    seen = dict(line.split(" ", 1) for line in r.lines)
    assert seen["CORE"] == "1 1" and seen["NOFILE"] == "99 99"
    assert seen["NPROC"].split()[0] == seen["NPROC"].split()[1] != "-1"


def test_memory_above_one_thread_stack_is_not_address_space(who):
    """256 MiB of memory are not 256 MiB of addresses: threads and mappings that nobody touches are free."""
    script = """
import mmap, threading, time
m = mmap.mmap(-1, 2 << 30)
t = [threading.Thread(target=time.sleep, args=(0.2,)) for _ in range(20)]
[x.start() for x in t], [x.join() for x in t]
print('fine')
"""
    r = who.trigger(script, limits={"memory_bytes": 256 * MIB})
    if r.is_sampled and r.status == "error":
        assert "Cannot allocate memory" in r.stderr, "RLIMIT_DATA is the backstop only where no cgroup can be had"
    else:
        assert (r.verdict, r.stdout) == (("ok", 0), "fine\n")


def test_limits_are_per_run(who):
    """Runs beside each other do not share one allowance."""
    script = "b = b'x' * 33_000_000\nimport time\ntime.sleep(0.4)\nprint(len(b))"
    results = who.batch([{"script_content": script, "script_name": f"r{i}.py", "limits": {"memory_bytes": 56 * MIB}}
                         for i in range(3)], jobs=3)
    assert [r.stdout for r in results.values()] == ["33000000\n"] * 3


def test_shared_memory_over_the_cap_is_the_script_s_problem(who):
    script = """
from multiprocessing.shared_memory import SharedMemory
try:
    s = SharedMemory(create=True, size=64 << 20)
    s.buf[:] = b'x' * (64 << 20)
    print('all')
except OSError as e:
    print(e.errno)
"""
    r = who.trigger(script, limits={"disk_bytes": 8 * MIB})
    # no room, file too large, or the bus error that an over-committed mapping is: the script's own, never ours
    assert r.stdout in ("28\n", "27\n") or r.verdict == ("signaled", -7), r
