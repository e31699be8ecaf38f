#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All tests, counted: builds, then unit, fuzz and lint tests by meson, then the built product by pytest.

The last line is "N passed, N failed".  A skip is a failure, unless its reason is "needs: ..." and begins with a line of
tests/NEEDS-VM: another kind of host, which `make check-vm` has ("shared: ..." is data that is no part of the product).  What
was skipped stands in build/skipped.json, and make check-vm fails for each of these that did not pass there.
"""
import json
import os
import pathlib
import subprocess
import sys
import time
import xml.etree.ElementTree as ET

TOP = pathlib.Path(__file__).resolve().parent.parent
passed, failed, skipped = [], [], []


def step(name, argv, **env):
    start = time.monotonic()
    print(f"== {name}", flush=True)
    code = subprocess.run(argv, cwd=TOP, env={**os.environ, **env}).returncode
    print(f"== {name}: {'ok' if code == 0 else f'exit {code}'} in {time.monotonic() - start:.0f} s", flush=True)
    return code


def one(name, argv, **env):
    (passed if step(name, argv, **env) == 0 else failed).append(name)


def listed():
    """What a test may lack here, as the beginnings of reasons."""
    lines = (TOP / "tests/NEEDS-VM").read_text().splitlines()
    return tuple("needs: " + line.strip() for line in lines if line.strip() and not line.startswith("#"))


def skip(name, reason):
    print(f"SKIP {name}: {reason}")
    if not reason.startswith("shared:"):
        (skipped if reason.startswith(listed()) else failed).append(name)


def begin_analysis():
    """Static analysis beside the tests, which leave a CPU idle for most of the time, and at the lowest priority."""
    return subprocess.Popen(["nice", "-n", "19", "tools/lint.sh"], cwd=TOP, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True)


def end_analysis(analysis):
    print("== static analysis", flush=True)
    said = analysis.communicate()[0]
    print(f"{said}== static analysis: {'ok' if analysis.returncode == 0 else f'exit {analysis.returncode}'}", flush=True)
    (passed if analysis.returncode == 0 else failed).append("static analysis")


def build(folder, *options, cc="gcc", targets=()):
    again = ["--reconfigure"] if (TOP / folder / "build.ninja").exists() else []
    if step(f"configure {folder}", ["meson", "setup", *again, folder, *options], CC=cc) != 0:
        failed.append(f"configure {folder}")
        return
    one(f"build {folder} without warnings", ["ninja", "-C", folder, *targets])


def by_meson(folder, *suites):
    args = [a for s in suites for a in ("--suite", s)]
    log = TOP / folder / "meson-logs/testlog.json"
    log.unlink(missing_ok=True)
    n_broken = 0
    code = step("unit, fuzz and layer tests", ["meson", "test", "-C", folder, "--print-errorlogs", *args])
    lines = log.read_text().splitlines() if log.exists() else []
    for line in lines:
        t = json.loads(line)
        if t["result"] == "OK":
            passed.append(t["name"])
        elif t["result"] == "SKIP":
            said = (t.get("stderr") or t.get("stdout") or "").strip()
            skip(t["name"], said[said.find("needs:"):][:200] if "needs:" in said else "exit 77: " + said[-200:])
        else:
            failed.append(t["name"])
            n_broken += 1
    if not lines or (code != 0 and n_broken == 0):
        failed.append(f"meson test: exit {code}, {len(lines)} tests")


def by_pytest(name, folder, args, **env):
    report = TOP / folder / f"pytest-{name}.xml"
    report.unlink(missing_ok=True)
    code = step(name, [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *args],
                CLOCHE_BIN=str(TOP / "build/cloche"), CLOCHE_BIN_FAIL=str(TOP / "build-fail/cloche"), **env)
    if not report.exists():
        failed.append(f"{name}: no report")
        return
    n = n_broken = 0
    for case in ET.parse(report).iter("testcase"):
        n += 1
        case_name = f"{case.get('classname')}::{case.get('name')}"
        if case.find("skipped") is not None:
            skip(case_name, case.find("skipped").get("message", ""))
        elif case.find("failure") is not None or case.find("error") is not None:
            failed.append(case_name)
            n_broken += 1
        else:
            passed.append(case_name)
    if n == 0 or code not in (0, 1) or (code == 1 and n_broken == 0):
        failed.append(f"{name}: pytest exit {code}, {n} tests")


def product(*names):
    return [f"tests/product/test_{name}.py" for name in names]


def main():
    (TOP / "build/skipped.json").unlink(missing_ok=True)
    build("build", "-Dwerror=true")
    build("build-clang", "-Dwerror=true", cc="clang")
    build("build-fail", "-Dwerror=true", "-Dfail_steps=true",
          targets=("cloche", "cloche-supervisor", "cloched", "cloche-door", "_cloche.abi3.so"))
    analysis = begin_analysis()
    by_meson("build", "unit", "fuzz", "lint")
    by_pytest("product", "build", ["tests/product"])
    by_pytest("zygote", "build", ["tests/zygote"], ZYGOTE_HARNESS=str(TOP / "build/tests/zygote/zygote-harness"),
              ZYGOTE_EXTENSION=str(TOP / "build/_cloche.abi3.so"))
    by_pytest("attack", "build", ["tests/attack"])
    by_pytest("by-server", "build", product("contract", "limits"), CLOCHE_VIA="server")
    by_pytest("by-http", "build", product("exit", "bad_input", "artifacts", "inside"), CLOCHE_VIA="http")
    by_pytest("hosts", "build", ["tests/hosts"])
    end_analysis(analysis)
    (TOP / "build/skipped.json").write_text(json.dumps(skipped, indent=1) + "\n")
    for name in failed:
        print(f"FAILED {name}")
    print(f"{len(skipped)} skipped, for make check-vm")
    print(f"{len(passed)} passed, {len(failed)} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
