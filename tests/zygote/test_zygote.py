# SPDX-License-Identifier: Apache-2.0
"""A fork of a warm interpreter against a new one: the same scripts, the same sandbox, the same outcome.

ZYGOTE_HARNESS and ZYGOTE_EXTENSION name what was built; ZYGOTE_PYTHON the interpreter (and ZYGOTE_PREFIX its folder,
where that is not below /usr).
"""

import json
import os
import pathlib
import re
import subprocess
import tempfile

import pytest

from scripts import SCRIPTS

HARNESS = os.environ["ZYGOTE_HARNESS"]
EXTENSION = os.environ["ZYGOTE_EXTENSION"]
PYTHON = os.environ.get("ZYGOTE_PYTHON", "/usr/bin/python3")
PREFIX = os.environ.get("ZYGOTE_PREFIX")


def run(paths, *options, check=True):
    """The harness's lines, as dictionaries."""
    command = [HARNESS, *options, *(["-p", PREFIX] if PREFIX else []), EXTENSION, PYTHON, *paths]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if check:
        assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], done


def written(folder, scripts):
    paths = []
    for name, text in scripts.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        paths.append(str(path))
    return paths


def what(line):
    """The outcome, without addresses."""
    texts = [re.sub(r"0x[0-9a-f]{6,}|started [0-9]{9,}", "0x...", bytes.fromhex(line[key]).decode("utf-8", "backslashreplace"))
             for key in ("out", "err")]
    return {"code": line["code"], "status": line["status"], "out": texts[0], "err": texts[1]}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    lines, _ = run(written(tmp_path_factory.mktemp("scripts"), SCRIPTS))
    names = list(SCRIPTS)
    assert len(lines) == 2 * len(names)
    return {name: (what(lines[2 * i]), what(lines[2 * i + 1])) for i, name in enumerate(names)}


@pytest.mark.parametrize("name", SCRIPTS)
def test_same_as_cold(outcomes, name):
    cold, warm = outcomes[name]
    assert warm == cold


def warm_outputs(tmp_path, text, times, *options):
    paths = written(tmp_path, {"%d.py" % i: text for i in range(times)})
    lines, _ = run(paths, *options)
    outs = [what(line) for line in lines if line["mode"] == "warm"]
    assert all(o["code"] == 1 and o["status"] == 0 for o in outs), outs
    return [o["out"] for o in outs]


UNIQUE = {
    "random": "import random\nprint(random.random(), random.SystemRandom().random())",
    "random class": "import random\nprint(random.Random().random())",
    "secrets": "import secrets\nprint(secrets.token_hex(8))",
    "uuid1": "import uuid\nprint(uuid.uuid1())",
    "uuid node": "import uuid\nuuid._generate_time_safe = uuid._uuid = None\nprint(uuid.uuid1().node)",
    "uuid4": "import uuid\nprint(uuid.uuid4())",
    "tempfile": "import tempfile\nprint(tempfile.mkstemp()[1], next(tempfile._get_candidate_names()))",
    "openssl": "import ssl\nprint(ssl.RAND_bytes(8).hex())",
    "authkey": "import multiprocessing\nprint(bytes(multiprocessing.current_process().authkey).hex())",
}


@pytest.mark.parametrize("what_is_drawn", UNIQUE)
def test_forks_draw_differently(tmp_path, what_is_drawn):
    """Also with everything imported beforehand, which is what could make it the same."""
    modules = "random,secrets,uuid,tempfile,ssl,multiprocessing,multiprocessing.connection"
    outs = warm_outputs(tmp_path, UNIQUE[what_is_drawn], 4, "-m", modules)
    assert len(set(outs)) == 4, outs


def test_hash_seed_is_shared(tmp_path):
    """Known and documented: it is read once, when an interpreter starts."""
    assert len(set(warm_outputs(tmp_path, "print(hash('a'))", 3))) == 1


def test_preloaded_modules_are_there(tmp_path):
    outs = warm_outputs(tmp_path, "import sys\nprint('colorsys' in sys.modules, '_cloche' in sys.modules)\n"
                                  "print([m for m in sys.modules if 'cloche' in m or 'zygote' in m])", 1, "-m", "colorsys")
    assert outs == ["True False\n[]\n"]


def test_nothing_of_ours_is_reachable(tmp_path):
    text = ("import gc, sys\n"
            "names = ('cloche', 'zygote', 'rehears', 'reseed', 'pristine')\n"
            "print([o for o in gc.get_objects() if type(o).__name__ in ('function', 'module', 'dict', 'type')\n"
            "       and o is not globals() and any(n in repr(o)[:2000] for n in names)])\n")
    assert warm_outputs(tmp_path, text, 1) == ["[]\n"]


def test_module_that_is_missing_is_told(tmp_path):
    _, done = run(written(tmp_path, {"main.py": "print(1)"}), "-m", "json,no_such_module")
    assert "no module no_such_module" in done.stderr


@pytest.fixture
def modules():
    """A folder for modules to preload; not below /tmp, which is every sandbox's own."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="zygote-modules-") as folder:
        os.chmod(folder, 0o755)
        yield pathlib.Path(folder)


def preloading(tmp_path, modules, name, text):
    (modules / (name + ".py")).write_text(text)
    options = ["-p", str(modules), "-e", "PYTHONPATH=" + str(modules), "-m", name]
    return run(written(tmp_path, {"main.py": "import %s\nprint(%s.x)\n" % (name, name)}), *options, check=False)


def test_module_from_a_folder(tmp_path, modules):
    lines, done = preloading(tmp_path, modules, "mine", "x = 'preloaded'\nprint('loud')\n")
    assert [what(line)["out"] for line in lines] == ["loud\npreloaded\n", "preloaded\n"], done.stderr


def test_what_a_module_keeps_for_its_thread_stays(tmp_path, modules):
    """threading.local, context variables, decimal's context: the script's thread is the one that imports it."""
    text = ("import contextvars, decimal, threading\nlocal = threading.local()\nlocal.v = 'local'\n"
            "var = contextvars.ContextVar('var', default='unset')\nvar.set('set')\ndecimal.getcontext().prec = 7\n"
            "class Look:\n"
            "    def __str__(self):\n"
            "        here = [getattr(local, 'v', None), var.get(), decimal.Decimal(1) / 3, len(contextvars.copy_context())]\n"
            "        t = threading.Thread(target=lambda: here.extend([getattr(local, 'v', None), var.get()]))\n"
            "        t.start()\n        t.join()\n        return repr(here)\n"
            "x = Look()\n")
    lines, done = preloading(tmp_path, modules, "keeps", text)
    cold, warm = (what(line) for line in lines)
    assert cold == warm and "['local', 'set', Decimal('0.3333333'), 2, None, 'unset']" in cold["out"], (cold, warm, done.stderr)


def test_logging_begins_with_the_script(tmp_path):
    text = ("import logging, time\nrecord = logging.makeLogRecord({})\n"
            "print(0 <= record.relativeCreated < 500, 0 <= time.time() - float(logging._startTime) < 60)")
    first = "import time\ntime.sleep(1)"
    lines, _ = run(written(tmp_path, {"0.py": first, "1.py": text}), "-m", "logging")
    assert [what(line)["out"] for line in lines][2:] == ["True True\n"] * 2


@pytest.mark.parametrize("text", ["1 / 0", "import sys\nsys.exit('enough')", "x = ("])
def test_module_that_fails_is_left_out(tmp_path, modules, text):
    lines, done = preloading(tmp_path, modules, "fails", text)
    assert "no module fails" in done.stderr
    assert len(lines) == 2 and what(lines[0]) == what(lines[1]) and lines[0]["status"] != 0


def test_module_that_starts_a_thread_is_refused(tmp_path, modules):
    text = "import threading, time\nx = threading.Thread(target=time.sleep, args=(60,), daemon=True)\nx.start()\n"
    lines, done = preloading(tmp_path, modules, "threaded", text)
    assert done.returncode == 1 and not lines
    assert "have started threads" in done.stderr


@pytest.mark.parametrize("text", ["import os\nos._exit(3)", "import os, signal\nos.kill(os.getpid(), 9)"])
def test_module_that_ends_its_zygote(tmp_path, modules, text):
    lines, done = preloading(tmp_path, modules, "ends", text)
    assert done.returncode == 1 and not lines
    assert "the zygote ended" in done.stderr


def test_times_and_memory(tmp_path):
    """Figures, and the only thing that is asked of them: that a warm run is much cheaper than an interpreter's start."""
    lines, _ = run(written(tmp_path, {"main.py": "print('hello')"}), "-n", "40")
    assert lines[0]["go_to_exit_us"]["p50"] < 8000, lines
    assert lines[0]["Private_Dirty_kb"] < 1536, lines
