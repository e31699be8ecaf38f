# SPDX-License-Identifier: Apache-2.0
"""
A sample of `make fidelity`: the same script by the plain interpreter, cold and warm, with the same outcome.

The whole takes longer than a test may; docs/fidelity.md has its results.
"""
import sys

import pytest

import harness

sys.path.insert(0, str(harness.REPO / "tests/fidelity"))

import compare  # noqa: E402
import tables  # noqa: E402
import testsuite  # noqa: E402
import three  # noqa: E402

CACHE = harness.REPO / "build/testsuite"
MODULES = ["test_contextlib", "test_copy", "test_descr", "test_dict", "test_functools", "test_gc", "test_generators",
           "test_json", "test_os", "test_random", "test_sys", "test_tempfile", "test_uuid", "test_weakref"]
SLOW_CASES = ("B19", "B22", "B33", "B6", "B4")  # most of their time is spent waiting for a timeout, or in large imports


@pytest.fixture(scope="session")
def suite(homes):
    """CPython's tests, where scripts can read them"""
    if not testsuite.LIBRARY.is_dir():
        pytest.skip("needs: a system whose Python is 3.11")
    folder = homes / "suite"
    folder.mkdir()
    testsuite.prepare(CACHE, folder)
    return folder


@pytest.fixture(scope="session")
def started(callers, suite):
    """Three ways of running for each caller, made when first asked for"""
    running = {}

    def get(who):
        if who.name not in running:
            t = three.Three(who.binary, who.folder(), [suite], who.prefix(), who.env({}), who.is_root)
            running[who.name] = t.__enter__()
        return running[who.name]

    yield get
    for t in running.values():
        t.__exit__()


@pytest.fixture
def ways(who, started):
    return started(who)


def same(report, n):
    assert not report.failed and len(report.unstable) <= 2, report
    assert report.n_equal >= n, report


def test_tables_are_as_large_as_they_were():
    tables.check()
    assert f"(`tests/fidelity/cases.py`) | {len(compare.CASES)} |" in (harness.REPO / "docs/fidelity.md").read_text()


@pytest.mark.parametrize("script", ["import random; print(random.random())",
                                    "import os; open('f', 'wb').write(os.urandom(9))",
                                    "import os, sys; sys.stderr.write(os.urandom(9).hex())",
                                    "import os; os._exit(os.urandom(1)[0])"])
def test_a_difference_is_seen(ways, script):
    report = compare.compare_script(ways, "differs", script, three.WAYS, compare.ALL)[1]
    assert report.failed, report


@pytest.mark.slow
def test_cases(ways):
    names = [n for n in compare.CASES if n.split()[0] not in SLOW_CASES]
    same(compare.in_parallel(lambda n: compare.compare_case(ways, n), names), len(names))


@pytest.mark.slow
def test_humaneval(ways, shared):
    problems = compare.human_eval(shared("data/HumanEval.jsonl.gz"))[::4]
    same(compare.in_parallel(lambda p: compare.compare_human_eval(ways, p), problems), len(problems))


@pytest.mark.slow
@pytest.mark.once
def test_cpython_s_own_tests(ways, suite):
    exclusions = compare.Exclusions()
    same(compare.in_parallel(lambda m: compare.compare_module(ways, suite, exclusions, m), MODULES), 1000)
