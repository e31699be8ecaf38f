# SPDX-License-Identifier: Apache-2.0
"""The screening program by itself, as it is run inside a sandbox: rules as arguments, the script on standard input."""

import os
import subprocess

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
SCREEN = os.path.join(HERE, "..", "..", "src", "inside", "screen.py")
PYTHON = "/usr/bin/python3"


def run(script, *rules):
    with open(SCREEN, encoding="ascii") as f:
        text = f.read()
    if isinstance(script, str):
        script = script.encode()
    return subprocess.run([PYTHON, "-I", "-S", "-c", text, *rules], input=script, capture_output=True, timeout=60)


def findings(script, *rules):
    """[(rule, line), ...] of a run that went well."""
    p = run(script, *rules)
    assert p.returncode == 0 and p.stderr == b""
    lines = p.stdout.decode().split("\n")
    assert lines[-2:] == ["end", ""]
    return [tuple(map(int, line.split(" "))) for line in lines[:-2]]


@pytest.mark.parametrize("script", [
    "import ctypes",
    "import ctypes.util",
    "import ctypes as c",
    "import os, ctypes",
    "from ctypes import CDLL",
    "from ctypes import *",
    "from ctypes.util import find_library as f",
    "def f(): import ctypes",
    "__import__('ctypes')",
    "__import__('ctypes.util')",
    "__import__(name='ctypes')",
    "import importlib; importlib.import_module('ctypes')",
    "import importlib as i; i.import_module('ctypes.util')",
    "from importlib import import_module as m; m('ctypes')",
    "if 0: import ctypes",
    "x = lambda: __import__('ctypes')",
])
def test_module_is_found(script):
    assert findings(script, "report:ctypes") == [(0, 1)]


@pytest.mark.parametrize("script", [
    "import os; os.system('ls')",
    "import os as o; o.system('ls')",
    "import os.path; os.system('ls')",
    "import os; f = os.system",
    "import os; [os.system]",
    "from os import system",
    "from os import system as s; s('ls')",
    "from os import *; system('ls')",
    "__import__('os').system('ls')",
    "import importlib; importlib.import_module('os').system('ls')",
    "import os; getattr(os, 'system')('ls')",
    "import os; o = os; o.system('ls')",
    "import sys; sys.modules['os'].system('ls')",
    "import os; os.system.__call__('ls')",
    "import os; (o := os).system('ls')",
    "import os; f = lambda x=os.system: x",
])
def test_call_is_found(script):
    assert findings(script, "reject:os.system") == [(0, 1)]


@pytest.mark.parametrize("script", [
    "eval('1')",
    "e = eval",
    "import builtins; builtins.eval('1')",
    "from builtins import eval as e",
    "map(eval, [])",
])
def test_builtin_is_found(script):
    assert findings(script, "reject:eval") == [(0, 1)]


@pytest.mark.parametrize("script, rule", [
    ("import os", "os.system"),
    ("import os; os.popen('ls')", "os.system"),
    ("from os import popen", "os.system"),
    ("import ctypeslib", "ctypes"),
    ("from . import ctypes", "ctypes"),
    ("from .os import system", "os.system"),
    ("ctypes = 1; print(ctypes)", "ctypes"),
    ("x.os.system('ls')", "os.system"),
    ("self.eval('x')", "eval"),
    ("def eval(x): return x\neval(1)", "eval"),
    ("def f(eval): return eval(1)", "eval"),
    ("'import ctypes'  # import ctypes", "ctypes"),
    ("__import__(name)", "ctypes"),
    ("__import__()", "ctypes"),
    ("", "ctypes"),
])
def test_others_are_not(script, rule):
    assert findings(script, "reject:" + rule) == []


def test_lines_and_their_order():
    script = "import os as o\n\nfrom os import system as s\ns('ls')\no.system('ls'); o.system('ls')\nimport ctypes\n"
    assert findings(script, "report:ctypes", "reject:os.system") == [(1, 3), (1, 4), (1, 5), (0, 6)]


def test_uses_of_a_module_are_told_at_its_import():
    assert findings("import ctypes\nctypes.CDLL(None)\nctypes\n", "report:ctypes") == [(0, 1)]


def test_a_chain_of_aliases():
    assert findings("import os\na = os\nb = a\nc = b.system\nc('ls')\n", "report:os.system") == [(0, 4), (0, 5)]


def test_at_most_100_and_none_that_rejects_is_crowded_out():
    script = "import ctypes\n" * 500 + "import os\nos.system('ls')\n"
    got = findings(script, "report:ctypes", "reject:os.system")
    assert got == [(0, n) for n in range(1, 100)] + [(1, 502)]


def test_encodings():
    assert findings(b"\xef\xbb\xbfimport ctypes\n", "report:ctypes") == [(0, 1)]
    assert findings(b"# coding: latin-1\n# \xe9\nimport ctypes\n", "report:ctypes") == [(0, 3)]
    assert findings(b"# coding: utf-7\n+AGkAbQBwAG8AcgB0- ctypes\n", "report:ctypes") == [(0, 2)]
    assert findings("import ctypes  # \N{SNOWMAN}\r\nimport ctypes\r", "report:ctypes") == [(0, 1), (0, 2)]


UNPARSABLE = {
    "statement": b"import ctypes\nif\n",
    "utf8": b"import ctypes\nx = '\xff'\n",
    "coding": b"# coding: no-such-thing\nimport ctypes\n",
    "nul": b"import ctypes\n\0\n",
    "parentheses": b"import ctypes\n" + b"(" * 5000,
    "indent": b"  import ctypes\n",
}


@pytest.mark.parametrize("script", UNPARSABLE.values(), ids=UNPARSABLE.keys())
def test_what_does_not_parse_fails_by_itself(script):
    assert findings(script, "report:ctypes") == []


def test_the_warnings_of_a_script_are_its_own():
    assert findings("x = '\\d'\nx is 1\nassert (1, 2)\n", "report:ctypes") == []


DEEP = {
    "sum": "a" + "+a" * 100000,
    "attributes": "a" + ".a" * 100000,
    "signs": "-" * 100000 + "1",
    "subscripts": "a" + "[0]" * 100000,
    "calls": "a" + "()" * 100000,
    "negations": "not " * 100000 + "a",
    "lambdas": "lambda:" * 50000 + "0",
}


@pytest.mark.parametrize("script", DEEP.values(), ids=DEEP.keys())
def test_too_deep_is_told_by_the_exit_status(script):
    p = run(script, "report:ctypes")
    assert p.returncode != 0
    assert b"end" not in p.stdout


def test_deep_that_parses_is_walked_without_recursion():
    script = "".join(" " * i + "if 1:\n" for i in range(99)) + " " * 99 + "import ctypes\n"
    assert findings(script, "report:ctypes") == [(0, 100)]
    assert findings("x = " + "[" * 180 + "eval" + "]" * 180, "report:eval") == [(0, 1)]


def test_memory_that_runs_out_is_told_by_the_exit_status():
    with open(SCREEN, encoding="ascii") as f:
        text = f.read()
    p = subprocess.run(["/bin/sh", "-c", 'ulimit -v 262144 && exec "$@"', "sh", PYTHON, "-I", "-S", "-c", text,
                        "report:ctypes"], input=b"a;" * 520000, capture_output=True, timeout=60)
    assert p.returncode == 3 and p.stdout == b""


def test_no_rules():
    assert findings("import ctypes") == []
