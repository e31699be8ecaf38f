#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
A judge: one program, many inputs, a verdict for each.

    PYTHONPATH=client/python python3 examples/judge.py SOLUTION.py CASES [SERVER]

CASES holds NAME.in with what the program reads and NAME.out with what it has to print.
"""
import pathlib
import sys

import cloche

VERDICTS = {"timeout": "time limit", "cpu_limit": "time limit", "memory_limit": "memory limit",
            "output_limit": "too much output", "error": "runtime error", "signaled": "runtime error"}


def main() -> int:
    solution, folder = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"), pathlib.Path(sys.argv[2])
    cases = sorted(folder.glob("*.in"))
    requests = [{
        "script_content": solution,
        "script_name": "solution.py",
        "stdin": case,
        "timeout": 2,
        "limits": {"memory_bytes": 256 << 20, "processes": 8, "output_bytes_hard": 1 << 20},
        "network": "none",
    } for case in cases]
    accepted = 0
    with cloche.Client(*sys.argv[3:]) as client:
        for case, result in zip(cases, client.map(requests)):
            if result.status in ("rejected", "internal_error"):
                raise SystemExit(f"{case.name}: {result.message}")  # no verdict about the program
            verdict = VERDICTS.get(result.status)
            if verdict is None:
                is_right = result.stdout.split() == case.with_suffix(".out").read_text(encoding="utf-8").split()
                verdict = "accepted" if is_right else "wrong answer"
            accepted += verdict == "accepted"
            print(f"{case.stem}: {verdict}, {result.execution_time * 1000:.0f} ms")
    print(f"{accepted} of {len(cases)} accepted")
    return 0 if accepted == len(cases) else 1


if __name__ == "__main__":
    sys.exit(main())
