# SPDX-License-Identifier: Apache-2.0
"""Files that come back: patterns, what is never followed or waited for, caps."""
import ctypes
import os
import threading
import time

import pytest

from harness import wait_for
from serving import Native, Server, request

MIB = 1 << 20

TREE = """
import os
for name in ('a.txt', 'b.txt', 'c.png', '.dot.txt', 'd/e.txt', 'd/f/g.txt', 'd/.h/i.txt', '.j/k.txt', 'x1', 'x2', 'y1'):
    if '/' in name: os.makedirs(os.path.dirname(name), exist_ok=True)
    open(name, 'w').write('content of ' + name)
"""


def names(r):
    return sorted(a["name"] for a in r.artifacts)


@pytest.mark.parametrize("patterns,expected", [
    (["a.txt"], ["a.txt"]),
    (["*.txt"], ["a.txt", "b.txt"]),
    (["?.txt"], ["a.txt", "b.txt"]),
    (["[xy]1"], ["x1", "y1"]),
    (["[!y]1"], ["x1"]),
    (["x[0-9]"], ["x1", "x2"]),
    (["*/*.txt"], ["d/e.txt"]),
    (["d/*"], ["d/e.txt"]),
    (["**/*.txt"], ["a.txt", "b.txt", "d/e.txt", "d/f/g.txt"]),
    (["d/**/*.txt"], ["d/e.txt", "d/f/g.txt"]),
    ([".*"], [".dot.txt"]),
    ([".dot.txt"], [".dot.txt"]),
    (["d/.h/*"], ["d/.h/i.txt"]),
    (["a.txt", "*.txt", "a.*"], ["a.txt", "b.txt"]),
    (["nothing-like-this"], []),
    (["*.png", "x?"], ["c.png", "x1", "x2"]),
])
def test_patterns(who, patterns, expected):
    r = who.trigger(TREE, artifacts=patterns)
    assert r.verdict == ("ok", 0) and names(r) == expected
    for name in expected:
        assert r.artifact_bytes(name) == b"content of " + name.encode()
        assert r.artifact(name)["size"] == len("content of " + name)


def test_none_unless_asked(who):
    assert who.trigger(TREE).artifacts == []


def test_media_types(who):
    made = ["a.png", "b.csv", "c.json", "d.html", "e.unknownsuffix", "f", "g.pdf", "h.svg", "i.txt"]
    r = who.trigger(f"for n in {made}: open(n, 'w').write('x')", artifacts=["*"])
    types = {a["name"]: a["media_type"] for a in r.artifacts}
    assert (types["a.png"], types["g.pdf"], types["h.svg"]) == ("image/png", "application/pdf", "image/svg+xml")
    assert types["b.csv"].startswith("text/csv") and types["i.txt"].startswith("text/plain")
    assert types["c.json"] == "application/json" and types["d.html"].startswith("text/html")
    assert types["e.unknownsuffix"] == types["f"] == "application/octet-stream"


def test_inputs_only_when_changed(who):
    script = """
open('changed.txt', 'a').write('!')
open('same-size.txt', 'w').write('XYZ')
open('rewritten.txt', 'w').write('same')
open('new.txt', 'w').write('n')
"""
    files = {"untouched.txt": "u", "changed.txt": "c", "same-size.txt": "abc", "rewritten.txt": "same",
             "sub/in.txt": "s"}
    r = who.trigger(script, files=files, artifacts=["*.txt", "*.py", "sub/*"])
    assert names(r) == ["changed.txt", "new.txt", "same-size.txt"], "inputs and the script itself only when changed"
    assert r.artifact_bytes("changed.txt") == b"c!"
    r = who.trigger("open(__file__, 'a').write('#')", artifacts=["*.py"])
    assert names(r) == ["unnamed_script.py"]


def test_links_fifos_sockets_and_devices_are_no_files(who):
    script = """
import os, socket
open('real', 'w').write('r')
os.symlink('/etc/passwd', 'link-out'); os.symlink('real', 'link-in'); os.symlink('/', 'root'); os.symlink('.', 'loop')
os.mkdir('folder'); os.symlink('../folder', 'folder/up'); open('folder/f', 'w').write('f')
os.mkfifo('fifo'); s = socket.socket(socket.AF_UNIX); s.bind('sock')
"""
    start = time.monotonic()
    r = who.trigger(script, artifacts=["*", "**/*", "root/etc/passwd", "loop/real", "link-out", "fifo", "sock"])
    assert time.monotonic() - start < 10, "a FIFO is never waited for"
    with_content = [a["name"] for a in r.artifacts if not a.get("left_out")]
    assert sorted(with_content) == ["folder/f", "real"]


def test_sparse_petabyte(who):
    script = "open('small', 'w').write('s')\nf = open('sparse', 'wb')\nf.truncate(1 << 50)"
    start = time.monotonic()
    r = who.trigger(script, artifacts=["*"])
    assert time.monotonic() - start < 10
    if r.status == "error":
        assert "File too large" in r.stderr  # refused when made: just as good
    else:
        assert r.artifact("sparse")["left_out"] and r.artifact("sparse")["size"] == 1 << 50
        assert not r.artifact("sparse").get("base64")
    assert r.artifact_bytes("small") == b"s"


def test_deep_folders(who):
    script = """
import os
open('top.txt', 'w').write('t')
for i in range(1000):
    os.mkdir('d'); os.chdir('d')
open('bottom.txt', 'w').write('b')
"""
    start = time.monotonic()
    r = who.trigger(script, artifacts=["**/*.txt"])
    assert r.verdict == ("ok", 0) and r.artifact_bytes("top.txt") == b"t"
    assert time.monotonic() - start < 10
    assert who.trigger("print(1)").stdout == "1\n"


def test_many_files_and_wide_folders(who):
    script = "import os\nfor i in range(3000): open(f'f{i:04}', 'w').write(str(i))"
    r = who.trigger(script, artifacts=["*"])
    kept = [a for a in r.artifacts if not a.get("left_out")]
    assert len(kept) <= 64 and len(r.artifacts) < 200
    assert len(kept) >= 60 and (len(r.artifacts) > len(kept) or r.warnings), "what is missing is told"


def test_odd_names(who):
    odd = ["sp ace", "new\nline", "quote'\"", "-rf", "\u4e2d\u6587", "$(id)", "*", "[x]", "back\\slash",
           "\x1b[31m", "n" * 255]
    r = who.trigger(f"for n in {odd!r}: open(n, 'w').write(n)", artifacts=["*"])
    assert names(r) == sorted(odd)
    for name in odd:
        assert r.artifact_bytes(name) == name.encode()


def test_names_that_are_no_utf8(who):
    r = who.trigger("open(b'bad-\\xff-name', 'w').write('x')\nopen('good', 'w').write('y')", artifacts=["*"])
    assert len(r.artifacts) == 2 and r.artifact_bytes("good") == b"y"
    bad = next(a for a in r.artifacts if a["name"] != "good")
    assert bad["name"].startswith("bad-")


def test_one_file_over_its_cap(who):
    script = (f"open('big', 'wb').write(b'x' * {8 * MIB + 1})\nopen('edge', 'wb').write(b'y' * {8 * MIB})\n"
              "open('s', 'w').write('s')")
    r = who.trigger(script, artifacts=["*"], limits={"memory_bytes": 256 * MIB})
    assert r.artifact("big")["left_out"] and r.artifact("big")["size"] == 8 * MIB + 1
    assert "base64" not in r.artifact("big") or not r.artifact("big")["base64"]
    assert len(r.artifact_bytes("edge")) == 8 * MIB and r.artifact_bytes("s") == b"s"


def test_all_files_over_their_cap(who):
    script = f"for i in range(6): open(f'f{{i}}', 'wb').write(b'x' * {7 * MIB})"
    r = who.trigger(script, artifacts=["*"])
    kept = [a for a in r.artifacts if not a.get("left_out")]
    assert len(kept) == 4 and len(r.artifacts) == 6, "4 x 7 MiB fit into 32 MiB"
    assert all(a["left_out"] for a in r.artifacts if a not in kept)


def test_unreadable_things_harm_nothing(who):
    script = """
import os
open('secret', 'w').write('s'); os.chmod('secret', 0)
os.mkdir('shut'); open('shut/x', 'w').write('x'); os.chmod('shut', 0)
open('fine', 'w').write('f')
os.chmod('/tmp', 0o111)
"""
    r = who.trigger(script, artifacts=["**/*"])
    assert r.verdict == ("ok", 0)
    assert {"/etc/passwd"}.isdisjoint(names(r)) and all(n in ("fine", "secret", "shut", "shut/x") for n in names(r))
    assert who.trigger("print(1)").stdout == "1\n"


@pytest.mark.parametrize("end,status", [("raise SystemExit(4)", "error"), ("while True: pass", "timeout"),
                                        ("import os; os.kill(os.getpid(), 9)", "signaled")])
def test_artifacts_of_a_run_that_failed(who, end, status):
    r = who.trigger("open('log.txt', 'w').write('so far')\n" + end, artifacts=["*.txt"], timeout=1)
    assert r.status == status and r.artifact_bytes("log.txt") == b"so far"


def test_files_that_change_until_the_end(who):
    """Everything is dead before the first artifact is read: a name, a size and a content that belong together."""
    script = """
import os
if os.fork() == 0:
    while True:
        open('moving', 'w').write('x' * 100000)
        os.rename('moving', 'moved'); os.rename('moved', 'moving')
import time; time.sleep(0.3)
"""
    for _ in range(3):
        r = who.trigger(script, artifacts=["mov*"])
        assert len(r.artifacts) <= 2 and r.verdict == ("ok", 0)


def test_run_writes_them_and_never_over_something(who):
    folder = who.folder()
    script = "import os\nos.makedirs('sub')\nopen('sub/a.txt', 'w').write('new')\nopen('b.txt', 'w').write('new')"
    options = ("--artifact", "**/*.txt", "-o", folder)
    p = who.run(script, *options)
    assert p.returncode == 0 and (folder / "sub/a.txt").read_text() == "new" and (folder / "b.txt").read_text() == "new"
    assert (folder / "b.txt").stat().st_uid == who.uid
    (folder / "b.txt").write_text("precious")
    p = who.run(script, *options)
    assert p.returncode != 0 and (folder / "b.txt").read_text() == "precious" and b"b.txt" in p.stderr
    assert who.run(script, *options, "--force").returncode == 0 and (folder / "b.txt").read_text() == "new"


def test_run_writes_through_no_link(who):
    folder, outside = who.folder(), who.folder()
    (outside / "target").write_text("precious")
    os.symlink(outside, folder / "sub")
    os.symlink(outside / "target", folder / "b.txt")
    script = "import os\nos.makedirs('sub')\nopen('sub/a.txt', 'w').write('new')\nopen('b.txt', 'w').write('new')"
    for force in ((), ("--force",)):
        who.run(script, "--artifact", "**/*.txt", "-o", folder, *force)
        assert (outside / "target").read_text() == "precious" and os.listdir(outside) == ["target"]


# ---- delivered by the command line -------------------------------------------------------------------------------

def deliver(who, script, *options, folder=None, pattern="**"):
    folder = folder or who.folder()
    p = who.run(script, "-q", "--artifact", pattern, "-o", folder, *options)
    found = {os.path.relpath(os.path.join(d, n), folder) for d, _, files in os.walk(os.fsencode(folder).decode()) for n in files}
    return p, folder, found


def test_run_delivers_odd_names(who):
    odd = ["sp ace", "new\nline", "-rf", "\u4e2d\u6587", "$(id)", "\x1b[31m", "n" * 255, "a/b\n/c"]
    script = f"import os\nos.makedirs('a/b\\n')\nfor n in {odd!r}: open(n, 'w').write(n)\nopen(b'\\xff', 'w').write('x')"
    p, folder, found = deliver(who, script)
    assert (p.returncode, p.stderr) == (0, b"") and found == {*odd, "\udcff"}, "bytes as they were"
    assert all((folder / n).read_text() == n for n in odd)


def test_run_delivers_no_traps(who):
    script = """
import os, socket
open('real', 'w').write('r')
os.symlink('/etc/passwd', 'link'); os.symlink('/', 'root'); os.mkfifo('fifo')
s = socket.socket(socket.AF_UNIX); s.bind('sock')
try:
    open('sparse', 'wb').truncate(1 << 50)
except OSError:
    pass
for i in range(1000):
    os.mkdir('d'); os.chdir('d')
open('bottom', 'w').write('b')
"""
    start = time.monotonic()
    p, folder, found = deliver(who, script)
    assert p.returncode == 0 and time.monotonic() - start < 15
    assert found == {"real", "sparse"} and (folder / "real").read_text() == "r"
    assert (folder / "sparse").stat().st_size == 0, "a size that was refused when it was asked for"


@pytest.mark.parametrize("there", ["folder", "fifo", "link", "dangling"])
def test_run_meets_what_is_no_file(who, there):
    """In the place of a file, and of a folder: a note each, the others are delivered, and nothing is waited for."""
    folder, outside = who.folder(), who.folder()
    for name in ("b.txt", "sub"):
        path = folder / name
        if there == "folder" and name == "b.txt":
            path.mkdir()
        elif there in ("folder", "fifo"):
            os.mkfifo(path)
        else:
            os.symlink(outside / ("nothing" if there == "dangling" else ""), path)
        os.chown(path, who.uid, who.gid, follow_symlinks=False)
    script = "import os\nos.mkdir('sub')\nfor n in ('sub/a.txt', 'b.txt', 'c.txt'): open(n, 'w').write('new')"
    for force in ((), ("--force",)):
        p = who.run(script, "--artifact", "**", "-o", folder, *force)
        assert p.returncode == 125 and b"sub/a.txt" in p.stderr and os.listdir(outside) == []
        assert (folder / "c.txt").read_text() == "new"
        assert ((folder / "b.txt").is_file() and not (folder / "b.txt").is_symlink()) == (there != "folder" and bool(force))


def test_run_keeps_the_script_s_status(who):
    folder = who.folder()
    (folder / "a.txt").write_text("precious")
    p = who.run("open('a.txt', 'w').write('new'); raise SystemExit(7)", "--artifact", "*.txt", "-o", folder)
    assert p.returncode == 7 and b"is there already" in p.stderr and (folder / "a.txt").read_text() == "precious"


def test_run_while_folders_are_replaced(who):
    """Somebody swaps a folder for a link all the time: nothing ever lands where the link leads"""
    folder, outside, aside = who.folder(), who.folder(), who.folder()
    script = "import os\nos.mkdir('sub')\nfor i in range(60): open(f'sub/{i}', 'w').write('new')"
    link, stop = aside / "link", threading.Event()
    os.symlink(outside, link)
    (folder / "sub").mkdir()
    os.chown(folder / "sub", who.uid, who.gid)
    swaps = 0

    def swap():
        nonlocal swaps
        libc, flags = ctypes.CDLL(None), 2  # RENAME_EXCHANGE
        while not stop.is_set():
            assert libc.renameat2(-100, bytes(link), -100, bytes(folder / "sub"), flags) == 0
            swaps += 1
    t = threading.Thread(target=swap)
    t.start()
    try:
        for _ in range(4):
            p = who.run(script, "--artifact", "**", "-o", folder, "--force", timeout=30)
            assert p.returncode in (0, 125)
    finally:
        stop.set()
        t.join()
    assert os.listdir(outside) == [] and swaps > 100


def test_output_that_is_no_folder(who):
    file = who.file("x")
    for path in (file, file / "below", "/proc/nowhere/at/all"):
        p = who.run("open('a', 'w')", "-o", path)
        assert p.returncode == 125 and p.stderr.count(b"\n") == 1 and b"--output" in p.stderr


# ---- at a server -------------------------------------------------------------------------------------------------

SERVED = {
    "links": "import os\nopen('real', 'w').write('r'); os.symlink('/etc/passwd', 'l'); os.symlink('/', 'root'); os.mkfifo('f')",
    "sparse": "open('small', 'w').write('s')\ntry: open('sparse', 'wb').truncate(1 << 50)\nexcept OSError: pass",
    "deep": "import os\nopen('top', 'w')\nfor i in range(1000): os.mkdir('d'); os.chdir('d')\nopen('bottom', 'w')",
    "wide": "for i in range(3000): open(f'f{i:04}', 'w').write(str(i))",
    "odd": "for n in ('new\\nline', '\\x1b[31m', 'n' * 255, '\u4e2d'): open(n, 'w').write(n)\nopen(b'\\xff', 'w').write('x')",
    "large": "for i in range(6): open(f'f{i}', 'wb').write(b'x' * (7 << 20))",
    "shut": "import os\nos.mkdir('d'); open('d/x', 'w'); os.chmod('d', 0); open('fine', 'w'); os.chmod('/tmp', 0o111)",
}


def test_a_server_gives_the_same(who):
    """Warm, through the native socket and through `cloche trigger`: names, contents and notes as without a server"""
    with Server(who) as server, Native(server.path) as n:
        assert wait_for(lambda: not isinstance(n.run(request("pass", mode="warm")), tuple))
        for name, script in SERVED.items():
            q = request(script, artifacts=["**"])
            local = who.take_result(who.trigger_raw(q, "--local"))
            native = n.run(q)
            through = who.take_result(who.trigger_raw(q, "--server", server.path))
            assert native.mode == through.mode == "warm" and native.verdict == local.verdict == ("ok", 0)
            assert native.artifacts == through.artifacts == local.artifacts, name
            assert local.artifacts, name
