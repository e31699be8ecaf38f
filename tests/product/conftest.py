# SPDX-License-Identifier: Apache-2.0
"""
Whole-product tests: the built binary, as root and as an ordinary user.

    CLOCHE_BIN        the binary (default: <repository>/build/cloche)
    CLOCHE_BIN_FAIL   the one with -Dfail_steps=true (default: <repository>/build-fail/cloche)
    CLOCHE_SHARED     the folder with test data that is not in the repository (default: ../shared beside it)
    CLOCHE_VIA        by which door plain requests go (via.py)

A skip says why, and tests/check.py judges it by that: "needs: ..." for what a host may lack (tests/NEEDS-VM), "shared: ..."
for an absent CLOCHE_SHARED; any other is a failure there.

Every test that takes `who` runs twice.  The ordinary user is `cloche-test`, made with useradd when root runs the tests;
when an ordinary user runs them, it is that user, and the root half is not there.
"""
import os
import pathlib
import pwd
import shutil
import subprocess
import sys
import tempfile

import pytest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import harness  # noqa: E402
import via  # noqa: E402

USER = "cloche-test"
FAIL = pathlib.Path(os.environ.get("CLOCHE_BIN_FAIL") or harness.REPO / "build-fail" / "cloche").absolute()


def pytest_configure(config):
    config.addinivalue_line("markers", "once: long, and the same whoever calls: in make check as root, where we are, alone")
    config.addinivalue_line("markers", "slow: takes more than ten seconds")


def pytest_terminal_summary(terminalreporter):
    for report in terminalreporter.stats.get("skipped", []):
        terminalreporter.write_line(f"SKIPPED {report.nodeid}: {report.longrepr[-1]}", yellow=True)
    for text in harness.notes:
        terminalreporter.write_line(f"NOTE {text}", yellow=True)


def _account():
    try:
        return pwd.getpwnam(USER)
    except KeyError:
        subprocess.run(["useradd", "--system", "--create-home", "--home-dir", f"/var/lib/{USER}", "--shell", "/bin/sh",
                        USER], check=True, timeout=60)
        return pwd.getpwnam(USER)


def _can_execute(account, path):
    return subprocess.run(["/usr/bin/setpriv", "--reuid", str(account.pw_uid), "--regid", str(account.pw_gid),
                           "--clear-groups", "/usr/bin/test", "-x", str(path)], timeout=30).returncode == 0


def _readable_copy(build, to):
    """Programs and libraries of a build tree that the user can't reach, where he can"""
    for path in build.rglob("*"):
        if path.is_file() and not path.is_symlink() and (os.access(path, os.X_OK) or path.suffix in (".so", ".py")):
            target = to / path.relative_to(build)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)
    for path in (to, *to.rglob("*")):
        path.chmod(0o755)


@pytest.fixture(scope="session")
def binary():
    path = pathlib.Path(os.environ.get("CLOCHE_BIN") or harness.REPO / "build" / "cloche").absolute()
    assert os.access(path, os.X_OK), f"{path} is not there: build first, or set CLOCHE_BIN"
    return path


@pytest.fixture(scope="session")
def homes():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="product-", dir="/var/tmp"))
    folder.chmod(0o755)
    yield folder
    via.close_all()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def callers(binary, homes):
    found = {}
    home = homes / "root"
    home.mkdir()
    if os.geteuid() != 0:
        me = pwd.getpwuid(os.geteuid())
        found["user"] = via.caller(harness.Who(me.pw_name, os.geteuid(), os.getegid(), home, binary))
        return found
    found["root"] = via.caller(harness.Who("root", 0, 0, home, binary))
    account, home, path = _account(), homes / "user", binary
    home.mkdir()
    os.chown(home, account.pw_uid, account.pw_gid)
    if not _can_execute(account, binary):
        copy = homes / "build"
        copy.mkdir()
        _readable_copy(binary.parent, copy)
        path = copy / binary.name
        assert _can_execute(account, path), f"{USER} can't execute {binary}, nor a copy of it"
    found["user"] = via.caller(harness.Who(USER, account.pw_uid, account.pw_gid, home, path))
    return found


def pytest_generate_tests(metafunc):
    if "who" in metafunc.fixturenames:
        names = ["root", "user"] if os.geteuid() == 0 else ["user"]
        if metafunc.definition.get_closest_marker("once") and not os.environ.get("CLOCHE_EVERY_CALLER"):
            names = names[:1]
        metafunc.parametrize("who", names, indirect=True, scope="session")


@pytest.fixture
def who(request, callers):
    return callers[request.param]


@pytest.fixture
def root(callers):
    """For what root alone can do, or two users"""
    if "root" not in callers:
        pytest.skip("needs: root")
    return callers["root"]


@pytest.fixture
def hasty(who, homes):
    """The caller, with the impatient program"""
    if not os.access(FAIL, os.X_OK):
        pytest.skip(f"no build with fail_steps at {FAIL}")
    path = FAIL
    if not who.is_root and os.geteuid() == 0 and not _can_execute(_account(), FAIL):
        copy = homes / "build-fail"
        if not copy.exists():
            copy.mkdir()
            _readable_copy(FAIL.parent, copy)
        path = copy / FAIL.name
    return harness.Who(who.name, who.uid, who.gid, who.home, path)


@pytest.fixture(scope="session")
def sampled(callers):
    """Whether memory is held by sampling, by caller: told by the product, needed to know what the contract allows"""
    return {name: w.trigger("pass").is_sampled for name, w in callers.items()}


@pytest.fixture
def is_sampled(who, sampled):
    return sampled["root" if who.is_root else "user"]


@pytest.fixture
def shared():
    """Data outside the repository; its absence is a skip that is always allowed"""
    if not harness.SHARED.is_dir():
        pytest.skip(f"shared: {harness.SHARED} is not there: set CLOCHE_SHARED")

    def path(name):
        found = harness.SHARED / name
        assert found.exists(), f"{found} is not there"
        return found
    return path


@pytest.fixture
def residue(who):
    return harness.Residue(who)
