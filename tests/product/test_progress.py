# SPDX-License-Identifier: Apache-2.0
"""What is shown on a terminal: the line of `cloche run --progress`, and nothing that a script could make it obey."""
import os
import re
import subprocess
import time

import pytest

from serving import on_terminal

SHOWN = re.compile(rb"cloche: \d+\.\d s of 60 s at most")
ERASE = b"\r\x1b[K"
SLOW = "import time\nprint('begin', flush=True)\ntime.sleep(1)\nprint('end')"


def test_shown_and_erased(who):
    status, got = on_terminal(who, "run", "-q", "--progress", who.file(SLOW))
    assert status == 0 and len(SHOWN.findall(got)) >= 2 and b", 6 bytes written" in got
    assert got.count(b"\n") == 2 and got.endswith(b"end\r\n")
    for line in SHOWN.finditer(got):
        assert ERASE in got[line.end():], "each one goes again"
    assert got[:got.index(b"end\r\n")].endswith(ERASE)


def test_the_script_s_line_is_not_broken(who):
    script = "import time\nprint('half', end='', flush=True)\ntime.sleep(1.5)\nprint(' whole')"
    _, got = on_terminal(who, "run", "-q", "--progress", who.file(script))
    assert b"half whole\r\n" in got


def test_output_elsewhere_is_untouched(who):
    status, got = on_terminal(who, "run", "-q", "--progress", who.file("import sys\n" + SLOW), stdout=subprocess.DEVNULL)
    assert status == 0 and SHOWN.search(got) and b"begin" not in got and got.endswith(ERASE)


def test_colour_only_where_it_is_wanted(who):
    assert b"\x1b[2m" in on_terminal(who, "run", "-q", "--progress", who.file(SLOW))[1]
    _, got = on_terminal(who, "run", "-q", "--progress", who.file(SLOW), env={"NO_COLOR": "1"})
    assert SHOWN.search(got) and not re.search(rb"\x1b\[\d*m", got)


@pytest.mark.parametrize("term", ["dumb", ""])
def test_not_where_it_could_not_be_erased(who, term):
    assert on_terminal(who, "run", "-q", "--progress", who.file(SLOW), env={"TERM": term})[1] == b"begin\r\nend\r\n"


def test_never_longer_than_a_line(who):
    _, got = on_terminal(who, "run", "-q", "--progress", who.file(SLOW), columns=20, env={"NO_COLOR": "1"})
    lines = [part for part in got.split(ERASE) if part.startswith(b"cloche:")]
    assert lines and all(len(line) < 20 for line in lines)


def test_nothing_unless_asked_and_on_a_terminal(who):
    assert on_terminal(who, "run", "-q", who.file(SLOW))[1] == b"begin\r\nend\r\n"
    p = who.run(SLOW, "-q", "--progress", env={"TERM": "xterm"})
    assert (p.returncode, p.stdout, p.stderr) == (0, b"begin\nend\n", b"")


def test_output_is_exact(who):
    """A script's own escapes are its output, and that is not changed"""
    script = "import sys\nsys.stdout.buffer.write(bytes(range(256)) * 40 + b'\\n')"
    assert who.run(script, "--progress").stdout == bytes(range(256)) * 40 + b"\n"


def test_ends_with_the_run(who):
    start = time.monotonic()
    status, got = on_terminal(who, "run", "--progress", "-t", "0.4", who.file("import time\ntime.sleep(30)"))
    assert status == 124 and time.monotonic() - start < 10
    assert b"timeout" in got and b"0.4 s at most" in got


# ---- nothing of a script's is obeyed -----------------------------------------------------------------------------

EVIL = "\x1b]0;owned\x07\x1b[2J\u009b31m\u202etxt.exe"


def is_tame(text):
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text.decode("utf-8")), text
    return True


def test_names_of_artifacts(who):
    folder = who.folder()
    script = f"open({EVIL!r}, 'w').write('x')\nopen(b'\\xff\\xfe', 'w').write('y')\nopen({EVIL!r} + '2', 'wb').truncate(9 << 20)"
    for _ in range(2):
        p = who.run(script, "-o", folder)
    assert b"is there already" in p.stderr and b"left out" in p.stderr and b"\\x1b]0;owned" in p.stderr
    assert is_tame(p.stderr) and EVIL in os.listdir(folder)


def test_words_about_a_request(who):
    for args in (["run", "--environment", EVIL, "-"], ["run", "--file", EVIL, "-"], ["run", EVIL], ["env", EVIL],
                 ["run", "--artifact", EVIL, "-"], ["trigger", EVIL], ["batch", EVIL], ["doctor", "--require", EVIL],
                 ["config", "check", EVIL], ["run", "-o", EVIL + "/x/y", "-"], [EVIL], ["run", "--" + EVIL]):
        p = who.cloche(*args)
        assert p.returncode != 0 and p.stdout + p.stderr and is_tame(p.stdout + p.stderr), (args, p)


def test_what_a_screen_finds(who):
    p = who.run(f"import ctypes as \u0430\n{EVIL[-8:]!r}\n", "--screen-report", "ctypes")
    assert b"ctypes" in p.stderr and is_tame(p.stderr)


def test_settings_are_shown(who):
    config = who.folder() / "cloche.ini"
    config.write_text("[environment x]\npython = /usr/bin/\x1b[31mpython\n")
    config.chmod(0o644)
    p = who.cloche("env", "--local", env={"CLOCHE_CONFIG": str(config)})
    assert p.returncode == 0 and b"\\x1b[31m" in p.stdout and is_tame(p.stdout)
    p = who.cloche("doctor", env={"CLOCHE_CONFIG": str(config)})
    assert is_tame(p.stdout)
