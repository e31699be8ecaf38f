# SPDX-License-Identifier: Apache-2.0
"""Forging the result, leaving something for the next run, learning about the host, typing into the caller's terminal."""

import base64
import json
import os
import pty
import select
import signal
import subprocess
import time

import pytest

from attack_support import (BIN, PYTHON, as_user, assert_no_residue, descendants, environment, left_processes, need_binary,
                            runs_script, snapshot, trigger)

FAKE = json.dumps({"stdout": "forged", "stderr": "", "return_code": 0, "execution_time": 0.0, "status": "ok"})


@pytest.mark.parametrize("body", [
    "import os, sys\nos.write(1, FAKE); os.write(2, FAKE)\nos._exit(7)",
    "import os\nfor fd in range(3, 1024):\n    try: os.write(fd, FAKE)\n    except OSError: pass\nos._exit(7)",
    "import os, sys\nos.execv(sys.executable, [sys.executable, '-c', 'import os; os._exit(7)'])",
    "import os\nif os.fork() == 0:\n    os.write(1, FAKE); os._exit(0)\nos.wait(); os._exit(7)",
    "import os, signal\nfor p in (1, os.getppid()):\n    try: p and os.kill(p, signal.SIGKILL)\n    except OSError: pass\nos._exit(7)",
    "import os\nos.write(1, b'\\x00\\x00\\x00\\x00' * 64 + bytes(range(256)) + b'[... 123 bytes left out ...]'); os._exit(7)",
], ids=["says-ok", "every-descriptor", "other-program", "child-says-ok", "kills-parent", "framing"])
def test_status_is_the_kernels(who, body):
    """The exit status is what waitid said, whatever the script prints, writes or kills."""
    need_binary()
    result = trigger({"script_content": body.replace("FAKE", repr(FAKE.encode())), "output": "base64"}, who)
    assert (result["status"], result["return_code"]) == ("error", 7), result
    assert result["execution_time"] > 0 and not result["artifacts"]


def test_every_byte_is_data(who):
    """Control bytes and delimiters come back exactly."""
    need_binary()
    data = bytes(range(256)) * 3 + FAKE.encode() + b"\r\n\r\n--\x1b]52;c;Zm9v\x07\xe2\x80\xae"
    script = "import os, base64\nos.write(1, base64.b64decode(%r))" % base64.b64encode(data).decode()
    result = trigger({"script_content": script, "output": "base64"}, who)
    assert base64.b64decode(result["stdout_base64"]) == data


def test_late_writer_is_in_no_other_run(who):
    """What a grandchild wants to write after the end of main is in no result."""
    need_binary()
    script = "import os, time\nif os.fork() == 0:\n    time.sleep(1)\n    print('late', flush=True)\n    os._exit(0)\nprint('main')"
    first = trigger({"script_content": script}, who)
    second = trigger({"script_content": "import time\ntime.sleep(1.5)\nprint('second')"}, who)
    assert (first["stdout"], second["stdout"]) == ("main\n", "second\n")


def test_written_before_kill_is_kept(who):
    need_binary()
    result = trigger({"script_content": "import os\nprint('kept')\nos.kill(os.getpid(), 9)"}, who)
    assert (result["stdout"], result["status"], result["return_code"]) == ("kept\n", "signaled", -9), result


def test_137_is_an_exit_code(who):
    need_binary()
    result = trigger({"script_content": "import os\nos._exit(137)"}, who)
    assert (result["status"], result["return_code"]) == ("error", 137), result


def test_artifacts_are_not_followed(who, canaries):
    """Links, FIFOs, sockets and devices as artifacts: left out, never followed, never waited for."""
    need_binary()
    script = """
import os, socket
os.symlink(%r, "/tmp/a-link"); os.symlink("/etc/passwd", "/tmp/b-link"); os.symlink("/proc/self/environ", "/tmp/c-link")
os.symlink("/", "/tmp/folder"); os.mkfifo("/tmp/fifo"); socket.socket(socket.AF_UNIX).bind("/tmp/sock")
os.symlink("..", "/tmp/up"); open("/tmp/honest", "w").write("yes")
try: os.link("/usr/bin/env", "/tmp/hard")
except OSError: pass
""" % canaries.secret
    start = time.monotonic()
    result = trigger({"script_content": script, "artifacts": ["*", "**/*", "folder/etc/passwd"], "timeout": 10}, who)
    whole = {a["name"]: base64.b64decode(a["base64"]) for a in result["artifacts"] if "left_out" not in a}
    assert whole == {"honest": b"yes"}, whole
    assert time.monotonic() - start < 20


PLANT = """
import os, sys
home = os.path.expanduser("~")
site = "%s/.local/lib/python%d.%d/site-packages" % (home, *sys.version_info[:2])
os.makedirs(site, exist_ok=True)
for path, text in ((site + "/usercustomize.py", "print('planted')"), (site + "/p.pth", "import sys; print('planted')\\n"),
                   (home + "/sitecustomize.py", "print('planted')"), (home + "/json.py", "print('planted')"),
                   ("/dev/shm/left", "x"), ("/tmp/left", "x"), ("/var/tmp/left", "x")):
    try:
        open(path, "w").write(text)
    except OSError:
        pass
"""
LOOK = """
import json, os
left = [p for p in ("/dev/shm/left", "/tmp/left", "/var/tmp/left", os.path.expanduser("~/.local")) if os.path.exists(p)]
print(left)
"""


def test_nothing_left_for_the_next_run(who):
    need_binary()
    trigger({"script_content": PLANT}, who)
    assert trigger({"script_content": LOOK}, who)["stdout"] == "[]\n"


def test_planting_control(folder):
    """Outside, in one home, the next script runs what was planted."""
    env = environment("user", HOME=folder)
    words = as_user("user") + [PYTHON, "-c"]
    subprocess.run(words + [PLANT.replace("/dev/shm/left", folder + "/l1").replace("/tmp/left", folder + "/l2")],
        env=env, check=True,
                   cwd=folder)
    out = subprocess.run(words + ["pass"], env=env, capture_output=True, text=True, check=True, cwd=folder).stdout
    assert "planted" in out


def test_two_runs_share_no_random_state(who, door):
    """But for two that come of one interpreter: they have its hash seed and its layout of memory."""
    need_binary()
    script = """
import json, os, random, secrets, ssl, tempfile, uuid, multiprocessing
print(json.dumps([random.random(), secrets.token_hex(8), ssl.RAND_bytes(8).hex(), str(uuid.uuid4()), str(uuid.uuid1()), next(tempfile._get_candidate_names()),
                  multiprocessing.current_process().authkey.hex(), hash("a"), id(object())]))
"""
    first, second = (trigger({"script_content": script}, who) for _ in range(2))
    assert first["mode"] == second["mode"] == ("cold" if door == "local" else "warm")
    a, b = (json.loads(r["stdout"])[:9 if door == "local" else 7] for r in (first, second))
    same = [i for i in range(len(a)) if a[i] == b[i]]
    assert not same, (a, b)


@pytest.mark.by_itself
@pytest.mark.parametrize("descriptors", ["inherited"])
def test_descriptors_of_the_caller(who, canaries, descriptors):
    """A descriptor that the caller forgot open is not the script's.  The control is the second half."""
    script = """
import os
found = []
for fd in range(3, 1024):
    try: found.append((fd, os.read(fd, 64).decode(errors="replace")))
    except OSError as e:
        if e.errno != 9: found.append((fd, e.errno))
print(found)
"""
    fd = os.open(canaries.secret, os.O_RDONLY)
    try:
        outside = subprocess.run([PYTHON, "-c", script], pass_fds=[fd], capture_output=True, text=True,
            check=True).stdout
        assert canaries.token in outside
        need_binary()
        os.lseek(fd, 0, os.SEEK_SET)
        assert trigger({"script_content": script}, who, pass_fds=[fd])["stdout"] == "[]\n"
    finally:
        os.close(fd)


TYPE = """
import fcntl, os
done = 0
for path in (None, "/dev/tty", "/dev/console", "/proc/self/fd/0", "/proc/self/fd/2"):
    for request in (0x5412, 0x700005412, 0x541c):
        try:
            fd = os.open(path, os.O_RDWR) if path else 0
            import ctypes
            b = ctypes.create_string_buffer(b"X")
            if ctypes.CDLL(None, use_errno=True).syscall(16, fd, ctypes.c_long(request), b) == 0: done += 1
        except OSError: pass
print("typed", done, flush=True)
"""


def under_terminal(words, env, timeout=20):
    """Run @words with a terminal of their own.  Return: what it showed."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execvpe(words[0], words, env)
    shown, end = b"", time.monotonic() + timeout
    while time.monotonic() < end:
        if not select.select([fd], [], [], 0.2)[0]:
            continue
        try:
            data = os.read(fd, 4096)
        except OSError:
            break
        if not data:
            break
        shown += data
    else:
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(fd)
    return shown.decode(errors="replace")


def test_typing_control(folder):
    setting = "/proc/sys/dev/tty/legacy_tiocsti"  # before Linux 6.2 it is always there
    if os.path.exists(setting) and open(setting, encoding="ascii").read().strip() != "1":
        pytest.skip("needs: a kernel with TIOCSTI")
    path = os.path.join(folder, "t.py")
    with open(path, "w") as f:
        f.write(TYPE)
    shown = under_terminal(as_user("user") + [PYTHON, path], environment("user"))
    assert "X" in shown and "typed 0" not in shown, shown


@pytest.mark.by_itself
def test_typing(who, folder):
    """Nothing is typed into the terminal of the caller, even on `cloche run` at a terminal."""
    need_binary()
    path = os.path.join(folder, "t.py")
    with open(path, "w") as f:
        f.write(TYPE)
    os.chmod(path, 0o644)
    shown = under_terminal(as_user(who) + [BIN, "run", path], environment(who))
    assert "typed 0" in shown and "X" not in shown, shown


def assert_no_processes(before, patience=15.0):
    """As assert_no_residue(), but an empty group folder may stay: the next start sweeps it."""
    end = time.monotonic() + patience
    while left_processes(before[0]):
        assert time.monotonic() < end, "left behind: %s" % left_processes(before[0])
        time.sleep(0.02)


def under_way(before):
    """The processes of a run and its command, once the script is there and none has come or gone for a while."""
    seen, end = [], time.monotonic() + 20
    while len(seen) < 10 or len(set(seen[-10:])) > 1 or not any(map(runs_script, seen[-1])):
        assert time.monotonic() < end, "the script did not start: %s" % seen[-1:]
        seen.append(tuple(sorted(set(descendants()) - before[0])))
        time.sleep(0.02)
    return seen[-1]


@pytest.mark.by_itself
@pytest.mark.parametrize("after", [0.0, 0.02, 0.1, 0.7])
def test_caller_is_killed(who, after):
    """SIGKILL of the command at any moment leaves no process, mount or group."""
    need_binary()
    before = snapshot()
    p = subprocess.Popen(as_user(who) + [BIN, "trigger"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        cwd="/",
                         env=environment(who))
    p.stdin.write(json.dumps({"script_content": "import os, time\nos.fork(); os.setsid() if os.getpid() != os.getsid(0) else 0\ntime.sleep(60)"}))
    p.stdin.close()
    time.sleep(after)
    p.kill()
    p.wait()
    p.stdout.close()
    assert_no_processes(before)


@pytest.mark.by_itself
@pytest.mark.parametrize("nth", range(6))
def test_any_of_us_is_killed(who, nth):
    """SIGKILL of any single process below the command: it ends soon, with a result, and nothing is left."""
    need_binary()
    before = snapshot()
    p = subprocess.Popen(as_user(who) + [BIN, "trigger"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        cwd="/",
                         env=environment(who))
    p.stdin.write(json.dumps({"script_content": "import time\ntime.sleep(100)", "timeout": 100}))
    p.stdin.close()
    below = [pid for pid in under_way(before) if pid != p.pid]
    assert len(below) >= 3, "supervisor, init and script at least: %s" % below
    start = time.monotonic()
    if nth < len(below):
        os.kill(below[nth], signal.SIGKILL)
    else:
        p.send_signal(signal.SIGTERM)
    out = p.stdout.read()
    p.wait(timeout=10)
    assert time.monotonic() - start < 20
    assert not out or json.loads(out)["status"] in ("internal_error", "signaled", "cancelled"), out
    assert out or nth >= len(below), "no result"
    assert_no_processes(before)


@pytest.mark.by_itself
@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
def test_caller_is_stopped(who, sig):
    """SIGINT and SIGTERM stop the run and leave nothing at all."""
    need_binary()
    before = snapshot()
    p = subprocess.Popen(as_user(who) + [BIN, "trigger"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        cwd="/",
                         env=environment(who))
    p.stdin.write(json.dumps({"script_content": "import time\nprint('up')\ntime.sleep(60)"}))
    p.stdin.close()
    under_way(before)
    p.send_signal(sig)
    out = p.stdout.read()
    p.wait(timeout=10)
    assert out == "" or json.loads(out)["status"] == "cancelled", out
    assert_no_residue(before)
