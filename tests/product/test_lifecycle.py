# SPDX-License-Identifier: Apache-2.0
"""Death in every form: whoever dies, whatever goes away, nothing of a run survives, and the next run works."""
import fcntl
import json
import os
import pty
import resource
import signal
import subprocess
import termios
import time
from subprocess import DEVNULL, PIPE

import pytest

from harness import Result, cgroup_folders, cmdline, marked, namespaces, processes, strict_json, tree, wait_for

MIB = 1 << 20

# A script with company: a child, a daemon in a session of its own, threads, shared memory, a listening socket.
COMPANY = """
import os, signal, socket, sys, threading, time
print('begun')
for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(s, signal.SIG_IGN)
if os.fork() == 0:
    while True: time.sleep(1)
open('/dev/shm/' + sys.argv[1], 'w').write('x' * 100000)
open('/tmp/' + sys.argv[1], 'w').write('x' * 100000)
s = socket.create_server(('127.0.0.1', 0))
print('ready')
if os.fork() == 0:  # who sees the daemon knows that the script is ready
    os.setsid()
    if os.fork() == 0:
        os.execv('/bin/sleep', ['sleep-' + sys.argv[1], '300'])
    os._exit(0)
threading.Thread(target=time.sleep, args=(300,)).start()
time.sleep(300)
"""


class Begun:
    """A cloche that is in the middle of a run"""

    def __init__(self, who, residue, door, **kw):
        if door == "trigger":
            body = {"script_content": COMPANY, "args": [residue.mark], "timeout": 100}
            args = ("trigger", "--request", who.file(json.dumps(body), "request.json"))
        elif door == "batch":
            body = {"script_content": COMPANY, "args": [residue.mark], "timeout": 100}
            args = ("batch", who.file((json.dumps(body) + "\n") * 3, "requests.jsonl"), "-j", "2")
        else:
            args = ("run", "--timeout", "100", *(["--json"] if door == "json" else []), who.file(COMPANY), residue.mark)
        self.p = who.popen(*args, **kw)
        self.script = residue.script(self.p.pid)
        residue.asleep(self.p.pid, 2 if door == "batch" else 1)
        assert len(residue.seen) > 3

    def end(self, seconds=20):
        try:
            return self.p.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.p.kill()
            self.p.communicate()
            raise AssertionError(f"still there after {seconds} s") from None


def works(who):
    r = who.trigger("print('works')")
    assert (r.verdict, r.stdout) == (("ok", 0), "works\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda s: s.name)
@pytest.mark.parametrize("door", ["run", "json", "trigger", "batch"])
def test_asked_to_end(who, residue, door, number):
    b = Begun(who, residue, door)
    start = time.monotonic()
    b.p.send_signal(number)
    out, err = b.end()
    assert time.monotonic() - start < 15
    residue.assert_none()
    if door in ("run", "json"):
        assert b.p.returncode == 130, (b.p.returncode, err)
    else:
        assert b.p.returncode in (0, 130), (b.p.returncode, err)
    if door in ("json", "trigger"):
        assert Result(strict_json(out)).verdict == ("cancelled", -9)
    if door == "run":
        assert out == b"begun\nready\n"
    works(who)


def test_asked_twice(who, residue):
    b = Begun(who, residue, "run")
    b.p.send_signal(signal.SIGINT)
    b.p.send_signal(signal.SIGINT)
    b.end()
    residue.assert_none(may_leave_empty_cgroup=True)
    works(who)


def test_asked_before_it_began(who, residue):
    """A signal at any moment of the start: nothing survives, nothing hangs."""
    path = who.file(COMPANY)
    for delay in (0, 0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05):
        p = who.popen("run", path, residue.mark, stdout=DEVNULL, stderr=DEVNULL)
        time.sleep(delay)
        residue.look(p.pid)
        p.send_signal(signal.SIGTERM)
        p.wait(timeout=10)
    residue.assert_none(may_leave_empty_cgroup=True)
    works(who)


@pytest.mark.parametrize("door", ["run", "trigger", "batch"])
def test_killed(who, residue, door):
    b = Begun(who, residue, door)
    b.p.kill()
    b.end()
    residue.assert_none(may_leave_empty_cgroup=True)
    works(who)
    if who.is_root:
        assert wait_for(lambda: not [f for f, pid in cgroup_folders().items() if pid in residue.seen]), (
            "whoever starts sweeps, beside its work, what a SIGKILL left")


def test_killed_at_any_moment_of_the_start(who, residue):
    path = who.file(COMPANY)
    for delay in (0, 0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05):
        p = who.popen("run", path, residue.mark, stdout=DEVNULL, stderr=DEVNULL)
        time.sleep(delay)
        residue.look(p.pid)
        p.kill()
        p.wait(timeout=10)
    residue.assert_none(may_leave_empty_cgroup=True)
    works(who)


def test_each_process_of_ours_killed(who, residue):
    """All but the caller's own process and the script: the caller tells an internal error, never a made-up verdict."""
    n, i = 1, 0
    while i < n:
        b = Begun(who, residue, "json")
        table = processes()
        inside = set(tree(b.script, table)) | set(marked(residue.mark))
        ours = [p for p in tree(b.p.pid, table) if p not in inside and p != b.p.pid]
        n = len(ours)
        assert n >= 1
        os.kill(ours[i], signal.SIGKILL)
        out, err = b.end()
        r = Result(strict_json(out))
        assert (r.verdict, b.p.returncode) == (("internal_error", -125), 125), (i, r)
        residue.assert_none(may_leave_empty_cgroup=True)
        i += 1
    works(who)


def test_each_process_of_ours_stopped_while_the_caller_dies(who, residue):
    """A stopped supervisor can't clean up: the kernel does."""
    b = Begun(who, residue, "run")
    ours = [p for p in tree(b.p.pid) if p != b.p.pid and residue.mark.encode() not in cmdline(p)]
    for pid in ours:
        os.kill(pid, signal.SIGSTOP)
    b.p.kill()
    b.end()
    time.sleep(0.5)
    for pid in ours:
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass
    residue.assert_none(may_leave_empty_cgroup=True)
    works(who)


def test_terminal_closed(who, residue):
    master, slave = pty.openpty()

    def take_terminal():
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    b = Begun(who, residue, "run", stdin=slave, stdout=slave, stderr=slave,
              start_new_session=False, preexec_fn=take_terminal)
    os.close(slave)
    assert b"begun" in os.read(master, 1000)
    os.close(master)
    assert b.p.wait(timeout=10) != 0
    residue.assert_none()
    works(who)


def test_interrupt_from_the_terminal(who, residue):
    master, slave = pty.openpty()

    def take_terminal():
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    b = Begun(who, residue, "run", stdin=slave, stdout=slave, stderr=slave,
              start_new_session=False, preexec_fn=take_terminal)
    os.close(slave)
    os.write(master, b"\x03")
    assert b.p.wait(timeout=10) == 130
    os.close(master)
    residue.assert_none()


def test_script_on_a_terminal_sees_none(who):
    """The caller's terminal is out of reach, whatever cloche's own descriptors are."""
    master, slave = pty.openpty()
    script = ("import os\nfor d in (0, 1, 2): assert not os.isatty(d)\n"
              "try: os.open('/dev/tty', os.O_RDWR); print('opened')\n"
              "except OSError as e: print('no tty')\nimport sys; print(repr(sys.stdin.read()))")
    p = who.popen("run", who.file(script), stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    assert p.wait(timeout=15) == 0
    text = os.read(master, 4000)
    os.close(master)
    assert b"no tty" in text and b"''" in text, "standard input is empty when ours is a terminal"


@pytest.mark.parametrize("door", ["run", "json", "trigger"])
def test_output_on_a_full_disk(who, residue, door):
    script = "import sys\nprint('x' * 100000)\nprint(sys.argv)"
    with open("/dev/full", "wb") as full:
        if door == "trigger":
            body = {"script_content": script, "args": [residue.mark]}
            p = who.popen("trigger", "--request", who.file(json.dumps(body), "r.json"), stdout=full)
        else:
            options = ["--json"] if door == "json" else []
            p = who.popen("run", *options, who.file(script), residue.mark, stdout=full)
        _, err = p.communicate(timeout=15)
    assert p.returncode == 125, (p.returncode, err)
    assert b"No space left on device" in err
    residue.assert_none()
    works(who)


def test_an_endless_script_into_a_full_disk_ends(who, residue):
    with open("/dev/full", "wb") as full:
        p = who.popen("run", who.file("while True: print('x' * 1000)"), residue.mark, stdout=full)
        p.communicate(timeout=15)
    assert p.returncode == 125
    residue.assert_none()


def _on_a_full_tmpfs(folder):
    """A shell that has a full 64 KiB tmpfs on @folder, in a mount namespace of its own"""
    return ["/usr/bin/unshare", "-m", "/bin/sh", "-c",
            f'mount -t tmpfs -o size=64k,nr_inodes=8,mode=1777 full {folder} && '
            f'{{ head -c 1000000 /dev/zero >{folder}/filler 2>/dev/null; exec "$@"; }}', "sh"]


@pytest.mark.usefixtures("root")  # mounts a full file system
def test_temporary_folder_full(who, residue):
    body = json.dumps({"script_content": "open('/tmp/x', 'w').write('y' * 1000000)\nprint('works')", "artifacts": ["x"],
                       "files": {"f": "x" * 100000}, "stdin": "z" * MIB})
    folders = [f for f in ("/tmp", "/dev/shm") if not str(who.binary).startswith(f + "/")]
    for folder in folders:
        p = who.popen("trigger", "--request", "-", before=_on_a_full_tmpfs(folder), env={"TMPDIR": folder},
                      stdin=PIPE)
        try:
            out, err = p.communicate(body.encode(), timeout=20)
        except subprocess.TimeoutExpired:
            p.kill()
            raise
        assert p.returncode == 0, err
        r = Result(strict_json(out))
        assert (r.verdict, r.stdout) == (("ok", 0), "works\n"), "no file of the host is needed for a run"
        assert r.artifact("x")["size"] == 1000000
    residue.assert_none()


@pytest.mark.usefixtures("root")  # mounts a full file system
def test_artifacts_into_a_full_disk(who, residue):
    folder = who.folder()
    path = who.file("open('big', 'w').write('y' * 1000000)")
    p = who.popen("run", "--artifact", "*", "-o", folder, path, residue.mark,
                  before=_on_a_full_tmpfs(folder))
    _, err = p.communicate(timeout=20)
    assert p.returncode not in (0, None) and b"No space left on device" in err, (p.returncode, err)
    residue.assert_none()
    works(who)


def test_reader_gone_while_it_streams(who, residue):
    script = "import time\nwhile True:\n    print('x' * 1000)\n    time.sleep(0.001)"
    p = who.popen("run", who.file(script), residue.mark)
    assert p.stdout.readline()
    residue.look(p.pid)
    p.stdout.close()
    assert p.wait(timeout=10) == 130
    said = [line for line in p.stderr.read().splitlines() if not line.startswith(b"cloche: warning: ")]
    assert not said, "quietly, as a pipe's writer should"
    p.stderr.close()
    residue.assert_none()
    works(who)


def test_reader_that_takes_its_time(who, residue):
    """Back-pressure: a slow reader loses nothing, and memory stays where it is."""
    p = who.popen("run", who.file("import os\nfor _ in range(160): os.write(1, b'x' * 65536)"), residue.mark)
    time.sleep(1)
    with open(f"/proc/{p.pid}/status") as f:
        peak = next(int(line.split()[1]) for line in f if line.startswith("VmHWM"))
    out, _ = p.communicate(timeout=20)
    assert len(out) == 160 * 65536 and p.returncode == 0
    assert peak < 12 * 1024, f"{peak} KiB"
    residue.assert_none()


@pytest.mark.parametrize("door", ["json", "trigger"])
def test_reader_gone_before_the_result(who, residue, door):
    body = {"script_content": "import time\ntime.sleep(0.5)", "args": [residue.mark]}
    if door == "trigger":
        args = ("trigger", "--request", who.file(json.dumps(body), "r.json"))
    else:
        args = ("run", "--json", who.file(body["script_content"]), residue.mark)
    p = who.popen(*args)
    p.stdout.close()
    assert p.wait(timeout=10) not in (0, -signal.SIGPIPE), "not given: not a success"
    p.stderr.close()
    residue.assert_none()
    works(who)


def test_writer_of_our_input_gone(who, residue):
    """Standard input that ends in the middle of the request, and one that never comes"""
    p = who.popen("trigger", "--request", "-", stdin=PIPE)
    out, _ = p.communicate(b'{"script_content": "print(1)', timeout=10)
    assert p.returncode == 2 and "error" in json.loads(out)
    p = who.popen("run", who.file("import time\nprint('x')\ntime.sleep(0.3)"), residue.mark, stdin=PIPE)
    try:
        assert p.stdout.read() == b"x\n" and p.wait(timeout=10) == 0, "a stdin that stays open delays no end"
    finally:
        p.stdin.close()
        p.stdout.close()
        p.stderr.close()
    residue.assert_none()


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)], ids=str)
def test_started_without_standard_descriptors(who, residue, closed):
    """A missing descriptor is never mistaken for one of our own."""
    def close():
        for fd in closed:
            os.close(fd)
    p = who.popen("run", who.file("import sys\nprint('out', len(sys.stdin.read()))\nprint('err', file=sys.stderr)"),
                   preexec_fn=close)
    out, err = p.communicate(timeout=15)
    # what can't be handed on is an error of ours, told by the exit status; the rest arrives
    assert p.returncode == (125 if {1, 2} & set(closed) else 0), (p.returncode, err)
    if 1 not in closed:
        assert out == b"out 0\n"
    if closed == (0,):
        assert b"err\n" in err
    residue.assert_none()


def test_the_search_itself(who, residue):
    """Each kind of residue is found when it is there: otherwise an empty answer would prove nothing."""
    assert residue.left() == []
    p = subprocess.Popen(["/bin/sleep", "30"])
    try:
        assert wait_for(lambda: cmdline(p.pid) == b"/bin/sleep\x0030\x00")
        residue.look(p.pid)
        assert ("process", p.pid, b"/bin/sleep\x0030\x00") in residue.left()
    finally:
        p.kill()
        p.wait()
    assert residue.left() == []
    with subprocess.Popen(["sleep-" + residue.mark, "30"], executable="/bin/sleep") as p:
        assert wait_for(lambda: cmdline(p.pid).startswith(b"sleep-"))
        assert [kind for kind, *_ in residue.left()] == ["marked process"]
        p.kill()
    leftover = f"/dev/shm/cloche-{residue.mark}"
    with open(leftover, "w"):
        assert residue.left() == [("file", leftover)]
    os.unlink(leftover)
    if who.is_root:
        with subprocess.Popen(["/usr/bin/unshare", "-n", "/bin/sleep", "30"]) as p:
            assert wait_for(lambda: cmdline(p.pid) == b"/bin/sleep\x0030\x00")
            assert len(namespaces(p.pid) - residue.host) == 1
            residue.namespaces |= namespaces(p.pid) - residue.host
            assert ("in a sandbox's namespace", p.pid, b"/bin/sleep\x0030\x00") in residue.left()
            p.kill()
    assert residue.left() == []


def test_normal_end_leaves_nothing(who, residue):
    script = COMPANY.rsplit("time.sleep(300)", 1)[0] + "os._exit(0)\n"
    path = who.file(script)
    for _ in range(5):
        p = who.popen("run", path, residue.mark)
        residue.look(p.pid)
        out, err = p.communicate(timeout=15)
        assert (p.returncode, out) == (0, b"begun\nready\n"), err
        residue.assert_none()


def test_fifty_runs_leave_nothing(who, residue):
    before = len(cgroup_folders())
    results = who.batch([{"script_content": f"print({i})", "script_name": f"r{i}.py", "args": [residue.mark]}
                         for i in range(50)])
    assert [results[f"r{i}.py"].stdout for i in range(50)] == [f"{i}\n" for i in range(50)]
    residue.assert_none()
    assert len(cgroup_folders()) <= before + 2, "other programs may have some meanwhile; fifty runs leave none"


def test_stopped_and_continued(who, residue):
    """Ctrl-Z and fg: the run goes on; the wall clock was running."""
    path = who.file("import time\nprint('a')\ntime.sleep(0.5)\nprint('b')")
    p = who.popen("run", "--timeout", "30", path, residue.mark)
    assert p.stdout.readline() == b"a\n"
    p.send_signal(signal.SIGSTOP)
    time.sleep(1)
    p.send_signal(signal.SIGCONT)
    out, _ = p.communicate(timeout=10)
    assert (out, p.returncode) == (b"b\n", 0)
    residue.assert_none()


def test_few_descriptors_and_processes_for_us(who, residue):
    """Our own scarcity is an honest error with nothing left, not a hang and not a claim about the script."""
    body = {"script_content": "print('works')", "args": [residue.mark]}
    path = who.file(json.dumps(body), "r.json")
    for n in (4, 6, 8, 10, 14, 20, 40):
        p = who.popen("trigger", "--request", path,
                      preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n)))
        out, err = p.communicate(timeout=15)
        if p.returncode == 0:
            r = Result(strict_json(out))
            assert r.verdict in (("ok", 0), ("internal_error", -125)), r
            assert r.status == "internal_error" or r.stdout == "works\n"
        else:
            assert p.returncode in (125, 126, 127) and err, (n, p.returncode)
    residue.assert_none()
    works(who)
