# SPDX-License-Identifier: Apache-2.0
"""An answer does not wait until the kernel has taken the script's memory apart; it is as true as one that waits."""
import contextlib
import random

import pytest

from serving import Native, Server, request, until_warm

ROUNDS = 12
SIGNAL = "import os, signal, sys\nsys.stdout.write('said')\nsys.stdout.flush()\nos.kill(os.getpid(), signal.%s)"
ENDS = {  # the script, its return_code and what it wrote
    "falls off its end": ("print('said')", 0, "said\n"),
    "sys.exit": ("import sys\nprint('said')\nsys.exit(3)", 3, "said\n"),
    "sys.exit, cut to a byte": ("raise SystemExit(300)", 44, ""),
    "os._exit": ("import os\nos.write(1, b'said')\nos._exit(7)", 7, "said"),
    "exit of the thread alone": ("import ctypes, os\nos.write(1, b'said')\nctypes.CDLL(None).syscall(60, 9)", 9, "said"),
    "from another thread": ("import os, threading, time\nthreading.Thread(target=lambda: os._exit(11)).start()\ntime.sleep(9)", 11, ""),
    "an exception": ("print('said')\n1 / 0", 1, "said\n"),
    "SIGKILL": (SIGNAL % "SIGKILL", -9, "said"),
    "SIGSEGV": (SIGNAL % "SIGSEGV", -11, "said"),
    "another program": ("import os\nos.execv('/bin/sh', ['sh', '-c', 'echo said; exit 5'])", 5, "said\n"),
    "a full pipe": ("import os\nos.write(1, b'x' * 65536)\nos._exit(6)", 6, "x" * 65536),
    "much memory": ("import os\nb = bytearray(b'x') * (100 << 20)\nos.write(1, b'said')\nos._exit(4)", 4, "said"),
    "a child is left": ("import os, time\nif os.fork() == 0:\n    time.sleep(60)\nos.write(1, b'said')\nos._exit(2)", 2, "said"),
    "a child ends at the same time": ("import os\nos.write(1, b's')\nos._exit(9 if os.fork() == 0 else 12)", 12, "s"),
    "a program that nobody may read": ("import os, shutil\nshutil.copy('/bin/sh', 'sh')\nos.chmod('sh', 0o111)\n"
                                       "os.execv('./sh', ['sh', '-c', 'echo said; exit 21'])", 21, "said\n"),
}


@pytest.fixture
def server(who):
    with Server(who) as running:
        yield running


@pytest.mark.parametrize("mode", ["warm", "cold"])
def test_every_end_is_told_as_it_is(server, mode):
    """In any order, many times: the moment at which an end is seen differs from run to run."""
    order = [name for name in ENDS for _ in range(ROUNDS)]
    random.Random(4).shuffle(order)
    with Native(server.path) as n:
        until_warm(lambda: n.run(request("pass")).mode, 30)
        for name in order:
            script, code, stdout = ENDS[name]
            r = n.run(request(script, mode=mode))
            assert (r.return_code, r.stdout, r.mode) == (code, stdout, mode), (name, r)
            assert r.status == ("ok" if code == 0 else "error" if code > 0 else "signaled"), (name, r)
            assert ("ZeroDivisionError" in r.stderr) == (name == "an exception"), (name, r)


def test_what_asks_for_more_than_a_status_waits(server):
    with Native(server.path) as n:
        until_warm(lambda: n.run(request("pass")).mode, 30)
        for i in range(ROUNDS):
            r = n.run(request(f"open('/tmp/a.txt', 'w').write('{i}')\nraise SystemExit({i})", artifacts=["*.txt"]))
            assert (r.return_code, r.artifact_bytes("a.txt")) == (i, str(i).encode()), r


def test_the_next_run_in_its_place_is_fresh(server):
    """One after the other as fast as they come: nothing of a sandbox that is still being cleared away is seen."""
    with Native(server.path) as n:
        until_warm(lambda: n.run(request("pass")).mode, 30)
        for i in range(60):
            r = n.run(request("import os\nprint(os.listdir('/tmp'), sorted(p for p in os.listdir('/proc') if p.isdigit()))\n"
                              "open('/tmp/left', 'w').write('x')\nos._exit(%d)" % (i % 5)))
            assert (r.return_code, "left" in r.stdout) == (i % 5, False), r


def test_more_output_than_allowed_at_the_very_end(who):
    """What a script wrote is its own, whoever else's answer goes out meanwhile."""
    with Server(who) as server, contextlib.ExitStack() as stack:
        quick = [stack.enter_context(Native(server.path)) for _ in range(3)]
        n = stack.enter_context(Native(server.path))
        until_warm(lambda: n.run(request("print(1)")).mode)
        for q in quick:
            q.start(request("print('q')"))
        for _ in range(60):
            n.start(request("print('x' * 50)", limits={"output_bytes_hard": 10}))
            for q in quick:
                assert q.answer().stdout == "q\n"
                q.start(request("print('q')"))
            r = n.answer()
            assert r.stdout.rstrip() == "x" * 50, r  # or it was killed before it could end the line
        for q in quick:
            q.answer()


def test_cpu_time_is_told_to_the_end(who):
    """Also what a script used after the kernel's last tick, with its answer on the way before it has ended."""
    with Server(who) as server, Native(server.path) as n:
        until_warm(lambda: n.run(request("print(1)")).mode)
        times = sorted(n.run(request("for _ in range(60000): pass")).cpu_time for _ in range(40))
        assert 0.0003 < times[20] < 0.1 and times[0] > times[20] / 4, times
