# SPDX-License-Identifier: Apache-2.0
"""Figures that matplotlib shows become artifacts by themselves."""
import os
import struct
import subprocess

import pytest

import harness
from serving import Native, Server, request

pytestmark = pytest.mark.skipif(not harness.python_has("matplotlib"),
                                reason=f"{harness.SYSTEM_PYTHON} has no matplotlib: apt-get install python3-matplotlib")
PLT = "import matplotlib.pyplot as plt\n"

# What is shown, and the sizes in pixels of what is kept.
CASES = {
    "one": ("plt.figure(figsize=(2, 1)); plt.plot([1, 3, 2]); plt.show(); print(plt.get_fignums())", [(200, 100)], "[]\n"),
    "three at once": ("for n in 1, 2, 3: plt.figure(figsize=(n, 1)); plt.plot([n])\nplt.show()",
                      [(100, 100), (200, 100), (300, 100)], ""),
    "in a loop": ("for n in 1, 2: plt.figure(figsize=(n, 1)); plt.plot([n]); plt.show()", [(100, 100), (200, 100)], ""),
    "not shown": ("plt.plot([1]); plt.savefig('own.png'); plt.close()", [], ""),
    "nothing to show": ("plt.show()", [], ""),
    "without pyplot": ("from matplotlib.figure import Figure\nf = Figure(); f.subplots().plot([1]); f.savefig('x.png')",
                       [], ""),
    "Figure.show": ("f = plt.figure(figsize=(2, 1)); f.show(); plt.show()", [(200, 100)], ""),
    "goes on working": ("f = plt.figure(figsize=(1, 1)); plt.show(block=False); plt.pause(0.01)\n"
                        "f.set_size_inches(2, 1); plt.show(block=False); f.set_size_inches(3, 1); plt.plot([1]); plt.close()",
                        [(300, 100)], ""),
    "interactive": ("plt.ion(); plt.figure(figsize=(2, 1)); plt.plot([1]); plt.show(); plt.title('later')\n"
                    "print(plt.get_fignums())", [(200, 100)], "[1]\n"),
    "animation": ("from matplotlib.animation import FuncAnimation\nf, ax = plt.subplots(figsize=(2, 1)); l, = ax.plot([], [])\n"
                  "a = FuncAnimation(f, lambda i: l.set_data([0, i], [0, i]), frames=5); plt.show()", [(200, 100)], ""),
    "still there": ("f = plt.figure(figsize=(2, 1)); plt.show(); f.savefig('after.png'); import os\n"
                    "print(os.path.getsize('after.png') > 100)", [(200, 100)], "True\n"),
    "two processes": ("import os\nif os.fork() == 0:\n    plt.figure(figsize=(2, 1)); plt.show(); os._exit(0)\n"
                      "os.wait(); plt.figure(figsize=(3, 1)); plt.show()", [(200, 100), (300, 100)], ""),
    "elsewhere": ("import os; os.mkdir('d'); os.chdir('d'); plt.figure(figsize=(2, 1)); plt.show(); print(os.listdir())",
                  [(200, 100)], "[]\n"),
}


def pixels(png):
    assert png.startswith(b"\x89PNG\r\n\x1a\n") and png.rstrip().endswith(b"IEND\xaeB`\x82")
    return struct.unpack(">II", png[16:24])


def kept(r):
    names = [a["name"] for a in r.artifacts]
    assert names == [f"figure-{i + 1}.png" for i in range(len(names))], r
    assert all(a["media_type"] == "image/png" for a in r.artifacts)
    return [pixels(r.artifact_bytes(name)) for name in names]


@pytest.mark.once
@pytest.mark.parametrize("name", CASES)
def test_shown(who, name):
    script, sizes, out = CASES[name]
    r = who.trigger(PLT + script)
    assert (r.verdict, r.stderr, r.stdout) == (("ok", 0), "", out)
    assert kept(r) == sizes


def test_warm(who):
    """Also where matplotlib was imported before the script came"""
    for settings in {}, {"CLOCHE_ENVIRONMENT_DEFAULT_PRELOAD": "matplotlib.pyplot"}:
        with Server(who, env=settings) as server, Native(server.path) as n:
            assert harness.wait_for(lambda: not isinstance(n.run(request("pass", mode="warm")), tuple), 30)
            for name in ("three at once", "in a loop", "not shown", "animation"):
                script, sizes, out = CASES[name]
                r = n.run(request(PLT + script, mode="warm"))
                assert (r.verdict, r.stderr, r.stdout, r.mode) == (("ok", 0), "", out, "warm")
                assert kept(r) == sizes
            assert n.run(request("print(1)", mode="warm")).artifacts == []


def test_together_with_others(who):
    r = who.trigger(PLT + "open('a.csv', 'w').write('1'); open('b.txt', 'w').write('2'); plt.figure(); plt.show()",
                    artifacts=["*.csv"])
    assert [a["name"] for a in r.artifacts] == ["a.csv", "figure-1.png"]


def test_the_script_s_own_file_stays(who):
    r = who.trigger(PLT + "open('figure-1.png', 'w').write('mine'); plt.figure(figsize=(2, 1)); plt.show()")
    assert r.artifact_bytes("figure-1.png") == b"mine" and pixels(r.artifact_bytes("figure-2.png")) == (200, 100)
    r = who.trigger(PLT + "plt.figure(); plt.show()", files={"figure-1.png": "input"})
    assert [a["name"] for a in r.artifacts] == ["figure-2.png"], "an input is no artifact"


@pytest.mark.parametrize("trap", ["os.symlink('/etc/passwd', 'figure-1.png')", "os.mkfifo('figure-1.png')",
                                  "os.mkdir('figure-1.png')"])
def test_what_only_has_the_name(who, trap):
    r = who.trigger("import os\n" + trap)
    assert (r.verdict, r.artifacts, r.warnings) == (("ok", 0), [], who.trigger("pass").warnings)


@pytest.mark.once
def test_of_a_run_that_timed_out(who):
    r = who.trigger(PLT + "plt.figure(figsize=(2, 1)); plt.show()\nwhile True: pass", timeout=5)
    assert r.status == "timeout" and kept(r) == [(200, 100)]


def test_a_figure_that_can_t_be_drawn_harms_nothing(who):
    r = who.trigger(PLT + "plt.title('$\\\\frac{$'); plt.show(); plt.figure(figsize=(2, 1)); plt.show()")
    assert r.verdict == ("ok", 0) and "the figure is not kept" in r.stderr and kept(r) == [(200, 100)]


def test_no_room(who):
    r = who.trigger(PLT + "plt.figure()\ntry:\n    f = open('f', 'wb')\n    while f.write(bytes(65536)): f.flush()\n"
                    "except OSError: pass\nplt.show(); print('on')")
    assert (r.verdict, r.stdout) == (("ok", 0), "on\n") and "the figure is not kept" in r.stderr and r.artifacts == []


def test_as_many_as_are_handed_back(who):
    r = who.trigger(PLT + "for i in range(70): plt.figure(figsize=(.2, .1)); plt.show()")
    assert r.verdict == ("ok", 0) and len(r.artifacts) == 64
    assert {a["name"] for a in r.artifacts} == {f"figure-{i + 1}.png" for i in range(64)}


@pytest.mark.once
def test_a_backend_that_was_chosen_is_used(who):
    assert who.trigger(PLT + "import matplotlib; plt.plot([1]); plt.show(); print(matplotlib.get_backend())",
                       env={"MPLBACKEND": "svg"}).artifacts == []
    r = who.trigger("import matplotlib; matplotlib.use('agg')\n" + PLT + "plt.plot([1]); plt.show(); print(plt.get_fignums())")
    assert (r.stdout, r.stderr, r.artifacts) == ("[1]\n", "", [])


def test_turned_off(who):
    off = {"CLOCHE_ENVIRONMENT_DEFAULT_FIGURES": "no"}
    look = ("import sys, os\n" + PLT + "import matplotlib.backends.backend_template as b\nplt.plot([1]); plt.show()\n"
            "print(sys.path, os.environ.get('PYTHONPATH'))\nprint(plt.get_backend().lower(), os.path.ismount(b.__file__),\n"
            "      open(b.__file__).read().count('Figures for whom nobody watches'))\n"
            "open('figure-9.png', 'w').write('x')")
    on, without = who.trigger(look), who.trigger(look, env_outside=off)
    assert (without.artifacts, without.stderr) == ([], "") and without.lines[1] == "agg False 0"
    assert [a["name"] for a in on.artifacts] == ["figure-1.png", "figure-9.png"] and on.lines[1].startswith("template ")
    assert on.lines[1].endswith(" 1") and on.lines[0] == without.lines[0], "sys.path is the same"


def test_the_backend_is_read_only(who):
    r = who.trigger("import os, matplotlib\np = os.path.join(os.path.dirname(matplotlib.__file__), 'backends/backend_template.py')\n"
                    "for f in (lambda: open(p, 'a'), lambda: os.unlink(p), lambda: os.rename(p, '/tmp/x'), "
                    "lambda: os.chmod(p, 0o777)):\n"
                    "    try:\n        f(); print('done')\n    except OSError as e:\n        print(e.errno != 0)")
    assert r.lines == ["True"] * 4


def environment(who, folder, link=None):
    """A Python of its own with something that has matplotlib's names, in @folder or where a link leads to"""
    subprocess.run([*who.prefix(), harness.SYSTEM_PYTHON, "-m", "venv", "--without-pip", folder], check=True, timeout=120,
                   env=who.env())
    site = next((folder / "lib").glob("python3*")) / "site-packages"
    real = (link or site) / "matplotlib"
    (real / "backends").mkdir(parents=True)
    (real / "backends/backend_template.py").write_text("IS = 'theirs'\n")
    for name in ("", "backends/"):
        (real / name / "__init__.py").write_text("")
    if link:
        os.symlink(real, site / "matplotlib")
    config = folder / "cloche.ini"
    config.write_text(f"[environment default]\npython = {folder}/bin/python\n")
    subprocess.run(["chmod", "-R", "a+rX", str(folder), *([str(link)] if link else [])], check=True)
    return {"CLOCHE_CONFIG": str(config)}


def test_in_a_venv(who):
    settings = environment(who, who.folder() / "venv")
    r = who.trigger("import matplotlib.backends.backend_template as b\nprint(b.__file__, hasattr(b, 'IS'))",
                    env_outside=settings)
    assert r.status == "error" and "_pylab_helpers" in r.stderr, "ours, which needs a whole matplotlib"


def test_a_link_that_leads_nowhere_inside(who):
    settings = environment(who, who.folder() / "venv", link=who.folder())
    r = who.trigger("import os\nprint('on')\nimport matplotlib", env_outside=settings)
    assert r.stdout == "on\n" and "ModuleNotFoundError" in r.stderr


def test_an_environment_without_matplotlib(root):
    script = root.file("import os\nopen('figure-1.png', 'w').write('x')\nprint(os.environ['MPLBACKEND'])\nimport matplotlib")
    hide = ("mount -t tmpfs none $(dirname $(dirname $(dirname $1))) && shift && exec \"$@\"")
    example = subprocess.run([harness.SYSTEM_PYTHON, "-c", "import matplotlib.backends as b; print(b.__path__[0])"],
                             check=True, capture_output=True, text=True, timeout=60).stdout.strip()
    p = root.popen("run", "--json", script, before=["unshare", "-m", "sh", "-c", hide, "sh",
                                                    os.path.join(example, "backend_template.py")])
    out, err = p.communicate(timeout=60)
    r = harness.Result(harness.strict_json(out))
    assert r.stdout == "Agg\n" and "ModuleNotFoundError" in r.stderr and r.artifacts == [], (r, err)


def test_run(who):
    folder = who.folder()
    script = PLT + "for n in 1, 2: plt.figure(figsize=(n, 1)); plt.show()"
    p = who.run(script, "-o", folder)
    assert (p.returncode, p.stderr if who.is_root else b"") == (0, b"")
    assert {"figure-1.png", "figure-2.png"} <= set(os.listdir(folder))
    assert pixels((folder / "figure-2.png").read_bytes()) == (200, 100)
    p = who.run(script)
    assert p.returncode == 0 and p.stderr.count(b"2 figures left out (with --output DIR they are kept)\n") == 1
    assert who.run(script, "-q").stderr == b""
    assert b"figure" not in who.run(PLT + "plt.plot([1])").stderr
