# SPDX-License-Identifier: Apache-2.0
"""Limits by cgroup v2, without a service manager's help: groups that root makes and hands to cloche."""

import errno
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import time

import pytest

import attack_support as support

TOP = "/sys/fs/cgroup"
HOG = "x = [bytearray(1 << 20) for i in range(1 << 12)]"


@pytest.fixture
def group():
    """A group below the root with all three controllers on offer, empty."""
    support.need_root()
    support.need_binary()
    try:
        offered = open(f"{TOP}/cgroup.controllers").read().split()
    except OSError:
        offered = []
    if not {"memory", "pids", "cpu"} <= set(offered):
        pytest.skip("needs: cgroup2 (all controllers in the unified hierarchy)")
    with open(f"{TOP}/cgroup.subtree_control", "w") as f:
        f.write("+memory +pids +cpu")
    path = f"{TOP}/hosts-test-{os.getpid()}"
    os.mkdir(path)
    yield path
    is_clean(path)
    left = sorted(d for d, _, _ in os.walk(path))
    for d in reversed(left):
        remove(d)
    assert left == [path], left


def remove(folder, seconds=15):
    """Who has cleaned up is in it for a moment more."""
    end = time.monotonic() + seconds
    while True:
        try:
            return os.rmdir(folder)
        except OSError as e:
            if e.errno != errno.EBUSY or time.monotonic() > end:
                raise
        time.sleep(0.02)


def is_clean(path):
    """The clean-up goes on for a moment when the command has ended."""
    end = time.monotonic() + 15
    while glob.glob(path + "/cloche-*") and time.monotonic() < end:
        time.sleep(0.02)
    return not glob.glob(path + "/cloche-*")


def inhabitants(path):
    """Processes in folders of ours below it, which may go while we look."""
    found = []
    for name in glob.glob(path + "/cloche-*/**/cgroup.procs", recursive=True):
        try:
            found += open(name).read().split()
        except OSError:
            pass
    return found


def enter(path):
    def move():
        with open(path + "/cgroup.procs", "w") as f:
            f.write("0")
    return move


def cloche(where, *args, request=None, words=(), **popen):
    p = subprocess.run([*words, support.BIN, *args], input=json.dumps(request) if request else "", capture_output=True, text=True,
                       timeout=120, cwd="/", env=support.environment("root"), preexec_fn=enter(where), **popen)
    assert p.stdout.startswith("{"), (p.returncode, p.stdout[-500:], p.stderr[-1000:])
    assert is_clean(where)
    return json.loads(p.stdout)


def held(where, words=()):
    report = cloche(where, "doctor", "--json", words=words)
    return {w["name"]: w for w in report["protections"]}


def test_alone_in_a_group(group):
    """The starter and its supervisor move into a leaf; the group passes its controllers on, and gets everything back."""
    walls = held(group)
    for name in ("memory", "processes", "cpu"):
        assert "control group (v2)" in walls[name]["detail"], walls[name]
    assert open(group + "/cgroup.subtree_control").read().strip() == ""


def test_run_is_below_our_own_group(group):
    """Limits of the group that cloche was started in hold for its runs."""
    p = subprocess.Popen([support.BIN, "run", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=enter(group), cwd="/",
                         env=support.environment("root"))
    p.stdin.write(b"import time\nprint('here', flush=True)\ntime.sleep(30)\n")
    p.stdin.close()
    assert p.stdout.readline() == b"here\n"
    slot = glob.glob(group + "/cloche-*/s0")
    assert len(slot) == 1
    assert len(open(slot[0] + "/cgroup.procs").read().split()) == 1
    assert open(slot[0] + "/memory.max").read() == f"{512 << 20}\n"
    assert open(slot[0] + "/memory.swap.max").read() == "0\n"
    assert open(slot[0] + "/memory.oom.group").read() == "1\n"
    assert open(slot[0] + "/pids.max").read() == "64\n"
    quota, period = open(slot[0] + "/cpu.max").read().split()
    assert int(quota) == int(period)
    assert open(group + "/cgroup.procs").read() == ""
    leaf = open(os.path.dirname(slot[0]) + "/sup/cgroup.procs").read().split()
    assert str(p.pid) in leaf and len(leaf) >= 3  # starter, outer, supervisor, init
    p.send_signal(signal.SIGTERM)
    p.wait(timeout=20)
    p.stdout.close()
    assert is_clean(group)


def test_how_a_run_comes_and_goes(group, tmp_path):
    """Born in its group, without a move (CLONE_INTO_CGROUP); what it leaves is killed by its group (cgroup.kill)."""
    if not shutil.which("strace"):
        pytest.skip("needs: cgroup2 and strace")
    trace = tmp_path / "trace"
    script = "import os, time\nfor i in range(3):\n    if os.fork() == 0: os.setsid(); time.sleep(60)\nprint(open('/proc/self/cgroup').read())"
    r = cloche(group, "trigger", request={"script_content": script}, words=["strace", "-f", "-o", str(trace), "-e", "trace=clone3,write,openat"])
    assert (r["status"], r["stdout"]) == ("ok", "0::/\n\n"), r
    text = trace.read_text()
    assert re.search(r"clone3\(\{flags=[^}]*CLONE_INTO_CGROUP", text), text[-2000:]
    assert re.search(r'openat\([^)]*cgroup\.kill", O_WRONLY', text), re.findall("openat.*kill.*", text)
    assert not re.search(r'openat\([^)]*/s\d+/cgroup\.procs", O_(WRONLY|RDWR)', text)


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM])
def test_supervisor_dies(group, sig):
    """Nothing but an empty folder may be left, and the next start sweeps it."""
    p = subprocess.Popen([support.BIN, "run", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                         preexec_fn=enter(group), cwd="/", env=support.environment("root"))
    p.stdin.write(b"import time\nprint('here', flush=True)\ntime.sleep(30)\n")
    p.stdin.close()
    p.stdout.readline()
    p.send_signal(sig)
    p.wait(timeout=20)
    p.stdout.close()
    end = time.monotonic() + 15
    while inhabitants(group) and time.monotonic() < end:
        time.sleep(0.05)
    assert not inhabitants(group)
    held(group)


def test_others_in_the_group(group):
    """With others there the nearest group above is taken."""
    other = subprocess.Popen(["/bin/sleep", "60"], preexec_fn=enter(group))
    try:
        walls = held(group)
        assert "control group (v2)" in walls["memory"]["detail"], walls["memory"]
        assert open(group + "/cgroup.procs").read().split() == [str(other.pid)]
    finally:
        other.kill()
        other.wait()


def test_verdicts(group):
    r = cloche(group, "trigger", request={"script_content": HOG, "limits": {"memory_bytes": 64 << 20}})
    assert r["status"] == "memory_limit" and 60 << 20 < r["peak_memory_bytes"] <= 64 << 20, r
    # whichever process the kernel picks, the whole run ends
    r = cloche(group, "trigger", request={"script_content": f"import os, time\nif os.fork() == 0:\n    {HOG}\ntime.sleep(30)",
                                          "limits": {"memory_bytes": 64 << 20}})
    assert r["status"] == "memory_limit" and r["execution_time"] < 25, r
    r = cloche(group, "trigger", request={"script_content": "import os, time\nn = 0\ntry:\n  while True:\n    if os.fork() == 0:\n"
                                          "      time.sleep(20)\n    n += 1\nexcept OSError: print(n)", "limits": {"processes": 10}})
    assert (r["status"], r["stdout"]) == ("ok", "9\n"), r
    r = cloche(group, "trigger", request={"script_content": "import time\nt, c = time.monotonic(), time.process_time()\n"
                                          "while time.process_time() - c < 0.5: pass\nprint(time.monotonic() - t > 1.2)", "limits": {"cpus": 0.25}})
    assert (r["status"], r["stdout"]) == ("ok", "True\n"), r


def test_peak_is_each_runs_own(group):
    """Slots are used again; where the kernel can't reset the peak (before 6.12) the group is a new one."""
    big = "x = b'x' * (100 << 20)"
    lines = "".join(json.dumps({"script_content": s, "script_name": f"n{i}.py"}) + "\n" for i, s in enumerate([big, "pass", big, "pass"]))
    path = f"/var/tmp/cloche-requests-{os.getpid()}.jsonl"
    with open(path, "w") as f:
        f.write(lines)
    try:
        p = subprocess.run([support.BIN, "batch", path, "-j", "1"], capture_output=True, text=True, timeout=120, cwd="/",
                           env=support.environment("root"), preexec_fn=enter(group))
    finally:
        os.unlink(path)
    peaks = {r["script_name"]: r["peak_memory_bytes"] for r in map(json.loads, p.stdout.splitlines())}
    if not os.path.exists(group + "/memory.peak"):  # before 5.19
        assert set(peaks.values()) == {None}
        return
    assert peaks["n0.py"] > 100 << 20 and peaks["n2.py"] > 100 << 20, peaks
    assert peaks["n1.py"] < 60 << 20 and peaks["n3.py"] < 60 << 20, peaks


# In a container: a cgroup namespace, and only its part of the tree in sight.
CONTAINER = ["unshare", "--cgroup", "--mount", "--propagation", "private", "sh", "-ec",
             'umount -l /sys/fs/cgroup; mount -t cgroup2 cgroup2 /sys/fs/cgroup; mount -o "remount,bind,$0" /sys/fs/cgroup; exec "$@"']


def test_container_alone(group):
    walls = held(group, [*CONTAINER, "rw"])
    assert "control group (v2)" in walls["memory"]["detail"], walls["memory"]


def test_container_read_only(group):
    walls = held(group, [*CONTAINER, "ro"])
    assert walls["memory"]["state"] == "weak" and "writable" in walls["memory"]["remedy"], walls["memory"]


def test_container_with_others(group):
    """A container whose other processes sit in its only group: named, with what to do."""
    script = 'umount -l /sys/fs/cgroup; mount -t cgroup2 cgroup2 /sys/fs/cgroup; sleep 60 & "$@"; r=$?; kill %1 2>/dev/null || kill $!; exit $r'
    p = subprocess.run(["unshare", "--cgroup", "--mount", "--propagation", "private", "sh", "-c", script, "sh", support.BIN, "doctor", "--json"],
                       capture_output=True, text=True, timeout=60, cwd="/", env=support.environment("root"), preexec_fn=enter(group))
    wall = {w["name"]: w for w in json.loads(p.stdout)["protections"]}["memory"]
    assert wall["state"] == "weak" and "other processes sit in our control group" in wall["remedy"], wall


def test_container_after_moving_all(group):
    """What the manual tells to do in such a container: move all into a leaf."""
    script = ('umount -l /sys/fs/cgroup; mount -t cgroup2 cgroup2 /sys/fs/cgroup; mkdir /sys/fs/cgroup/all; for p in $(cat /sys/fs/cgroup/cgroup.procs); do '
              'echo $p >/sys/fs/cgroup/all/cgroup.procs; done; sleep 60 & "$@"; kill $!')
    p = subprocess.run(["unshare", "--cgroup", "--mount", "--propagation", "private", "sh", "-c", script, "sh", support.BIN, "doctor", "--json"],
                       capture_output=True, text=True, timeout=60, cwd="/", env=support.environment("root"), preexec_fn=enter(group))
    wall = {w["name"]: w for w in json.loads(p.stdout)["protections"]}["memory"]
    with open(group + "/cgroup.subtree_control", "w") as f:
        f.write("-memory -pids -cpu")
    remove(group + "/all")
    assert "control group (v2)" in wall["detail"], wall


def test_controllers_that_are_not_offered(group):
    """Only memory is handed on: it is used, the others are named."""
    with open(group + "/cgroup.subtree_control", "w") as f:
        f.write("+memory")
    inner = group + "/inner"
    os.mkdir(inner)
    walls = held(inner, [*CONTAINER, "rw"])
    assert "control group (v2)" in walls["memory"]["detail"], walls["memory"]
    assert walls["cpu"]["state"] == "weak" and re.search(r"\bpids, cpu: not handed on", walls["cpu"]["remedy"]), walls["cpu"]
    remove(inner)
    with open(group + "/cgroup.subtree_control", "w") as f:
        f.write("-memory")
