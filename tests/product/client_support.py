# SPDX-License-Identifier: Apache-2.0
"""For the tests of client/python/cloche.py: the module, servers, and a program of a caller's that uses it."""
import shutil
import subprocess
import sys
import textwrap

import pytest

from harness import REPO, SYSTEM_PYTHON
from serving import Server

sys.path.insert(0, str(REPO / "client/python"))

MODULE = REPO / "client/python/cloche.py"
SLEEP = "import os, time\nos.write(1, b'begun\\n')\ntime.sleep(300)"
PRELUDE = """
import asyncio, faulthandler, itertools, json, os, pathlib, sys, threading, time, warnings
faulthandler.dump_traceback_later(50, exit=True)
warnings.simplefilter("error")
import cloche
def fds(): return len(os.listdir("/proc/self/fd"))
def raises(kind, call, *args, **kw):
    try:
        call(*args, **kw)
    except kind as e:
        return e
    raise AssertionError(f"{call} did not raise {kind}")
def running():
    with cloche.Client(where) as c:
        c.environments()
        from cloche import _finish_here
        return _finish_here(c._where.environments(), None)["server"]["running"]
where = sys.argv[1]
"""


@pytest.fixture(scope="module")
def servers(callers):
    """One for each caller, for all tests of a file that leave it as it was"""
    made = {name: Server(w) for name, w in callers.items()}
    yield made
    for s in made.values():
        s.__exit__()


@pytest.fixture
def server(who, servers):
    return servers["root" if who.is_root else "user"]


def client(who, where, code, *args, env=None, timeout=60):
    """@code as @who, with the module where @who can read it; what it prints"""
    folder = who.folder()
    for source in (MODULE,):
        shutil.copy(source, folder / source.name)
        (folder / source.name).chmod(0o644)
    path = folder / "user.py"
    path.write_text(PRELUDE + textwrap.dedent(code))
    path.chmod(0o644)
    p = subprocess.run([*who.prefix(), SYSTEM_PYTHON, "-B", "-X", "dev", str(path), str(where), *map(str, args)],
                       env=who.env({"PYTHONPATH": str(folder), **(env or {})}), cwd=folder, capture_output=True,
                       timeout=timeout)
    assert p.returncode == 0, p.stderr.decode()[-3000:]
    assert p.stderr == b"", p.stderr.decode()[-3000:]
    return p.stdout.decode()
