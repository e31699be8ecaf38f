# SPDX-License-Identifier: Apache-2.0
"""What the documents say is so: shown commands print what is shown; what is named exists."""
import importlib.util
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

import harness

REPO = harness.REPO
PAGES = ["README.md", "ARCHITECTURE.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md",
         *sorted(str(p.relative_to(REPO)) for folder in ("docs", "docs/adr") for p in (REPO / folder).glob("*.md"))]


def page(name):
    return (REPO / name).read_text(encoding="utf-8")


def section(name, title):
    """The text below a heading, up to the next one of its kind or above."""
    m = re.search(rf"^(#+) {re.escape(title)}\n(.*?)(?=^#{{1,2}} |\Z)", page(name), re.M | re.S)
    assert m, f"{name} has no heading {title}"
    return m[2]


def rows(text):
    """The cells of a table's rows, without its heading"""
    table = [[c.strip() for c in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    assert len(table) > 2, text
    return table[2:]


# --- commands that are shown with their output

def sessions(name):
    """(command, output) of each console block; what goes on in the background belongs to the rest of its block"""
    found = []
    for block in re.findall(r"^```console\n(.*?)^```", page(name), re.M | re.S):
        is_background = False
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, _, output = part.partition("\n")
            if is_background:
                command, output = f"{found[-1][0]}\n{command}", found.pop()[1] + output
            found.append((command, output))
            is_background = is_background or command.endswith(" &")
    return found


def masked(text):
    """What differs from run to run and from host to host is left out; everything else must agree to the letter."""
    text = re.sub(r'("(?:execution_time|cpu_time|queue_time)": )[0-9.e-]+', r"\1SECONDS", text)
    text = re.sub(r'"run_id": "[0-9a-f]{32}"', '"run_id": "ID"', text)
    text = re.sub(r'"peak_memory_bytes": (?:\d+|null)', '"peak_memory_bytes": BYTES', text)
    text = re.sub(r'"warnings": \[.*?\]', '"warnings": []', text, flags=re.S)
    text = re.sub(r"stopped after [0-9.]+ seconds", "stopped after SECONDS", text)
    text = re.sub(r"(\(memory_bytes\); peak ).*", r"\1BYTES", text)
    text = re.sub(r"^cloche: warning: (?!screening).*\n", "", text, flags=re.M)
    text = re.sub(r"\b\d+\.\d+ s\b", "TIME s", text)
    text = re.sub(r", peak memory \S+ MiB", "", text)
    text = re.sub(r", run [0-9a-f]{32}$", ", run ID", text, flags=re.M)
    text = re.sub(r"^(?:ok|weak|MISSING) +([a-z_-]+  .+?): .*$", r"\1", text, flags=re.M)
    return re.sub(r"^Scripts run here.*\n", "VERDICT\n", text, flags=re.M)


SHOWN = [(name, n) for name in ("README.md", "docs/screening.md") for n in range(len(sessions(name)))]


# A reader's second is enough on an idle machine; here it takes as long as it takes.
READY = ("for i in $(seq 200); do echo 0 | build/cloche run --server $PWD/cloche.sock --mode warm -q - 2> /dev/null "
         "&& break; sleep 0.1; done; : > serve.log")


@pytest.fixture
def desk(who, homes):
    """A folder as the reader has it: build/, examples/ and the files that the pages show with cat"""
    folder = homes / f"desk-{who.name}"
    if folder.exists():
        return folder
    folder.mkdir()
    os.chown(folder, who.uid, who.gid)
    (folder / "build").symlink_to(pathlib.Path(who.binary).parent)
    (folder / "examples").mkdir()
    for example in (REPO / "examples").iterdir():
        (folder / "examples" / example.name).write_bytes(example.read_bytes())
    for command, output in sessions("README.md"):
        m = re.fullmatch(r"cat (\S+)", command)
        if m:
            (folder / m[1]).write_text(output)
    return folder


@pytest.mark.parametrize("name, n", SHOWN)
def test_shown_commands_print_what_is_shown(who, desk, name, n):
    command, shown = sessions(name)[n]
    p = subprocess.Popen([*who.prefix(), "/bin/bash", "-c", command.replace("sleep 1;", f"{READY};")], cwd=desk,
                         stdin=subprocess.DEVNULL, env=who.env(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         text=True, start_new_session=True)
    try:
        stdout, _ = p.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(p.pid, signal.SIGKILL)
        raise
    assert masked(stdout) == masked(shown), command


def test_the_demo_shows_the_main_commands():
    used = {c for command, _ in sessions("README.md") for c in re.findall(r"build/cloche (\w+)", command)}
    assert used == {"run", "trigger", "batch", "doctor", "serve"}


# --- what is named exists

def known_commands(binary):
    text = subprocess.run([binary, "--help"], capture_output=True, text=True, timeout=20, check=True).stdout
    found = set(re.findall(r"^  cloche ([a-z]+) ", text, re.M))
    assert {"run", "trigger", "batch", "doctor", "config", "serve", "env"} <= found
    return found


def known_options(binary):
    text = "".join(subprocess.run([binary, *c], capture_output=True, text=True, timeout=20, check=True).stdout
                   for c in (["--help"], *([c, "--help"] for c in sorted(known_commands(binary)))))
    text += subprocess.run([sys.executable, "-B", REPO / "bench/run.py", "--help"], capture_output=True, text=True,
                           timeout=20, check=True).stdout
    return set(re.findall(r"--[a-z][a-z-]*", text))


OF_OTHERS = {"--security-opt", "--user", "--group", "--scope", "--max-time", "--only"}  # Docker's, systemd's, curl's, a test's


@pytest.mark.parametrize("name", PAGES)
def test_options_exist(binary, name):
    code = " ".join(re.findall(r"`+[^`]*`+", page(name))) + "".join(c + " " for c, _ in sessions(name))
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", code))
    assert named <= known_options(binary) | OF_OTHERS


@pytest.mark.parametrize("name", PAGES)
def test_commands_exist(binary, name):
    code = "\n".join(re.findall(r"`([^`\n]+)`", page(name)))
    named = set(re.findall(r"(?<![\w/.-])cloche ([a-z]+)", code))
    assert named <= known_commands(binary)


@pytest.mark.parametrize("name", PAGES)
def test_make_targets_exist(name):
    named = set(re.findall(r"(?:`|^    )make ([a-z-]+)", page(name), re.M))
    targets = set(re.findall(r"^([a-z-]+):", page("Makefile"), re.M))
    assert named <= targets


@pytest.mark.parametrize("name", PAGES)
def test_files_exist(name):
    """Whatever looks like a path of this repository is one; a bare file name is one beside the path before it."""
    folder = None
    for span in re.findall(r"`([^`\n]+)`", page(name)):
        path = span.split()[0].rstrip(",;:")
        if re.fullmatch(r"(?:src|tests|tools|docs|bench|examples|include|packaging)/[\w./-]+", path):
            assert (REPO / path).exists(), path
            folder = (REPO / path).parent if (REPO / path).is_file() else REPO / path
        elif re.fullmatch(r"(?:base|job|sandbox|zygote|run|server|cli|lib)/\w+\.[ch]", path):
            assert (REPO / "src" / path).is_file(), path
        elif re.fullmatch(r"\w+\.[ch]", path):
            assert folder and (folder / path).is_file(), path
        elif re.fullmatch(r"[A-Z]+\.md", path):
            assert (REPO / path).is_file(), path


@pytest.mark.parametrize("map_of, files", [("src/cli/main.c", "src/cli/*.c"), ("src/server/server.h", "src/server/*.c"),
                                           ("src/doors/door.h", "src/doors/http*.c")])
def test_maps_of_folders_are_whole(map_of, files):
    """A comment that tells what each file of a folder is names those that there are."""
    head = page(map_of)
    head = next(c for c in re.findall(r"/\*.*?\*/", head, re.S) if len(re.findall(r"^ \*\t\w+\.c", c, re.M)) > 3)
    named = {n for line in re.findall(r"^ \*\t((?:\w+\.c(?:, )?)+)", head, re.M) for n in line.split(", ")}
    there = {p.name for p in REPO.glob(files)} - {"main.c"}
    assert {n for n in named if n in there or n.startswith("http")} == there and all(
        (REPO / map_of).with_name(n).exists() for n in named)


def defined(path, function):
    return re.search(rf"^[\w *]*\b{function}\(", (REPO / "src" / path).read_text(), re.M)


def test_the_way_of_the_data():
    """Each line names a file and functions that are in it, or in one that the line's own words lead to."""
    lines = [line for line in section("ARCHITECTURE.md", "The way of the data").splitlines() if line.startswith("    ")]
    assert len(lines) > 8
    for line in lines:
        path, function = re.match(r"    (\S+) +(\w+)\(\)", line).groups()
        assert defined(path, function), line


@pytest.mark.parametrize("name", PAGES)
def test_functions_exist(name):
    everything = "".join(p.read_text() for p in (REPO / "src").rglob("*.[ch]"))
    python = "".join(p.read_text() for p in (REPO / "src/inside").glob("*.py"))
    for function in re.findall(r"`(\w+)\(\)`", page(name)):
        if function not in ("exit", "abort", "dup2"):
            assert re.search(rf"^[\w *]*\b{function}\(", everything, re.M) or f"\ndef {function}(" in python, function


def test_five_questions():
    for path, function in (("cli/build.c", "build_job"), ("job/request_json.c", "job_parse"),
                           ("run/supervise.c", "on_deadline"), ("run/supervise.c", "work_begin")):
        assert defined(path, function), function
    assert "} steps[] = {" in page("src/sandbox/inside.c")
    for path, function, what in (("run/supervise.c", "work_begin", "work_enter(w, WORK_RUNNING, w->job.timeout_ns);"),
                                 ("run/supervise.c", "on_executed", "work_begin(w, "),
                                 ("run/warm.c", "warm_hand_over", "work_begin(w, ")):
        body = re.search(rf"^(?:static )?void {function}\(.*?^}}", page(f"src/{path}"), re.M | re.S)[0]
        assert what in body, function


def test_architecture_is_short_and_maps_every_module():
    text = page("ARCHITECTURE.md")
    assert len(text.splitlines()) <= 150
    spec = importlib.util.spec_from_file_location("check_layers", REPO / "tools/check_layers.py")
    layers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(layers)
    table = {r[0].strip("`"): r[2] for r in rows(section("ARCHITECTURE.md", "Code map")) if r[0].startswith("`src/")
             and "." not in r[0]}
    built = "".join(p.read_text() for p in (REPO / "src").rglob("meson.build"))
    there = {p.name for p in (REPO / "src").iterdir() if p.is_dir() and
             re.search(rf"\bsubdir\('{p.name}'\)|'(?:\.\./)?{p.name}/", built)}
    assert {t.removeprefix("src/") for t in table} == there
    for folder, may in table.items():
        module = folder.removeprefix("src/")
        for other in layers.MAY.get(module, []):
            other = other.split("/")[0]
            if other in there and other != module:
                assert other in may, f"{module} may include {other}"


# --- tables

def provoke(status):
    """How to get each status for real: (options, script), or a function"""
    return {"ok": ([], "pass"), "error": ([], "raise SystemExit(7)"),
            "signaled": ([], "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"),
            "timeout": (["-t", "0.3"], "import time; time.sleep(60)"),
            "cpu_limit": (["--cpu-time", "0.3"], "while True: pass"),
            "memory_limit": (["-m", "48m"], "x = [bytearray(1 << 20) for i in range(1 << 20)]"),
            "output_limit": (["--output-limit", "100k"], "while True: print('x' * 1000)"),
            "rejected": (["--screen-reject", "ctypes"], "import ctypes")}[status]


def run_json(who, options, script, **kw):
    p = who.cloche("run", "--json", *options, "-", input=script.encode(), **kw)
    return p.returncode, harness.strict_json(p.stdout)


def cancelled(who):
    residue = harness.Residue(who)
    p = who.popen("run", "--json", "-", residue.mark, stdin=subprocess.PIPE)
    p.stdin.write(harness.BECOME_SLEEP.encode())
    p.stdin.close()
    residue.asleep(p.pid)  # a signal before the run has begun ends the command without one
    p.send_signal(signal.SIGINT)
    return p.wait(timeout=30), harness.strict_json(p.stdout.read())


def host_failure(who):
    """No descriptor is left for the supervisor's socket: the host's fault, before anything has run"""
    return run_json(who, [], "pass", before=["/usr/bin/prlimit", "--nofile=4"])


def expected(cell, number):
    cell = cell.strip()
    if cell == "the code":
        return 7
    m = re.fullmatch(r"(?:(\d+)\+)?(-?)N", cell)
    if m:
        return int(m[1] or 0) + (-1 if m[2] else 1) * number
    return int(cell)


STATUSES = rows(section("README.md", "Status"))


def test_status_table_is_whole():
    assert {r[0].strip("`") for r in STATUSES} == harness.STATUSES
    man = page("docs/man/cloche.1.scd").replace("\\", "")
    for row in STATUSES:
        assert re.search(rf"\*{row[0].strip('`')}\*", man), row[0]


@pytest.mark.parametrize("row", STATUSES, ids=lambda r: r[0].strip("`"))
def test_status_table_is_true(who, row):
    status = row[0].strip("`")
    if status == "cancelled":
        code, result = cancelled(who)
    elif status == "internal_error":
        code, result = host_failure(who)
    else:
        code, result = run_json(who, *provoke(status))
    assert result["status"] == status, result
    assert result["return_code"] == expected(row[2], signal.SIGTERM), result
    assert code == expected(row[3], signal.SIGTERM), result


def test_every_wall_is_explained(binary):
    report = json.loads(subprocess.run([binary, "doctor", "--json"], capture_output=True, text=True, timeout=60).stdout)
    walls = {w["name"]: w["what"] for w in report["protections"]}
    shown = next(output for command, output in sessions("README.md") if "doctor" in command)
    assert dict(re.findall(r"^\w+ +([a-z_-]+) +(.+?): .+$", shown.rsplit("Scripts run", 1)[0], re.M)) == walls
    named = {n for row in rows(section("SECURITY.md", "How").split("\n### ")[0])
             for n in re.findall(r"`([a-z_-]+)`", row[2])}
    assert named == set(walls)


def test_numbers_come_with_their_command(binary):
    """The table of speed is of the form that the named command prints."""
    text = section("README.md", "Speed")
    assert "python3 bench/run.py" in text
    bench = page("bench/run.py")
    options = subprocess.run([sys.executable, "-B", REPO / "bench/run.py", "--help"], capture_output=True, text=True,
                             timeout=20, check=True).stdout
    for option in re.findall(r"(?<=bench/run.py )(--[a-z]+)", text):
        assert option in options, option
    heading = next(line for line in text.splitlines() if line.startswith("| case"))
    for cell in heading.strip("|").split("|"):
        assert f'"{cell.strip()}"' in bench, cell
    for row in rows(text):
        assert f'"{row[0].split(" (")[0]}' in bench, row[0]
        assert all(re.fullmatch(r"\d+\.\d\d", cell) for cell in row[1:]), row


# --- the library's page

LIB = "docs/man/libcloche.3.scd"
HEADER = "include/cloche/cloche.h"


def blocks(name):
    return re.findall(r"^```\n(.*?)^```", page(name), re.M | re.S)


def prototypes(text):
    """Functions, white space aside"""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    return {re.sub(r"\s+", " ", m).replace("( ", "(") for m in
            re.findall(r"^(?:int|void|const char \*)[\w *]*\bcloche_\w+\([^;{]*\)(?=;)", text, re.M)}


def test_the_page_and_the_header_agree():
    header = page(HEADER)
    declared = prototypes(header)
    assert len(declared) == len(re.findall(r"^(?:int|void|const char \*) ?cloche_", header, re.M))
    assert prototypes(blocks(LIB)[0]) == declared
    codes = set(re.findall(r"^\t(CLOCHE_[A-Z_]+) = -\d", header, re.M))
    assert codes and codes == set(re.findall(r"\*(CLOCHE_[A-Z_]+)\*", page(LIB)))
    for struct in ("cloche_error", "cloche_hooks"):
        texts = [re.search(rf"^struct {struct} {{\n(.*?)^}};", t, re.M | re.S)[1]
                 for t in (header, "\n".join(blocks(LIB)))]
        fields = [re.findall(r"^\t(?:int|char|void) [^;]*?;", t, re.M) for t in texts]
        assert fields[0] == fields[1] and fields[0], struct


def compile_and_run(source, folder, build):
    (folder / "example.c").write_text(source)
    subprocess.run(["gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o", folder / "example", folder / "example.c",
                    "-I", REPO / "include", "-L", build, "-lcloche", f"-Wl,-rpath,{build}"], check=True, timeout=60)
    (folder / "cloche-supervisor").symlink_to(build / "cloche-supervisor")
    return subprocess.run([folder / "example"], capture_output=True, text=True, timeout=60)


def test_the_pages_example_runs(binary, tmp_path):
    p = compile_and_run(blocks(LIB)[-1], tmp_path, binary.parent)
    assert p.returncode == 0 and p.stderr == "", p
    result = harness.Result(harness.strict_json(p.stdout))
    assert (result.status, result.stdout) == ("ok", "42\n")


def test_the_headers_example_runs(binary, tmp_path):
    lines = re.search(r"what happened\n \*\n(.*?)\n \*\n \* Requests", page(HEADER), re.S)[1]
    body = re.sub(r"^ \*\t?", "", lines, flags=re.M)
    p = compile_and_run("#include <err.h>\n#include <stdio.h>\n#include <cloche/cloche.h>\nint main(void)\n{\n" + body +
                        "\nreturn 0;\n}\n", tmp_path, binary.parent)
    assert p.returncode == 0 and p.stderr == "", p
    assert harness.strict_json(p.stdout)["stdout"] == "1\n"
