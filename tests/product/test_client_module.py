# SPDX-License-Identifier: Apache-2.0
"""client/python/cloche.py as a module: artifacts on the disk, its manual, its types."""
import ast
import doctest
import os
import shutil
import subprocess

import pytest

from client_support import MODULE, servers  # noqa: F401
from harness import MUST_WORK, REPO

import cloche


def artifact(name, left_out=""):
    return cloche.Artifact(name, 2, "text/plain", left_out, "aGk=")


def test_artifacts_are_saved_inside_or_not_at_all(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    folder = tmp_path / "folder"
    assert open(artifact("a/b.txt").save(folder)).read() == "hi"
    (folder / "link").symlink_to(outside)
    (folder / "file.txt").symlink_to(outside / "made.txt")
    for name in ("../x", "/etc/x", "a/../../x", "", "a//b", ".", "a/.", "a\0b", "link/x", "x" * 300, "a/b.txt/c"):
        with pytest.raises(cloche.ArtifactError):
            artifact(name).save(folder)
    for name in ("a/b.txt", "file.txt"):
        with pytest.raises(FileExistsError):
            artifact(name).save(folder)
    assert os.path.samefile(artifact("file.txt").save(folder, overwrite=True), folder / "file.txt")
    assert not (folder / "file.txt").is_symlink() and os.listdir(outside) == []
    assert sorted(os.listdir(folder)) == ["a", "file.txt", "link"], "nothing half-made is left"
    with pytest.raises(cloche.ArtifactError, match="too big"):
        artifact("x", left_out="too big").save(folder)


def test_the_manual_is_true(servers, callers):
    who = callers["root" if "root" in callers else "user"]
    cloche.set_default(servers["root" if who.is_root else "user"].path)
    ran = doctest.testmod(cloche)
    cloche.set_default()
    assert ran.attempted >= 4 and ran.failed == 0


def test_types(tmp_path):
    ast.parse(MODULE.read_text(), feature_version=(3, 9))
    if not shutil.which("mypy"):
        assert not MUST_WORK, "mypy is not installed (tools/deps.sh test)"
        pytest.skip("mypy is not installed")
    user = tmp_path / "user.py"
    user.write_text("import cloche\nr = cloche.run('x', timeout=1.5, files={'a': b''})\n"
                    "reveal_type(r.artifacts[0].data)\n"
                    "for r in cloche.Client().map(['x', {'script_content': 'y'}]): reveal_type(r)\n"
                    "cloche.run('x', timeout='1')\ncloche.run('x', no_such=1)\n")
    p = subprocess.run(["mypy", "--strict", "--python-version", "3.9", "--enable-incomplete-feature=Unpack",
                        "--cache-dir", str(tmp_path / "cache"), "--no-error-summary", MODULE, user,
                        *(REPO / "examples").glob("*.py")],
                       capture_output=True, text=True, env={**os.environ, "MYPYPATH": str(MODULE.parent)}, timeout=120)
    lines = [line.split(": ", 1)[1] for line in p.stdout.splitlines() if "defined here" not in line]
    assert lines[0].endswith('"builtins.bytes"') and '"cloche.Result"' in lines[1], p.stdout
    assert len(lines) == 4 and '"timeout"' in lines[2] and '"no_such"' in lines[3], p.stdout
