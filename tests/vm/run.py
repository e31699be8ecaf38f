#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The package and the tests that need another kind of host, in a Debian 12 guest: kernel 6.1, systemd, cgroup v2.

    run.py                        everything; the last line is "N passed, N failed"
    run.py --only E --group G...  of these groups (GROUPS; all) the tests that pytest's -k E selects: for quick turns
    run.py --script F             the guest runs the shell script F instead (its output is shown), to look into something

The guest is made once (image.sh) below build/vm and starts from the same disk every time.  It has no network: what it
runs comes as a tar archive on its second disk, what it found goes back on its third.  What `make check` skipped on this
machine (build/skipped.json) has to pass here.
"""
import argparse
import io
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import threading
import time
import xml.etree.ElementTree as ET

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parent.parent
VM = TOP / "build/vm"
LIMIT = 100 * 60  # of a guest that hangs; beside other work it is slow
OUT_BYTES = 256 << 20
DEBS = TOP / "build/deb"
FAIL = TOP / "build-fail"
PACKAGE = "package"  # its life, which is no group of pytest's
PLAIN = "plain"  # boots of their own: without systemd
PLAIN_V1 = "plain-v1"  # a group of v2 that is gone can keep a controller from v1 for good, so this is one more
GROUPS = (PACKAGE, "hosts-root", "product-root", "attack-root", "attack-delegated", "attack-user", PLAIN)
UNITS = ("sandbox_cgroup", "sandbox_cgroup_host")
CONSOLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


def payload(path, script, groups, only):
    """What the guest gets: the package, the tests, and what to do."""
    debs = sorted(DEBS.glob("*.deb"))
    if not debs:
        sys.exit(f"run.py: no package below {DEBS}")
    chosen = f"groups={shlex.quote(' '.join(groups))}\nonly={shlex.quote(only)}\n".encode()
    with tarfile.open(path, "w") as tar:
        for deb in debs:
            if "dbgsym" not in deb.name:
                tar.add(deb, f"deb/{deb.name}")
        for name in ("tests", "examples", "docs", "packaging", "src"):
            tar.add(TOP / name, f"tree/{name}", filter=lambda m: None if "__pycache__" in m.name else m)
        for name in ("cloche", "cloche-supervisor", "_cloche.abi3.so", *(f"tests/unit/test_{u}" for u in UNITS)):
            tar.add(FAIL / name, f"tree/build-fail/{name}")
        tar.add(script, "guest.sh")
        member = tarfile.TarInfo("chosen")
        member.size = len(chosen)
        tar.addfile(member, io.BytesIO(chosen))
    size = path.stat().st_size
    with open(path, "ab") as f:
        f.truncate((size + 0xfffff) & ~0xfffff)


def boot(folder, seconds, more=""):
    """Until it powers itself off, or its time is over.  @more: of the kernel's command line"""
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", "-b", str(VM / "disk.img"), "-F", "raw", folder / "disk.qcow2"],
                   check=True)
    with open(folder / "out.tar", "wb") as f:
        f.truncate(OUT_BYTES)
    drive = [f"file={folder / 'disk.qcow2'},format=qcow2,cache=unsafe", f"file={folder / 'in.tar'},format=raw,readonly=on",
             f"file={folder / 'out.tar'},format=raw,cache=unsafe"]
    argv = ["nice", "-n", "10", "qemu-system-x86_64", "-accel", "tcg,thread=multi,tb-size=512", "-cpu", "max", "-smp", "2", "-m", "4096", "-nodefaults",
            "-no-reboot", "-display", "none", "-nic", "none", "-serial", "stdio", "-kernel", str(VM / "vmlinuz"),
            "-initrd", str(VM / "initrd"),
            "-append", "root=/dev/vda rw console=ttyS0 quiet panic=-1 mitigations=off loglevel=1 systemd.show_status=0 " + more]
    for d in drive:
        argv += ["-drive", f"if=virtio,{d}"]
    start = time.monotonic()
    log = open(folder / "console.log", "w")
    p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace")
    timer = threading.Timer(seconds, p.kill)
    timer.start()
    try:
        for line in p.stdout:
            line = CONSOLE.sub("", line)
            log.write(f"{time.monotonic() - start:7.1f} {line}")
            log.flush()
            print(line, end="", flush=True)
    finally:
        timer.cancel()
        p.kill()  # it has ended, unless we are to
        p.wait()
        log.close()
    print(f"== the guest ran for {time.monotonic() - start:.0f} s", flush=True)


def one_boot(script, groups, only, name, more=""):
    """What this boot found is added to VM/out; one that did not come to a good end leaves a step that failed there."""
    folder = VM / f"run-{os.getpid()}"
    folder.mkdir()
    try:
        payload(folder / "in.tar", script, groups, only)
        boot(folder, LIMIT, more)
        found = take(folder)
        with open(VM / "out/steps", "a") as f:
            steps = found / "steps" if found else None
            f.write(steps.read_text() if steps and steps.exists() else "")
            status = found / "status" if found else None
            code = status.read_text().strip() if status and status.exists() else "none"
            if code != "0":
                f.write(f"failed the guest ({name}) came to its end: status {code}\n")
        for path in found.iterdir() if found else ():
            if path.name not in ("steps", "now", "before", "last.log"):
                shutil.move(path, VM / "out" / path.name)
        shutil.copy(folder / "console.log", VM / f"out/console-{name}.log")
    finally:
        shutil.rmtree(folder)


def take(folder):
    """Return: the folder with what the guest found, or None: it did not come to its end"""
    try:
        with tarfile.open(folder / "out.tar") as tar:
            tar.extractall(folder)
    except tarfile.ReadError:
        return None
    return folder / "out" if (folder / "out").is_dir() else None  # a guest that was killed has written nothing


def read(report, passed, failed, skipped):
    """One group of tests into names, by what became of them.  Return: how many there were"""
    n = 0
    for case in ET.parse(report).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        n += 1
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(f"{report.stem}: {name}")
        elif case.find("skipped") is not None:
            skipped.append((name, report.stem, case.find("skipped").get("message", "")))
        else:
            passed.append(name)
    return n


def skipped_elsewhere(whole):
    """Names of tests that `make check` skipped here and that did not pass in the guest."""
    try:
        names = json.loads((TOP / "build/skipped.json").read_text())
    except FileNotFoundError:
        print("== no build/skipped.json: make check was not run here, so its skips are not compared")
        return []
    return [f"make check skipped {name}, and it did not pass here" for name in names if name not in whole]


def count(out, groups, only):
    """What was found, as words; the last line.  Return: the exit status"""
    passed, failed, skipped = [], [], []
    n_all = 0
    for name in groups:
        report = out / f"{name}.xml"
        if name == PACKAGE:
            continue
        n = read(report, passed, failed, skipped) if report.exists() else -1
        n_all += max(n, 0)
        if n < 0 or (n == 0 and not only):
            failed.append(f"{name}: it was not run to its end")
    steps = (out / "steps").read_text().splitlines() if (out / "steps").exists() else []
    for line in steps:
        word, name = line.split(" ", 1)
        (passed if word == "ok" else failed).append(name)
    if not steps or (only and n_all == 0 and groups != (PACKAGE,)):
        failed.append("no step was taken" if not steps else f"no test is called {only}")
    whole = set(passed)
    is_all = groups == GROUPS and not only
    if is_all:
        failed += skipped_elsewhere(whole)
    told = {name.split(": ", 1)[-1] for name in failed}
    for name, group, reason in skipped:
        if name not in whole and name not in told and is_all:
            failed.append(f"{group}: {name} was skipped, and passed in no group: {reason}")
        elif name not in whole:
            print(f"SKIP {name} in {group}: {reason}")
    for name in failed:
        print(f"FAILED {name}")
    part = "" if is_all else f" (a part: {' '.join(groups)}{', ' + only if only else ''})"
    print(f"{len(passed)} passed, {len(failed)} failed{part}", flush=True)
    return 0 if not failed else 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--script", type=pathlib.Path, default=HERE / "guest.sh")
    parser.add_argument("--only", default="", metavar="EXPR", help="the tests that pytest -k EXPR selects")
    parser.add_argument("--group", action="append", choices=GROUPS, help="of this group (may be given more than once)")
    parser.add_argument("--no-build", action="store_true", help="the packages that are below build/deb already")
    args = parser.parse_args()
    groups = tuple(g for g in GROUPS if g in args.group) if args.group else GROUPS[1:] if args.only else GROUPS
    if not args.no_build:
        subprocess.run([TOP / "packaging/deb.sh", DEBS], check=True)
        subprocess.run(["meson", "setup", *(["--reconfigure"] if (FAIL / "build.ninja").exists() else []), FAIL, "-Dfail_steps=true"],
                       cwd=TOP, check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["ninja", "-C", FAIL, "--quiet"], check=True)
    subprocess.run([HERE / "image.sh", VM], check=True)
    shutil.rmtree(VM / "out", ignore_errors=True)
    (VM / "out").mkdir()
    with_systemd = tuple(g for g in groups if g != PLAIN)
    if with_systemd:
        one_boot(args.script, with_systemd, args.only, "systemd")
    if PLAIN in groups and args.script == HERE / "guest.sh":
        for name in (PLAIN, PLAIN_V1):
            one_boot(args.script, (name,), args.only, name, "init=/usr/local/sbin/vm-start")
    if args.script != HERE / "guest.sh":
        return int((VM / "out/status").read_text())
    return count(VM / "out", groups, args.only)


if __name__ == "__main__":
    sys.exit(main())
