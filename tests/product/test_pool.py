# SPDX-License-Identifier: Apache-2.0
"""What a server keeps ready: how many, when, and with numpy and pandas in it."""
import contextlib
import os
import shutil
import subprocess
import time

import pytest

import harness
from harness import wait_for
from serving import Native, Server, request, until_warm, zygotes

CALM = 8
science = pytest.mark.skipif(not harness.python_has("numpy", "pandas"),
                             reason=f"{harness.SYSTEM_PYTHON} has no numpy, pandas: apt-get install python3-pandas")


def parked(n, name="default"):
    (found,) = [e for e in n.environments()["environments"] if e["name"] == name]
    return found.get("parked") or 0


def warm(n, **fields):
    until_warm(lambda: n.run(request("pass", **fields)).mode, 30)


@pytest.mark.once
def test_refilling_waits_for_running_scripts(who):
    """While a script runs only an empty shelf is filled, with one; afterwards it is filled up."""
    with Server(who, env={"CLOCHE_SERVER_POOL_MIN": str(CALM), "CLOCHE_SERVER_MAX_RUNNING": "2"}) as server:
        with Native(server.path) as n, Native(server.path) as long, Native(server.path) as quick:
            assert wait_for(lambda: parked(n) == CALM, 20), parked(n)
            long.start(request("import os, time\nos.write(1, b'up\\n')\ntime.sleep(6)"), flags=2)
            assert long.take()[2] == b"up\n"
            for _ in range(CALM - 1):
                assert quick.run(request("print(1)")).mode == "warm"
            seen = []
            end = time.monotonic() + 1.2
            while time.monotonic() < end:
                seen.append(parked(n))
                time.sleep(0.05)
            assert wait_for(lambda: parked(n) == 1, 3) and max(seen) <= 1, seen
            assert quick.run(request("print(1)")).mode == "warm", "one is always there, or made"
            r = long.answer()
            assert r.status == "ok" and r.execution_time < 12, r
            assert wait_for(lambda: parked(n) >= CALM), parked(n)


def test_limits_hold_where_many_are_kept(who):
    """Beyond the first 64 sandboxes what limits are written by is opened for that alone."""
    many = 70
    with Server(who, env={"CLOCHE_SERVER_POOL_MIN": str(many + 4), "CLOCHE_SERVER_POOL_MAX": str(many + 8),
                          "CLOCHE_SERVER_MAX_RUNNING": str(many + 4)}) as server:
        with contextlib.ExitStack() as stack:
            asleep = [stack.enter_context(Native(server.path)) for _ in range(many)]
            n = stack.enter_context(Native(server.path))
            assert wait_for(lambda: parked(n) >= many, 30), parked(n)
            for sleeper in asleep:
                sleeper.start(request("import time; time.sleep(60)", timeout=60))
            for mode in "warm", "cold":
                r = n.run(request("b = b'x' * (200 << 20)\nimport time\ntime.sleep(30)", mode=mode, limits={"memory_bytes": 100 << 20}))
                assert not isinstance(r, tuple), r  # refused
                assert (r.status, r.mode) == ("memory_limit", mode) or "MemoryError" in r.stderr, r
                r = n.run(request("print(1)", mode=mode, limits={"processes": 40, "cpus": 0.5}))
                assert (r.status, r.stdout, r.mode) == ("ok", "1\n", mode), r
                r = n.run(request("import threading, time\nfor i in range(60):\n    threading.Thread(target=time.sleep, args=(9,),"
                                  " daemon=True).start()", mode=mode, limits={"processes": 40}))
                assert r.status == "error" and "can't start new thread" in r.stderr, r


@pytest.mark.once
def test_little_memory_keeps_nothing_ready(hasty):
    """The shelf is emptied, and not filled again; forks on demand go on."""
    with Server(hasty, env={"CLOCHE_FAIL_STEP": "low-memory", "CLOCHE_SERVER_POOL_MIN": "4"}) as server:
        with Native(server.path) as n:
            warm(n)
            assert wait_for(lambda: parked(n) == 0), parked(n)
            assert n.run(request("print(1)")).mode == "warm"
            time.sleep(1.2)
            assert parked(n) <= 1
            assert wait_for(lambda: parked(n) == 0), parked(n)


@pytest.fixture
def sci(who):
    folder = who.folder()
    (folder / "cloche.ini").write_text("[environment default]\n[environment sci]\npreload = numpy pandas\n")
    with Server(who, env={"CLOCHE_CONFIG": str(folder / "cloche.ini")}) as server, Native(server.path) as n:
        warm(n, environment="sci")
        yield n


@science
def test_numpy_and_pandas_preloaded(sci):
    draw = ("import sys\nready = 'pandas' in sys.modules\nimport numpy, pandas\n"
            "print(ready, pandas.Series(numpy.arange(4.0)).sum())\n"
            "print(numpy.random.rand(), numpy.random.randint(1 << 60))\n"
            "print(numpy.random.default_rng().integers(1 << 60), numpy.random.RandomState().rand())\n"
            "print(numpy.random.SeedSequence().entropy, pandas.Series(range(99)).sample(1, random_state=None).sum(),"
            "numpy.random.get_state()[1][:4])")
    results = [sci.run(request(draw, environment="sci")) for _ in range(4)]
    assert {(r.status, r.mode, r.stderr) for r in results} == {("ok", "warm", "")}, results
    lines = list(zip(*(r.lines for r in results)))
    assert set(lines[0]) == {"True 6.0"}
    for drawn in lines[1:]:
        assert len(set(drawn)) == 4, drawn


@science
def test_nothing_of_the_host_is_preloaded(sci):
    """pandas asks for the host's name when it is imported, and platform keeps that."""
    script = "import os, platform, socket, pandas\nprint(platform.node(), socket.gethostname(), os.uname().nodename)"
    assert os.uname().nodename != "sandbox"
    for mode in "warm", "cold":
        assert sci.run(request(script, environment="sci", mode=mode)).stdout == "sandbox sandbox sandbox\n", mode


def test_cpu_seconds_of_parked_ones(who):
    """What a parked process has of them can be lowered, not raised; a job that wants more gets another one."""
    with Server(who, env={"CLOCHE_LIMITS_CPU_SECONDS": "10"}) as server, Native(server.path) as n:
        warm(n)
        for seconds in 60, 5, 10, 61:
            r = n.run(request("import resource; print(resource.getrlimit(resource.RLIMIT_CPU)[1])", mode="warm",
                              limits={"cpu_seconds": seconds}))
            assert (r.status, r.mode) == ("ok", "warm") and seconds <= int(r.stdout) <= seconds + 2, r


@pytest.fixture
def failing(who):
    """Makes a server whose default environment preloads a module with this text"""
    with contextlib.ExitStack() as stack:
        def start(text):
            folder = who.folder()
            (folder / "fails.py").write_text(text)
            config = (f"[environment default]\npaths = {folder}\nenv.PYTHONPATH = {folder}\npreload = fails\n"
                      "[server]\npool_min = 4\n")
            return stack.enter_context(Server(who, env={"CLOCHE_CONFIG": str(who.file(config, "cloche.ini"))}))
        yield start


def test_children_that_never_park_are_made_ever_later(failing):
    server = failing("import os\nos.register_at_fork(after_in_child=lambda: os._exit(3))\n")
    with Native(server.path) as n:
        time.sleep(3)
        (default,) = n.environments()["environments"]
        assert default["zygote_age"] and 3 <= default["zygote_runs"] < 40, default
        r = n.run(request("print(1)"))
        assert (r.status, r.stdout, r.mode) == ("ok", "1\n", "cold"), r


@pytest.mark.once
def test_a_zygote_that_dies_of_its_first_fork_is_started_ever_later(failing):
    server = failing("import os\nos.register_at_fork(before=lambda: os._exit(3))\n")
    seen = set()
    end = time.monotonic() + 12
    while time.monotonic() < end:
        seen |= set(zygotes(server.p.pid))
        time.sleep(0.02)
    assert 2 <= len(seen) <= 8, seen  # of a dozen seconds
    with Native(server.path) as n:
        assert n.run(request("print(1)")).mode == "cold"


def test_interpreters_behind_links_are_kept(who):
    """Two environments, one with an interpreter by a link whose target the other does not have: neither is replaced."""
    folder = who.folder() / "venv"
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", folder], check=True, timeout=60)
    (folder / "real").mkdir()
    shutil.copy(os.path.realpath("/usr/bin/python3"), folder / "real/python3")
    (folder / "bin/python3").unlink()
    (folder / "bin/python3").symlink_to(folder / "real/python3")
    config = f"[environment default]\n[environment linked]\npython = {folder}/bin/python3\n"
    with Server(who, env={"CLOCHE_CONFIG": str(who.file(config, "cloche.ini"))}) as server, Native(server.path) as n:
        warm(n)
        warm(n, environment="linked")
        before = sorted(zygotes(server.p.pid))
        end = time.monotonic() + 4
        while time.monotonic() < end:
            for name in "default", "linked":
                assert n.run(request("print(1)", environment=name)).mode == "warm"
        assert len(before) == 2 and sorted(zygotes(server.p.pid)) == before


@science
def test_preloaded_is_as_imported(sci):
    """The same of what a new interpreter imports, to the last digit"""
    script = ("import numpy as np, pandas as pd, io\nnp.random.seed(7)\nprint(np.random.rand(3))\n"
              "print(np.linalg.svd(np.random.RandomState(1).rand(4, 4))[1])\n"
              "print(pd.read_csv(io.StringIO('a,b\\n1,x\\n2,y')).groupby('b').a.sum(), pd.__version__)\n"
              "import warnings\nwarnings.warn('told')\nnp.float64(1) / np.float64(0)\n1 / np.array([0])\nraise ValueError(np)")
    a, b = (sci.run(request(script, environment="sci", mode=mode)) for mode in ("warm", "cold"))
    assert (a.mode, b.mode) == ("warm", "cold")
    assert (a.verdict, a.stdout, a.stderr) == (b.verdict, b.stdout, b.stderr)
