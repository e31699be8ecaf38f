# SPDX-License-Identifier: Apache-2.0
import os
import shutil
import sys
import tempfile

import pytest

pytest.register_assert_rewrite("attack_support", "both", "canary")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import attack_support as support
import canary

support.adopt_orphans()


def pytest_configure(config):
    config.addinivalue_line("markers", "root_starts_it: whoever it is about")
    config.addinivalue_line("markers", "by_itself: of the command line, not of a request: it goes by no other door")


def pytest_sessionfinish():
    support.close_doors()


@pytest.fixture(scope="session")
def canaries():
    canary.prepare_user()
    c = canary.Canaries()
    yield c
    c.close()


@pytest.fixture(params=["root", "user"])
def who(request):
    """Everything is promised to root and to an ordinary user alike."""
    if request.param == "root":
        support.need_root()
    return request.param


@pytest.fixture(autouse=True)
def door(request):
    """What runs inside does so by each door in turn: in a sandbox of the command's own, cold, and warm at a server."""
    support.door = getattr(request, "param", "local")
    yield support.door
    support.door = "local"


@pytest.fixture
def folder():
    """A private folder that the ordinary user can read."""
    path = tempfile.mkdtemp(prefix="cloche-attack-", dir="/var/tmp")
    os.chmod(path, 0o777)
    yield path
    shutil.rmtree(path)


def pytest_generate_tests(metafunc):
    """A module with CASES gets one control and one run inside for each case."""
    cases = getattr(metafunc.module, "CASES", [])
    is_inside = {"who", "inside_case"} & set(metafunc.fixturenames)
    if is_inside and not any(metafunc.definition.iter_markers("by_itself")):
        metafunc.parametrize("door", support.DOORS, indirect=True)
    if "control_case" in metafunc.fixturenames:
        metafunc.parametrize("control_case", [pytest.param(c, id=c.name) for c in cases if c.control])
    if "inside_case" in metafunc.fixturenames:
        metafunc.parametrize("inside_case", [pytest.param((c, w), id="%s-%s" % (c.name,
            w)) for c in cases for w in c.only])


def caller_of(item):
    """Who must start this test; None: anybody can"""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    if item.get_closest_marker("root_starts_it") or "chroot" in params.get("rules", ()):
        return "root"
    if "inside_case" in params:
        return params["inside_case"][1]
    return params.get("who", params.get("caller"))


def pytest_collection_modifyitems(config, items):
    """CLOCHE_CALLER: only this one's tests, where the other's are run elsewhere."""
    only = os.environ.get("CLOCHE_CALLER")
    left = [item for item in items if only and caller_of(item) not in (None, only)]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if caller_of(item) in (None, only)]
