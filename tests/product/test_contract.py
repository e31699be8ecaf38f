# SPDX-License-Identifier: Apache-2.0
"""The promise itself: the mission's example, every status for real, every result field."""
import base64
import json
import os
import re
import signal
import time

import pytest

from harness import BECOME_SLEEP, Result, strict_json, tree

MIB = 1 << 20
HELLO = {"script_content": "print('Hello from Python!')\nimport sys\nsys.exit(1)", "script_name": "hello_world.py",
         "timeout": 10}


def host_memory():
    with open("/proc/meminfo") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("MemAvailable"))


# ---- the mission -------------------------------------------------------------------------------------------------

def test_mission_example(who):
    results = [who.take_result(who.trigger_raw(HELLO)) for _ in range(5)]
    for r in results:
        assert (r.stdout, r.stderr, r.return_code) == ("Hello from Python!\n", "", 1)
        assert isinstance(r.execution_time, float)
        assert (r.status, r.script_name) == ("error", "hello_world.py")
    assert 0 < min(r.execution_time for r in results) < 0.1


def test_request_from_a_file(who):
    path = who.file(json.dumps(HELLO), "request.json")
    r = who.take_result(who.cloche("trigger", "--request", path))
    assert (r.stdout, r.return_code) == ("Hello from Python!\n", 1)


def test_defaults(who):
    r = who.trigger("print('x')")
    assert (r.verdict, r.script_name, r.mode) == (("ok", 0), "unnamed_script.py", who.mode)
    assert (r.stdout_bytes, r.stderr_bytes, r.artifacts) == (2, 0, [])
    assert not (r.stdout_truncated or r.stderr_truncated or r.stdout_encoding_errors or r.stderr_encoding_errors)


def test_run_ids_differ(who):
    assert len({who.trigger("pass").run_id for _ in range(5)}) == 5


# ---- statuses ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("code", [1, 2, 77, 124, 125, 126, 127, 128, 130, 137, 139, 255])
def test_error_keeps_the_number(who, code):
    """137 is an exit code like any other: never guess from a number."""
    r = who.trigger(f"import os\nos._exit({code})")
    assert r.verdict == ("error", code)
    assert str(code) in r.message


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGTERM", "SIGKILL", "SIGABRT", "SIGHUP", "SIGXCPU", "SIGSYS"])
def test_signaled_by_itself(who, name):
    number = getattr(signal, name)
    r = who.trigger(f"import os\nprint('before')\nos.kill(os.getpid(), {int(number)})")
    assert (r.verdict, r.signal, r.stdout) == (("signaled", -number), name, "before\n")
    assert name in r.message


def test_signaled_real_crash(who):
    r = who.trigger("import ctypes\nctypes.string_at(0)")
    assert (r.verdict, r.signal) == (("signaled", -11), "SIGSEGV")


def test_signaled_realtime(who):
    r = who.trigger("import os, signal\nos.kill(os.getpid(), signal.SIGRTMIN + 2)")
    assert r.verdict == ("signaled", -(int(signal.SIGRTMIN) + 2))
    assert r.signal == "SIGRTMIN+2"


def test_interrupt_is_what_python_makes_of_it(who):
    r = who.trigger("import os, signal\nos.kill(os.getpid(), signal.SIGINT)")
    assert "KeyboardInterrupt" in r.stderr
    assert r.verdict == ("signaled", -2)


TIMEOUTS = {
    "sleeping": "import time\ntime.sleep(60)",
    "busy": "while True: pass",
    "deaf": "import signal, time\nfor s in range(1, 65):\n    try: signal.signal(s, signal.SIG_IGN)\n"
            "    except (OSError, ValueError): pass\nwhile True: time.sleep(1)",
    "stopped": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    "in-c": "import re\nre.match(r'(a+)+$', 'a' * 64 + 'b')",
    "at-exit": "import atexit, time\natexit.register(time.sleep, 60)",
    "thread": "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()",
    "forked": "import os, time\nfor _ in range(4):\n    if os.fork() == 0:\n        while True: pass\ntime.sleep(60)",
}


@pytest.mark.parametrize("kind", TIMEOUTS)
def test_timeout(who, kind):
    start = time.monotonic()
    r = who.trigger("import sys\nprint('partial')\nprint('trouble', file=sys.stderr)\n" + TIMEOUTS[kind], timeout=1.5)
    wall = time.monotonic() - start
    assert r.verdict == ("timeout", -9)
    assert (r.stdout, r.stderr) == ("partial\n", "trouble\n"), "what was printed before is there"
    assert 1.5 <= r.execution_time < 10
    assert wall < 20
    assert "1.5" in r.message


def test_ending_in_time_wins(who):
    """A script that ends by itself shortly before its time is up is itself; never something in between."""
    for _ in range(3):
        r = who.trigger("import time\nprint('x')\ntime.sleep(0.45)", timeout=0.5)
        assert r.verdict in (("ok", 0), ("timeout", -9)), r
        assert r.stdout == "x\n" or r.status == "timeout"


def test_cpu_limit(who):
    r = who.trigger("print('x')\nwhile True: pass", limits={"cpu_seconds": 1}, timeout=30)
    assert r.verdict == ("cpu_limit", -9)
    assert r.stdout == "x\n"
    assert 0.8 <= r.cpu_time < 2.5 and r.execution_time < 20
    assert "1" in r.message and "CPU" in r.message.upper()


def test_cpu_limit_counts_children(who):
    script = ("import os, time\nfor _ in range(3):\n    if os.fork() == 0:\n        while True: pass\n"
              "time.sleep(60)")
    r = who.trigger(script, limits={"cpu_seconds": 1}, timeout=20)
    assert r.verdict == ("cpu_limit", -9)
    assert r.cpu_time < 3.5


def test_sleeping_costs_no_cpu(who):
    r = who.trigger("import time\ntime.sleep(1.2)", limits={"cpu_seconds": 1}, timeout=20)
    assert r.verdict == ("ok", 0)


LEAK = "import time\nkept = []\nwhile True:\n    kept.append(b'x' * (1 << 20))\n    time.sleep(0.004)\n"


def test_memory_limit_by_a_slow_leak(who, is_sampled):
    r = who.trigger("print('x')\n" + LEAK, limits={"memory_bytes": 64 * MIB}, timeout=30)
    assert r.verdict == ("memory_limit", -9)
    assert r.stdout == "x\n"
    assert "memory" in r.message.lower() and re.search(r"64|67108864", r.message), r.message
    assert r.is_sampled == is_sampled
    if r.peak_memory_bytes is not None:
        assert 40 * MIB < r.peak_memory_bytes < (400 if is_sampled else 65) * MIB


def test_memory_limit_by_one_big_object(who, is_sampled):
    r = who.trigger("print('x')\nb = bytearray(8 << 30)\nprint('still here')", timeout=60)
    assert r.stdout == "x\n", "8 GiB can't be had under the default limit"
    if r.status == "error":
        # allowed only where no cgroup holds memory (RLIMIT_DATA is the backstop) or the host has no 8 GiB to promise
        assert is_sampled or host_memory() < 9 << 30, r
        assert r.return_code == 1 and "MemoryError" in r.stderr
    else:
        assert r.verdict == ("memory_limit", -9)
    assert r.is_sampled == is_sampled


def test_memory_limit_struck_in_a_child(who):
    """Whichever process the kernel picks, the run ends, with the same verdict; nobody waits for a dead worker."""
    script = ("import os, sys\nif os.fork() == 0:\n" + "".join("    " + line + "\n" for line in LEAK.splitlines()) +
              "print('parent waits')\nos.wait()\nprint('parent goes on')\n")
    start = time.monotonic()
    r = who.trigger(script, limits={"memory_bytes": 64 * MIB}, timeout=30)
    assert r.verdict == ("memory_limit", -9)
    assert r.stdout == "parent waits\n"
    assert time.monotonic() - start < 20


def test_memory_limit_in_a_pool_worker(who):
    script = ("from multiprocessing import Pool\nimport time\ndef eat(_):\n    kept = []\n    while True:\n"
              "        kept.append(b'x' * (1 << 20))\n        time.sleep(0.004)\n"
              "if __name__ == '__main__':\n    with Pool(2) as p:\n        p.map(eat, [1, 2])\n")
    r = who.trigger(script, limits={"memory_bytes": 96 * MIB}, timeout=30)
    assert r.verdict == ("memory_limit", -9)


@pytest.mark.parametrize("folder", ["/tmp", "/dev/shm"])
def test_memory_limit_counts_tmpfs(who, folder):
    script = (f"import time\nprint('x')\nf = open('{folder}/big', 'wb')\n"
              "for _ in range(200):\n    f.write(b'y' * (1 << 20))\n    f.flush()\n    time.sleep(0.002)\n"
              "print('all written')\n")
    r = who.trigger(script, limits={"memory_bytes": 64 * MIB, "disk_bytes": 256 * MIB}, timeout=30)
    assert r.verdict == ("memory_limit", -9)
    assert r.stdout == "x\n"


def test_memory_that_forks_share_counts_once(who):
    script = ("import os, time\nkept = b'x' * (96 << 20)\nfor _ in range(6):\n    if os.fork() == 0:\n"
              "        n = kept.count(b'x')\n        time.sleep(0.3)\n        os._exit(0)\n"
              "for _ in range(6): os.wait()\nprint('fine')\n")
    r = who.trigger(script, limits={"memory_bytes": 256 * MIB}, timeout=30)
    assert (r.verdict, r.stdout) == (("ok", 0), "fine\n")


def test_killing_itself_while_big_is_no_memory_verdict(who):
    r = who.trigger("import os\nb = b'x' * (40 << 20)\nos.kill(os.getpid(), 9)", limits={"memory_bytes": 64 * MIB})
    assert (r.verdict, r.signal) == (("signaled", -9), "SIGKILL")


FLOODS = {
    "stdout": "while True: print('abcdefghij')",
    "stderr": "import sys\nwhile True: sys.stderr.write('abcdefghij' * 100)",
    "both": "import os\nwhile True:\n    os.write(1, b'o' * 5000)\n    os.write(2, b'e' * 5000)",
    "child": "import os\nif os.fork() == 0:\n    while True: os.write(1, b'c' * 65536)\nos.wait()",
}


@pytest.mark.parametrize("kind", FLOODS)
def test_output_limit(who, kind):
    hard = 2 * MIB
    r = who.trigger(FLOODS[kind], timeout=30, limits={"output_bytes": 4096, "output_bytes_hard": hard})
    assert r.verdict == ("output_limit", -9)
    assert hard <= r.stdout_bytes + r.stderr_bytes <= hard + 4 * MIB
    for name in ("stdout", "stderr"):
        written, text = r.obj[name + "_bytes"], r.obj[name]
        assert r.obj[name + "_truncated"] == (written > 4096)
        assert len(text) <= 4096 + 60 and (len(text) > 3900) == (written > 4096)
    assert "output" in r.message.lower() and re.search(r"2097152|2(\.0)? ?MiB", r.message), r.message


def test_output_limit_by_default_ends_soon(who):
    start = time.monotonic()
    r = who.trigger("import os\nwhile True: os.write(1, b'x' * 65536)")
    assert r.verdict == ("output_limit", -9)
    assert r.stdout_bytes >= 64 * MIB and len(r.stdout) <= MIB + 60
    assert time.monotonic() - start < 20


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_cancelled(who, residue, number):
    p = who.popen("run", "--json", who.file("print('begun')\n" + BECOME_SLEEP), residue.mark)
    residue.asleep(p.pid)
    p.send_signal(number)
    out, err = p.communicate(timeout=20)
    r = Result(strict_json(out))
    assert (r.verdict, r.stdout, p.returncode) == (("cancelled", -9), "begun\n", 130)
    residue.assert_none()


def test_rejected(who):
    code, r = who.run_json("print('ran')\nimport ctypes\n", "--screen-reject", "ctypes")
    assert (code, r.verdict, r.stdout, r.stderr) == (125, ("rejected", -125), "", "")
    assert "ctypes" in r.message and "2" in r.message


def test_internal_error_when_the_supervisor_is_killed(who, residue):
    """Each process of ours but the caller's own, killed from outside: never an invented claim about the script."""
    def start():
        body = {"script_content": "import time\nprint('x')\ntime.sleep(60)", "args": [residue.mark]}
        p = who.popen("trigger", "--request", who.file(json.dumps(body), "r.json"))
        script = residue.script(p.pid)
        return p, [pid for pid in tree(p.pid) if pid not in (p.pid, script)]

    p, ours = start()
    n = len(ours)
    assert n >= 1
    for i in range(n):
        if i:
            p, ours = start()
        os.kill(ours[i], signal.SIGKILL)
        out, err = p.communicate(timeout=10)
        r = Result(strict_json(out))
        assert (p.returncode, r.verdict) == (0, ("internal_error", -125)), (i, r, err)
        assert r.message
        residue.assert_none(may_leave_empty_cgroup=True)
    assert who.trigger("print(1)").stdout == "1\n", "the next run works"


# ---- fields ------------------------------------------------------------------------------------------------------

def test_every_field_says_something(who):
    """A value that is not the empty one for every field but `denials`, provoked."""
    script = """
import os, sys, time, ctypes
open('/tmp/out.txt', 'w').write('made')
sys.stdout.buffer.write(b'A' * 3000 + b'\\xff')
sys.stderr.buffer.write(b'\\xfe' + b'B' * 3000)
sys.stdout.flush(), sys.stderr.flush()
end = time.process_time() + 0.1
while time.process_time() < end: pass
os.kill(os.getpid(), 15)
"""
    p = who.trigger_raw({"script_content": script, "script_name": "full.py", "artifacts": ["*.txt"], "output": "base64",
                         "limits": {"output_bytes": 1000}}, env={"CLOCHE_SCREEN_REPORT": "ctypes"})
    r = who.take_result(p)
    assert (r.verdict, r.signal, r.script_name, r.mode) == (("signaled", -15), "SIGTERM", "full.py", "cold")
    assert "SIGTERM" in r.message
    assert r.execution_time > 0.1 and r.cpu_time > 0.1 and r.queue_time > 0
    assert (r.stdout_bytes, r.stderr_bytes) == (3001, 3001)
    assert r.stdout_truncated and r.stderr_truncated
    assert r.stdout_encoding_errors and r.stderr_encoding_errors
    assert "A" * 490 in r.stdout and "B" * 490 in r.stderr
    assert base64.b64decode(r.stdout_base64).endswith(b"A\xff")
    assert base64.b64decode(r.stderr_base64).startswith(b"\xfeB")
    assert r.peak_memory_bytes is None or MIB < r.peak_memory_bytes < 512 * MIB
    assert r.artifact("out.txt")["media_type"] == "text/plain" and r.artifact_bytes("out.txt") == b"made"
    assert any("ctypes" in w for w in r.warnings)


def test_peak_memory_is_known_where_memory_is_held(who, is_sampled):
    r = who.trigger("b = b'x' * (100 << 20)\nimport time\ntime.sleep(1)")
    assert r.peak_memory_bytes is not None, "this host's kernel can tell"
    assert 100 * MIB < r.peak_memory_bytes < 180 * MIB


def test_peak_memory_does_not_come_from_the_run_before(who):
    who.trigger("b = b'x' * (200 << 20)")
    r = who.trigger("pass")
    assert r.peak_memory_bytes is None or r.peak_memory_bytes < 60 * MIB


def test_times(who):
    r = who.trigger("import time\ntime.sleep(0.5)")
    assert 0.5 <= r.execution_time < 8
    assert r.cpu_time < 0.4
    assert r.queue_time < 8
    r = who.trigger("import time\nend = time.process_time() + 0.4\nwhile time.process_time() < end: pass")
    assert 0.4 <= r.cpu_time < 0.8 and r.execution_time >= 0.4


def test_execution_time_is_the_main_process_s(who):
    start = time.monotonic()
    r = who.trigger("import subprocess\nsubprocess.Popen(['sleep', '300'])\nprint('hi')")
    wall = time.monotonic() - start
    assert (r.verdict, r.stdout) == (("ok", 0), "hi\n")
    assert r.execution_time < 8 and wall < 15, "a grandchild that holds the pipe delays nothing"


def test_daemon_that_left_the_session_is_gone_too(who, residue):
    script = ("import os, sys, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
              "        os.execv('/bin/sleep', ['sleep-' + sys.argv[1], '300'])\n    os._exit(0)\nos.wait()\n"
              "time.sleep(0.2)\nprint('done')")
    r = who.trigger(script, args=[residue.mark])
    assert (r.verdict, r.stdout) == (("ok", 0), "done\n")
    residue.assert_none()


def test_what_comes_after_the_end_is_not_there(who):
    """A run ends when the main process ends; what it wrote itself is complete."""
    script = ("import os, time\nif os.fork() == 0:\n    time.sleep(0.3)\n    os.write(1, b'late')\n    os._exit(0)\n"
              "os.write(1, b'z' * 60000)\n")
    r = who.trigger(script)
    assert r.stdout == "z" * 60000


# ---- output ------------------------------------------------------------------------------------------------------

def test_truncation_keeps_head_and_tail(who):
    r = who.trigger("print('A' * 5000 + 'B' * 5000, end='')", limits={"output_bytes": 1000})
    assert r.stdout_truncated and not r.stderr_truncated and r.stdout_bytes == 10000
    m = re.fullmatch(r"(A+)\s?\[\.\.\. (\d+) bytes left out \.\.\.\]\s?(B+)", r.stdout)
    assert m, r.stdout
    assert (len(m[1]), len(m[3])) == (500, 500) and int(m[2]) == 9000


def test_truncation_at_character_edges(who):
    for character in ("\u00e9", "\u4e2d", "\U0001f40d"):
        r = who.trigger(f"print({character!r} * 5000, end='')", limits={"output_bytes": 1001})
        assert r.stdout_truncated and not r.stdout_encoding_errors
        m = re.fullmatch(rf"({character}+)\s?\[\.\.\. (\d+) bytes left out \.\.\.\]\s?({character}+)", r.stdout)
        assert m, r.stdout
        size = len(character.encode())
        assert (len(m[1]) + len(m[3])) * size + int(m[2]) == r.stdout_bytes == 5000 * size
        assert 980 <= (len(m[1]) + len(m[3])) * size <= 1001


def test_exactly_the_limit_is_not_truncated(who):
    r = who.trigger("print('x' * 1000, end='')", limits={"output_bytes": 1000})
    assert r.stdout == "x" * 1000 and not r.stdout_truncated


def test_a_million_characters_in_one_write(who):
    r = who.trigger("print('x' * 1_000_000)")
    assert r.stdout == "x" * 1000000 + "\n" and r.verdict == ("ok", 0)


def test_invalid_utf8(who):
    r = who.trigger("import sys\nsys.stdout.buffer.write(b'ok\\xff\\n')\n"
                    "sys.stderr.buffer.write(b'\\xe4\\xb8 \\xed\\xa0\\x80')")
    assert r.stdout == "ok\ufffd\n" and r.stdout_encoding_errors
    assert r.stderr == b"\xe4\xb8 \xed\xa0\x80".decode("utf-8", "replace") and r.stderr_encoding_errors


def test_a_real_replacement_character_is_no_error(who):
    r = who.trigger("print('\\ufffd')")
    assert r.stdout == "\ufffd\n" and not r.stdout_encoding_errors


def test_nul_and_control_characters(who):
    r = who.trigger("print('a\\0b\\x1b[31m\\x07\\x7f\\u202e\\u2028')")
    assert r.stdout == "a\0b\x1b[31m\x07\x7f\u202e\u2028\n"


def test_base64_output_is_every_byte(who):
    r = who.trigger("import sys\nsys.stdout.buffer.write(bytes(range(256)) * 10)\nsys.stderr.buffer.write(b'\\0\\xff')",
                    output="base64")
    assert base64.b64decode(r.stdout_base64) == bytes(range(256)) * 10
    assert base64.b64decode(r.stderr_base64) == b"\0\xff"
    assert r.stdout_encoding_errors


def test_text_output_has_no_base64(who):
    assert "stdout_base64" not in who.trigger("print(1)").obj


def test_no_in_band_protocol(who):
    """What looks like a result or a marker is text like any other."""
    lines = ['{"return_code":0,"status":"ok"}', "[... 5 bytes left out ...]", "end", "\x04", "---", "0 1"]
    r = who.trigger(f"import sys\nfor l in {lines!r}: print(l)\nsys.exit(3)")
    assert r.verdict == ("error", 3) and r.stdout == "".join(line + "\n" for line in lines)
    assert not r.stdout_truncated


def test_closed_and_replaced_descriptors(who):
    r = who.trigger("import os\nprint('a')\nos.close(1)\nos.close(2)\nos._exit(5)")
    assert r.verdict == ("error", 5) and r.stdout == "a\n"
    r = who.trigger("import os\nos.dup2(1, 2)\nos.write(2, b'to stdout')")
    assert (r.stdout, r.stderr) == ("to stdout", "")
