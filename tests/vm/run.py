#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The package and the tests that need another kind of host, in a Debian 12 guest: kernel 6.1, systemd, cgroup v2.

    run.py              everything; the last line is "N passed, N failed"
    run.py --script F   the guest runs the shell script F instead (its output is shown), to look into something

The guest is made once (image.sh) below build/vm and starts from the same disk every time.  It has no network: what it
runs comes as a tar archive on its second disk, what it found goes back on its third.
"""
import argparse
import os
import pathlib
import re
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
LIMIT = 45 * 60
OUT_BYTES = 256 << 20
CONSOLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


def payload(path, script):
    """What the guest gets: the package, the tests, and what to do."""
    debs = sorted((TOP / "build-deb").glob("*.deb"))
    if not debs:
        sys.exit("run.py: no package below build-deb")
    with tarfile.open(path, "w") as tar:
        for deb in debs:
            if "dbgsym" not in deb.name:
                tar.add(deb, f"deb/{deb.name}")
        for name in ("tests", "examples", "docs", "src"):
            tar.add(TOP / name, f"tree/{name}", filter=lambda m: None if "__pycache__" in m.name else m)
        for name in ("cloche", "cloche-supervisor", "_cloche.abi3.so"):
            if (TOP / "build-fail" / name).exists():
                tar.add(TOP / "build-fail" / name, f"tree/build-fail/{name}")
        tar.add(script, "guest.sh")
    size = path.stat().st_size
    with open(path, "ab") as f:
        f.truncate((size + 0xfffff) & ~0xfffff)


def boot(folder, seconds):
    """Until it powers itself off, or its time is over"""
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", "-b", str(VM / "disk.img"), "-F", "raw", folder / "disk.qcow2"],
                   check=True)
    with open(folder / "out.tar", "wb") as f:
        f.truncate(OUT_BYTES)
    drive = [f"file={folder / 'disk.qcow2'},format=qcow2,cache=unsafe", f"file={folder / 'in.tar'},format=raw,readonly=on",
             f"file={folder / 'out.tar'},format=raw,cache=unsafe"]
    argv = ["qemu-system-x86_64", "-accel", "tcg,thread=multi,tb-size=512", "-cpu", "max", "-smp", "2", "-m", "4096", "-nodefaults",
            "-no-reboot", "-display", "none", "-nic", "none", "-serial", "stdio", "-kernel", str(VM / "vmlinuz"),
            "-initrd", str(VM / "initrd"),
            "-append", "root=/dev/vda rw console=ttyS0 quiet panic=-1 mitigations=off loglevel=1 systemd.show_status=0"]
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


def take(folder):
    """Return: the folder with what the guest found, or None: it did not come to its end"""
    try:
        with tarfile.open(folder / "out.tar") as tar:
            tar.extractall(folder)
    except tarfile.ReadError:
        return None
    return folder / "out"


def listed():
    """What a test may lack elsewhere ("needs: ..." begins with it), and not here."""
    lines = (HERE.parent / "NEEDS-VM").read_text().splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def read(report, passed, failed, skipped):
    """One group of tests into names, by what became of them."""
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
    if n == 0:
        failed.append(f"{report.stem}: no tests")


def count(out):
    passed, failed, skipped = [], [], []
    for name in ("hosts-root", "product-root", "attack-root", "attack-delegated", "attack-user"):
        report = out / f"{name}.xml"
        if report.exists():
            read(report, passed, failed, skipped)
        else:
            failed.append(f"{name}: it was not run to its end")
    for line in (out / "steps").read_text().splitlines():
        word, name = line.split(" ", 1)
        (passed if word == "ok" else failed).append(name)
    whole = set(passed)
    needs = tuple("needs: " + phrase for phrase in listed())
    for name, group, reason in skipped:
        if name not in whole and reason.startswith(needs):
            failed.append(f"{group}: {name} was skipped though this is the kind of host that it needs: {reason}")
    print("\n".join(f"SKIP {name} in {group}: {reason}" for name, group, reason in skipped if name not in whole))
    for name in failed:
        print(f"FAILED {name}")
    print(f"{len(passed)} passed, {len(failed)} failed", flush=True)
    return 0 if not failed else 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--script", type=pathlib.Path, default=HERE / "guest.sh")
    parser.add_argument("--no-build", action="store_true", help="the packages that are below build-deb already")
    args = parser.parse_args()
    if not args.no_build:
        subprocess.run([TOP / "packaging/deb.sh", TOP / "build-deb"], check=True)
    subprocess.run([HERE / "image.sh", VM], check=True)
    folder = VM / f"run-{os.getpid()}"
    folder.mkdir()
    try:
        payload(folder / "in.tar", args.script)
        boot(folder, LIMIT)
        out = take(folder)
        if not out:
            print("FAILED the guest did not come to its end\n0 passed, 1 failed")
            return 1
        shutil.rmtree(VM / "out", ignore_errors=True)
        shutil.move(out, VM / "out")
        shutil.copy(folder / "console.log", VM / "out/console.log")
    finally:
        shutil.rmtree(folder)
    if args.script != HERE / "guest.sh":
        return int((VM / "out/status").read_text())
    return count(VM / "out")


if __name__ == "__main__":
    sys.exit(main())
