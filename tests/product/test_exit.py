# SPDX-License-Identifier: Apache-2.0
"""Exit codes of scripts, and what `cloche run` itself exits with."""
import time

import pytest

from harness import Result, strict_json

LEAK = "import time\nkept = []\nwhile True:\n    kept.append(b'x' * (1 << 20))\n    time.sleep(0.004)\n"


@pytest.mark.parametrize("statement,code,stderr", [
    ("sys.exit()", 0, ""), ("sys.exit(None)", 0, ""), ("sys.exit(0)", 0, ""), ("sys.exit(3)", 3, ""),
    ("sys.exit(True)", 1, ""), ("sys.exit(256)", 0, ""), ("sys.exit(-1)", 255, ""), ("sys.exit(2**40)", 0, ""),
    ("sys.exit('m')", 1, "m\n"), ("sys.exit(3.5)", 1, "3.5\n"), ("os._exit(300)", 44, ""),
    ("raise SystemExit(7)", 7, ""),
    ("raise ValueError('boom')", 1, None), ("1/0", 1, None), ("raise KeyboardInterrupt", -2, None),
])
def test_exit_code_table(who, statement, code, stderr):
    r = who.trigger(f"import sys, os\n{statement}")
    assert r.return_code == code
    if stderr is not None:
        assert r.stderr == stderr
    else:
        assert r.stderr.startswith("Traceback (most recent call last):\n  File \"/tmp/unnamed_script.py\", line 2")


@pytest.mark.parametrize("script,options,status", [
    ("pass", (), 0), ("import sys; sys.exit(3)", (), 3), ("import os; os._exit(137)", (), 137),
    ("import os; os.kill(os.getpid(), 15)", (), 143), ("import os; os.kill(os.getpid(), 9)", (), 137),
    ("import ctypes; ctypes.string_at(0)", (), 139), ("while True: pass", ("--timeout", "0.5"), 124),
    ("while True: pass", ("--cpu-time", "1", "--timeout", "30"), 137), (LEAK, ("--memory", "64m"), 137),
    ("while True: print('x' * 65536)", (), 137), ("import ctypes", ("--screen-reject", "ctypes"), 125),
])
@pytest.mark.parametrize("json_too", [False, True])
def test_exit_status_of_run(who, script, options, status, json_too):
    p = who.run(script, *options, *(["--json"] if json_too else []))
    assert p.returncode == status, (p.stdout[:500], p.stderr[:500])
    if json_too:
        Result(strict_json(p.stdout))


def test_exit_status_when_there_is_nothing_to_run(who):
    missing = who.cloche("run", who.home / "no-such-script.py")
    assert missing.returncode == 127 and b"no-such-script.py" in missing.stderr
    assert who.cloche("run", who.folder()).returncode == 126
    if not who.is_root:
        p = who.cloche("run", who.file("pass", mode=0))
        assert p.returncode == 126 and b"script.py" in p.stderr
    p = who.run("pass", "--environment", "no-such-environment")
    assert p.returncode == 127 and b"no-such-environment" in p.stderr
    assert who.cloche("run").returncode == 2
    assert who.cloche("run", "--no-such-option", who.file("pass")).returncode == 2
    assert who.cloche("no-such-command").returncode == 2


@pytest.mark.parametrize("python,status", [("/nonexistent/python3", 127), ("/etc/passwd", 126), ("/usr", 126)])
def test_exit_status_when_the_interpreter_is_broken(who, python, status):
    config = who.file(f"[environment broken]\npython = {python}\n", "cloche.ini")
    p = who.cloche("run", "--environment", "broken", who.file("print('ran')"), env={"CLOCHE_CONFIG": str(config)})
    assert (p.returncode, p.stdout) == (status, b""), p
    assert python.encode() in p.stderr and p.stderr.count(b"\n") <= 2


def test_run_copies_bytes_and_says_why(who):
    p = who.run("import sys\nsys.stdout.buffer.write(bytes(range(256)))\nsys.stderr.write('err\\n')\nsys.exit(9)")
    assert (p.returncode, p.stdout) == (9, bytes(range(256))) and b"err\n" in p.stderr
    p = who.run("print('x')\nwhile True: pass", "--timeout", "1.5")
    assert p.stdout == b"x\n" and b"1.5" in p.stderr
    p = who.run("print('x')\nwhile True: pass", "--timeout", "1.5", "-q")
    assert (p.returncode, p.stdout, p.stderr) == (124, b"x\n", b"")


def test_run_streams_as_it_comes(who):
    path = who.file("import time\nprint('first')\ntime.sleep(30)")
    p = who.popen("run", path, stdin=-3, stdout=-1, stderr=-1)
    try:
        start = time.monotonic()
        assert p.stdout.readline() == b"first\n"
        assert time.monotonic() - start < 15
    finally:
        p.terminate()
        p.communicate(timeout=10)


def test_run_gives_options_and_arguments_to_whom_they_belong(who):
    p = who.run("import sys\nprint(sys.argv[1:])", args=("--timeout", "0", "-h", "--", "a b"))
    assert p.stdout == b"['--timeout', '0', '-h', '--', 'a b']\n"
    p = who.cloche("run", "-", "x", input=b"import sys\nprint(sys.argv[1:], sys.stdin.read() == '')")
    assert p.stdout == b"['x'] True\n"
