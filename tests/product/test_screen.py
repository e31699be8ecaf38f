# SPDX-License-Identifier: Apache-2.0
"""Input screening by configured rules: advice before a run, off by default; the walls are the protection."""
import re

import pytest

MIB = 1 << 20


def lines_of(r, rule):
    """Line numbers that warnings name together with @rule"""
    return sorted({int(n) for w in r.warnings if rule in w for n in re.findall(r"\bline (\d+)", w)})


def reporting(rule):
    return {"CLOCHE_SCREEN_REPORT": rule}


def rejecting(rule):
    return {"CLOCHE_SCREEN_REJECT": rule}


def test_off_by_default(who):
    r = who.trigger("import ctypes, os\nos.system('true')\nprint('ran')")
    assert (r.verdict, r.stdout) == (("ok", 0), "ran\n")
    assert not any("ctypes" in w or "os.system" in w for w in r.warnings)


FORMS = {
    "import": ("ctypes", "x = 1\nimport ctypes\nprint('ran')", [2]),
    "import-list": ("ctypes", "import os, ctypes\nprint('ran')", [1]),
    "import-as": ("ctypes", "import ctypes as c\nprint('ran')", [1]),
    "import-submodule": ("ctypes", "import ctypes.util\nprint('ran')", [1]),
    "from": ("ctypes", "from ctypes import CDLL\nprint('ran')", [1]),
    "from-submodule": ("ctypes", "from ctypes.util import find_library\nprint('ran')", [1]),
    "from-star": ("ctypes", "from ctypes import *\nprint('ran')", [1]),
    "in-function": ("ctypes", "def f():\n    import ctypes\nprint('ran')", [2]),
    "in-try": ("ctypes", "try:\n    import ctypes\nexcept ImportError: pass\nprint('ran')", [2]),
    "dunder-import": ("ctypes", "m = __import__('ctypes')\nprint('ran')", [1]),
    "importlib": ("ctypes", "import importlib\nm = importlib.import_module('ctypes')\nprint('ran')", [2]),
    "twice": ("ctypes", "import ctypes\n\nimport ctypes.util\nprint('ran')", [1, 3]),
    "call": ("os.system", "import os\nos.system('true')\nprint('ran')", [2]),
    "call-alias": ("os.system", "import os as o\n\no.system('true')\nprint('ran')", [3]),
    "call-from": ("os.system", "from os import system\nsystem('true')\nprint('ran')", None),
    "call-from-alias": ("os.system", "from os import system as s\ns('true')\nprint('ran')", None),
    "attribute": ("os.system", "import os\nf = os.system\nprint('ran')", [2]),
    "dotted": ("urllib.request.urlopen", "import urllib.request\nf = urllib.request.urlopen\nprint('ran')", [2]),
}


@pytest.mark.parametrize("form", FORMS)
def test_report(who, form):
    rule, script, lines = FORMS[form]
    r = who.trigger(script, env_outside=reporting(rule))
    assert (r.verdict, r.stdout) == (("ok", 0), "ran\n"), "report only reports"
    assert any(rule in w for w in r.warnings), r.warnings
    if lines is not None:
        assert lines_of(r, rule) == lines, r.warnings
    else:
        assert lines_of(r, rule)


@pytest.mark.parametrize("form", FORMS)
def test_reject(who, form):
    rule, script, lines = FORMS[form]
    r = who.trigger(script, env_outside=rejecting(rule))
    assert r.verdict == ("rejected", -125)
    assert rule in r.message and re.search(r"\bline \d+", r.message), r.message
    if lines:
        assert int(re.search(r"\bline (\d+)", r.message)[1]) == lines[0]
    nothing_ran(r)


def nothing_ran(r):
    assert (r.stdout, r.stderr, r.stdout_bytes, r.stderr_bytes) == ("", "", 0, 0)
    assert (r.execution_time, r.artifacts) == (0.0, [])


INNOCENT = {
    "comment": ("ctypes", "# import ctypes\nprint('ran')"),
    "string": ("ctypes", "x = 'import ctypes'\nprint('ran')"),
    "longer-name": ("ctypes", "class ctypes_like: pass\nimport json as ctypesx\nprint('ran')"),
    "other-system": ("os.system", "class P:\n    def system(self): pass\nP().system()\nprint('ran')"),
    "other-module": ("os.system", "import platform\nplatform.system()\nprint('ran')"),
    "module-alone": ("os.system", "import os\nos.getpid()\nprint('ran')"),
}


@pytest.mark.parametrize("case", INNOCENT)
def test_no_false_alarm(who, case):
    rule, script = INNOCENT[case]
    r = who.trigger(script, env_outside=rejecting(rule))
    assert (r.verdict, r.stdout) == (("ok", 0), "ran\n"), r


def test_several_rules(who):
    env = {"CLOCHE_SCREEN_REPORT": "socket, subprocess", "CLOCHE_SCREEN_REJECT": "ctypes, os.system"}
    r = who.trigger("import socket\nimport subprocess\nprint('ran')", env_outside=env)
    assert r.stdout == "ran\n" and lines_of(r, "socket") == [1] and lines_of(r, "subprocess") == [2]
    r = who.trigger("import socket\nimport os\nos.system('x')", env_outside=env)
    assert r.status == "rejected" and "os.system" in r.message
    nothing_ran(r)


def test_options_of_run(who):
    script = "import ctypes\nprint('ran')"
    code, r = who.run_json(script, "--screen-report", "ctypes")
    assert (code, r.stdout) == (0, "ran\n") and lines_of(r, "ctypes") == [1]
    p = who.run(script, "--screen-report", "ctypes")
    assert (p.returncode, p.stdout) == (0, b"ran\n") and b"ctypes" in p.stderr and b"line 1" in p.stderr
    p = who.run(script, "--screen-reject", "ctypes")
    assert (p.returncode, p.stdout) == (125, b"") and b"ctypes" in p.stderr


def test_configuration_file(who):
    config = who.file("[screen]\nreport = socket\nreject = ctypes, os.system\n", "cloche.ini")
    env = {"CLOCHE_CONFIG": str(config)}
    assert who.trigger("from ctypes import CDLL", env_outside=env).status == "rejected"
    r = who.trigger("import socket\nprint('ran')", env_outside=env)
    assert r.stdout == "ran\n" and lines_of(r, "socket") == [1]


def test_syntax_error_is_the_script_s_own(who):
    """It can't run, so there is nothing to screen: Python's own message, not ours."""
    for env in (reporting("ctypes"), rejecting("ctypes")):
        r = who.trigger("import ctypes\nif x\n    pass", env_outside=env)
        assert r.verdict == ("error", 1) and "SyntaxError" in r.stderr and 'line 2' in r.stderr


BOMBS = {
    "unary": "x = " + "-" * 900_000 + "1",
    "attributes": "import ctypes\nx = a" + ".b" * 300_000,
    "sum": "x = 1" + "+1" * 300_000,
    "calls": "x = f" + "()" * 200_000,
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_screen_that_dies(who, bomb):
    """What could not be screened is rejected where rejecting is asked for, and told where only reporting is."""
    r = who.trigger(BOMBS[bomb], env_outside=rejecting("ctypes"))
    assert r.verdict == ("rejected", -125), r
    assert "screen" in r.message.lower()
    nothing_ran(r)
    r = who.trigger(BOMBS[bomb], env_outside=reporting("ctypes"))
    assert r.status in ("error", "signaled", "memory_limit") and any("screen" in w.lower() for w in r.warnings), r


def test_huge_script(who):
    """A million bytes of innocent text: screened within the screen's own means, or honestly not."""
    script = "x=1\n" * 250_000 + "print('ran')"
    r = who.trigger(script, env_outside=reporting("ctypes"), limits={"memory_bytes": 1 << 30})
    assert r.stdout == "ran\n"
    r = who.trigger(script, env_outside=rejecting("ctypes"), limits={"memory_bytes": 1 << 30})
    assert r.stdout == "ran\n" or (r.status == "rejected" and "screen" in r.message.lower())


def test_many_findings_are_bounded(who):
    r = who.trigger("import ctypes\n" * 5000 + "print('ran')", env_outside=reporting("ctypes"))
    assert r.stdout == "ran\n" and 1 <= len(r.warnings) <= 200


def test_the_script_s_files_do_not_reach_the_screen(who):
    """Names that the screen itself imports, given by the request, change nothing."""
    evil = "raise SystemExit(0)"
    files = {"ast.py": evil, "sys.py": evil, "sitecustomize.py": evil, "usercustomize.py": evil}
    r = who.trigger("import ctypes\nprint('ran')", files=files,
                    env={"PYTHONPATH": "/tmp", "PYTHONSTARTUP": "/tmp/ast.py"}, env_outside=rejecting("ctypes"))
    assert r.verdict == ("rejected", -125)
    nothing_ran(r)


def test_encodings(who):
    script = "# -*- coding: latin-1 -*-\nimport ctypes  # \u00e9\nprint('ran')"
    assert who.trigger(script, env_outside=rejecting("ctypes")).status == "rejected"
    assert who.trigger("\ufeffimport ctypes", env_outside=rejecting("ctypes")).status == "rejected"


def test_the_screen_leaves_nothing_behind(who, residue):
    """It ran in the same sandbox: no file, no process, no part of the script's times or limits."""
    script = """
import os, resource
print(os.listdir('/tmp'), os.listdir('/dev/shm'), len([p for p in os.listdir('/proc') if p.isdigit()]) <= 2,
      resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime)
import ctypes
"""
    r = who.trigger(script, args=[residue.mark], env_outside=reporting("ctypes"))
    assert r.stdout == "['unnamed_script.py'] [] True 0.0\n"
    assert r.cpu_time < 1
    residue.assert_none()


def test_it_is_advice_not_a_wall(who):
    """What a syntax tree does not show is not found, and the product does not claim so."""
    r = who.trigger("m = __import__('cty' + 'pes')\nprint(m.__name__)", env_outside=rejecting("ctypes"))
    assert r.stdout == "ctypes\n"
