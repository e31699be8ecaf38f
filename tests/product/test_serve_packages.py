# SPDX-License-Identifier: Apache-2.0
"""What is installed or changed in an environment while a server runs is what its next warm runs import."""
import os
import re
import subprocess

import pytest

from harness import wait_for
from serving import Native, Server, request


@pytest.fixture
def venv(who):
    folder = who.folder() / "venv"
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", folder], check=True, timeout=60)
    packages = next(folder.glob("lib/python3*/site-packages"))
    (packages / "ours.py").write_text("version = 1\n")
    bundle = packages / "bundle"
    bundle.mkdir()
    (bundle / "__init__.py").write_text("")
    (bundle / "deep.py").write_text("version = 1\n")
    yield folder, packages


def serve(who, folder):
    config = f"[environment default]\npython = {folder}/bin/python3\npreload = ours, bundle.deep\n"
    return Server(who, env={"CLOCHE_CONFIG": str(who.file(config, "cloche.ini"))})


def warm(n, script):
    """(mode, output) of a run"""
    r = n.run(request(script))
    return (r.obj["mode"], r.stdout.strip()) if r.status == "ok" else (r.obj["mode"], r.stderr.splitlines()[-1])


def becomes(n, script, output):
    assert wait_for(lambda: warm(n, script) == ("warm", output)), warm(n, script)


def replace(path, text):
    """As installers do: a new file in its place"""
    new = path.with_suffix(".new")
    new.write_text(text)
    os.rename(new, path)


def test_packages_that_come_and_change(who, venv):
    folder, packages = venv
    with serve(who, folder) as s, Native(s.path) as n:
        becomes(n, "import ours, bundle.deep\nprint(ours.version, bundle.deep.version)", "1 1")
        seed = warm(n, "print(hash('a'))")
        assert seed == warm(n, "print(hash('a'))") and seed[0] == "warm"
        # a package that was not there
        fresh = packages / "fresh"
        fresh.mkdir()
        (fresh / "__init__.py").write_text("print('fresh')\n")
        becomes(n, "import fresh", "fresh")
        # preloaded ones: replaced, changed in place, and a file deep in a package
        replace(packages / "ours.py", "version = 2\n")
        becomes(n, "import ours\nprint(ours.version)", "2")
        (packages / "ours.py").write_text("version = 33\n")
        becomes(n, "import ours\nprint(ours.version)", "33")
        (packages / "bundle" / "deep.py").write_text("version = 44\n")
        becomes(n, "import bundle.deep\nprint(bundle.deep.version)", "44")
        assert warm(n, "print(hash('a'))") != seed, "it is another interpreter"
        # from here on none is out of date: not one of the parked ones, either
        for _ in range(20):
            assert warm(n, "import ours, bundle.deep\nprint(ours.version, bundle.deep.version)") == ("warm", "33 44")


def test_a_zygote_is_kept_while_nothing_changes(who, venv):
    folder, packages = venv
    with serve(who, folder) as s, Native(s.path) as n:
        becomes(n, "import ours\nprint(ours.version)", "1")
        seeds = set()
        for _ in range(2):
            seeds.add(warm(n, "print(hash('a'))"))
            (packages.parent / "elsewhere").write_text("not in a folder that modules come from")
            assert not wait_for(lambda: warm(n, "print(hash('a'))") not in seeds, 1.2)
        assert len(seeds) == 1 and re.fullmatch(r"-?\d+", seeds.pop()[1])


@pytest.mark.once
def test_a_successor_that_fails_is_tried_again(who, venv):
    """It ends at the changed module's import until a file is there that is none of those that modules come from."""
    folder, packages = venv
    data = who.folder() / "data"
    data.mkdir()
    config = (f"[environment default]\npython = {folder}/bin/python3\npaths = {data}\n"
              "preload = ours, bundle.deep\n")
    with Server(who, env={"CLOCHE_CONFIG": str(who.file(config, "cloche.ini"))}) as s, Native(s.path) as n:
        becomes(n, "import ours\nprint(ours.version)", "1")
        replace(packages / "ours.py", f"import os\nos.path.exists('{data}/ready') or os._exit(3)\nversion = 2\n")
        assert not wait_for(lambda: warm(n, "import ours\nprint(ours.version)")[1] == "2", 3)
        (data / "ready").write_text("")
        becomes(n, "import ours\nprint(ours.version)", "2")
