#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Runs everything plain, cold and warm, and says where they differ.

    fidelity.py [cases] [humaneval] [cpython] [--modules NAME...] [--rows FILE]
    fidelity.py --docs

Without a name: all three.  CLOCHE_BIN: the binary (default build/cloche); CLOCHE_SHARED: the folder with data that is
not in the repository (default ../shared beside it).  --rows: what differs and is not explained, to be looked at, then
explained in exclusions.tsv.  --docs writes the table of docs/fidelity.md and runs nothing.
"""
import argparse
import contextlib
import os
import pathlib
import shutil
import sys
import tempfile
import time

import compare
import tables
import testsuite
from three import Three

TOP = pathlib.Path(__file__).resolve().parents[2]
SHARED = pathlib.Path(os.environ.get("CLOCHE_SHARED") or TOP.parent / "shared")
BINARY = pathlib.Path(os.environ.get("CLOCHE_BIN") or TOP / "build/cloche").absolute()
CACHE = TOP / "build/testsuite"
WHAT = ["cases", "humaneval", "cpython"]


@contextlib.contextmanager
def scratch():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="cloche-fidelity-", dir="/var/tmp"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def step(name, function, items):
    start = time.monotonic()
    report = compare.in_parallel(function, items, say=lambda text: print(text, flush=True))
    print(f"{name}: {len(items)} scripts in {time.monotonic() - start:.0f} s: {report}", flush=True)
    return report


def run(what, modules):
    total = compare.Report()
    with scratch() as folder:
        paths = []
        if "cpython" in what:
            (folder / "suite").mkdir()
            print("CPython's tests:", testsuite.prepare(CACHE, folder / "suite"), flush=True)
            paths = [folder / "suite"]
        with Three(BINARY, folder, paths) as three:
            if "cases" in what:
                total.add(step("cases", lambda n: compare.compare_case(three, n), list(compare.CASES)))
            path = SHARED / "data/HumanEval.jsonl.gz"
            if "humaneval" in what and path.exists():
                total.add(step("HumanEval", lambda p: compare.compare_human_eval(three, p), compare.human_eval(path)))
            elif "humaneval" in what:
                print(f"SKIP HumanEval: shared: {path} is not there: set CLOCHE_SHARED")
            if "cpython" in what:
                exclusions = compare.Exclusions()
                total.add(step("CPython", lambda m: compare.compare_module(three, paths[0], exclusions, m), modules))
            print(f"runs that were warm: {three.n_warm}; gone cold while an interpreter was replaced, and repeated: "
                  f"{three.n_cold_again}")
    print(f"fidelity: {total}")
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=[*WHAT, []], metavar="|".join(WHAT))
    parser.add_argument("--modules", nargs="+")
    parser.add_argument("--rows", type=pathlib.Path)
    parser.add_argument("--docs", action="store_true")
    args = parser.parse_args()
    sys.stdout.reconfigure(errors="backslashreplace")  # names of tests may have lone surrogates
    if args.docs:
        tables.write()
        return 0
    tables.check()
    longest_first = sorted(compare.modules(), key=lambda m: -compare.modules()[m][0])
    total = run(args.what or WHAT, args.modules or longest_first)
    if args.rows:
        args.rows.write_text("".join(row + "\n" for row in sorted(total.rows)), errors="backslashreplace")
    return 1 if total.failed or len(total.unstable) > tables.UNSTABLE_MAX else 0


if __name__ == "__main__":
    sys.exit(main())
