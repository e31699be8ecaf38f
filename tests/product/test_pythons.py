# SPDX-License-Identifier: Apache-2.0
"""
Other CPythons than the system's, as environments of a server: warm, and the same as a new interpreter of theirs.

Those that pyenv has here; on a machine without any it is a venv of the system's.
"""
import os
import pathlib
import re
import subprocess
import sys
import time

import pytest

from harness import SYSTEM_PYTHON, note
from serving import Native, Server, request

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "zygote"))
from scripts import SCRIPTS  # noqa: E402

ROOTS = (pathlib.Path("/root/.pyenv/versions"), pathlib.Path("/opt/pyenv/versions"), pathlib.Path.home() / ".pyenv/versions")
# root's server reads interpreters as nobody, who may not look into /root
VISIBLE = '''mount --bind "$1" "$0" && mount -t tmpfs -o mode=755 tmpfs /root && mkdir -p "$1" && mount --bind "$0" "$1" && shift &&
exec "$@"'''
# those of the zygote's tests that need neither options nor an interpreter of one version
NAMES = ["facts.py", "globals.py", "streams.py", "exception.py", "chained.py", "stdin.py", "cstdio.py"]
ENDS = {
    "exit": "import sys, atexit\natexit.register(print, 'at exit')\nsys.exit(3)",
    "text": "import sys\nsys.exit('enough')",
    "abort": "import os\nos.abort()",
    "thread": "import threading\nt = threading.Thread(target=lambda: 1 / 0)\nt.start()\nt.join()\nprint('main')",
    "del": "class A:\n    def __del__(self): print('gone')\na = A()\nf = open('/tmp/x', 'w')\nf.write('unclosed')",
    "recursion": "def f(n):\n    try: return f(n + 1)\n    except RecursionError: return n\nprint(f(0) > 900)",
    "pickle": "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))), A.__module__)",
    "spawn": "import multiprocessing as m\ndef f(x): return x * x\nif __name__ == '__main__':\n"
             "    with m.get_context('spawn').Pool(1) as p: print(p.map(f, [1, 2]))\n",
    "fork": "import multiprocessing as m\ndef f(x): return x * x\nwith m.get_context('fork').Pool(1) as p: print(p.map(f, [1, 2]))",
    "modules": "import sys\nprint([n for n in sys.modules if 'cloche' in n], sys._getframe().f_back, len(sys.path))",
    "signals": "import signal\nprint({s: str(signal.getsignal(s)) for s in (1, 2, 13, 15, 17)})",
}
CASES = {**{n: SCRIPTS[n] for n in NAMES}, **ENDS}
DRAWN = """
import random, uuid, tempfile, ssl, secrets, multiprocessing, os
print(random.random(), uuid.uuid4(), uuid.uuid1(), next(tempfile._get_candidate_names()), ssl.RAND_bytes(8).hex(),
      secrets.token_hex(8), bytes(multiprocessing.current_process().authkey).hex(), sep='\\n')
"""


def interpreters():
    """By name: one of each version from 3.9 on, but the system's"""
    found = {}
    for root in ROOTS:
        try:
            folders = sorted(root.iterdir()) if os.access(root, os.X_OK) else []
        except OSError:
            folders = []
        for folder in folders:
            m = re.fullmatch(r"3\.(\d+)\.\d+", folder.name)
            if m and int(m[1]) >= 9 and os.access(folder / "bin/python3", os.X_OK):
                found[f"py3{m[1]}"] = folder / "bin/python3"
    return found


OTHERS = interpreters()


@pytest.fixture(scope="module")
def owner(callers):
    return callers.get("root") or callers["user"]


@pytest.fixture(scope="module")
def pythons(owner):
    if OTHERS:
        return OTHERS
    note(f"no other Python in {', '.join(map(str, ROOTS))}: a venv of the system's is all that is tried")
    folder = owner.folder()
    subprocess.run([SYSTEM_PYTHON, "-m", "venv", "--without-pip", folder / "venv"], check=True, timeout=60)
    return {"venv": folder / "venv/bin/python3"}


@pytest.fixture(scope="module")
def served(owner, pythons):
    """A server with all of them"""
    who, folder = owner, owner.folder()
    (folder / "cloche.ini").write_text("".join(f"[environment {n}]\npython = {p}\n" for n, p in pythons.items()))
    before = None
    if who.is_root and OTHERS:
        (folder / "hold").mkdir()
        before = ["/usr/bin/unshare", "-m", "/bin/sh", "-c", VISIBLE, str(folder / "hold"),
                  str(next(iter(pythons.values())).parents[3])]
    with Server(who, env={"CLOCHE_CONFIG": str(folder / "cloche.ini")}, before=before) as server:
        yield server


@pytest.fixture
def native(served):
    with Native(served.path) as n:
        yield n


def run(native, name, script, **fields):
    return native.run(request(script, environment=name, script_name="main.py", **fields))


def warm(native, name, script, **fields):
    """It is warm as soon as its interpreter has started"""
    end = time.monotonic() + 20
    while run(native, name, "pass").mode != "warm":
        assert time.monotonic() < end, run(native, name, "pass").warnings
        time.sleep(0.05)
    r = run(native, name, script, **fields)
    assert r.mode == "warm", r.warnings
    return r


def what(r):
    texts = [re.sub(r"0x[0-9a-f]{6,}", "0x...", text) for text in (r.stdout, r.stderr)]
    return {"verdict": r.verdict, "out": texts[0], "err": texts[1]}


@pytest.mark.parametrize("name", OTHERS or ["venv"])
def test_it_is_that_interpreter(native, pythons, name):
    script = "import sys\nprint(sys.version, sys.prefix, sys.executable, sep='\\n')"
    told = subprocess.run([pythons[name], "-c", script], capture_output=True, text=True, check=True).stdout
    assert told.splitlines()[-2:] == [str(pythons[name].parents[1]), str(pythons[name])]
    assert warm(native, name, script).stdout == told


@pytest.mark.parametrize("name", OTHERS or ["venv"])
def test_the_same_as_a_new_one(native, name):
    for case, script in CASES.items():
        fields = {"stdin": "one\ntwo\n"}
        assert what(warm(native, name, script, **fields)) == what(run(native, name, script, mode="cold", **fields)), case


@pytest.mark.parametrize("name", OTHERS or ["venv"])
def test_forks_draw_differently(native, name):
    rows = [warm(native, name, DRAWN).lines for _ in range(3)]
    for values in zip(*rows):
        assert len(set(values)) == 3, values


def test_local_and_cold(owner, pythons):
    """Without a server any of them is one option away."""
    folder = owner.folder()
    name, python = sorted(pythons.items())[0]
    (folder / "cloche.ini").write_text(f"[environment {name}]\npython = {python}\n")
    code, r = owner.run_json("import sys\nprint(sys.executable)", "--local", "--environment", name,
                             env={"CLOCHE_CONFIG": str(folder / "cloche.ini")})
    assert (code, r.stdout, r.mode) == (0, f"{python}\n", "cold")
