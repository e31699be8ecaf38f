# SPDX-License-Identifier: Apache-2.0
"""The tables of differences: their size, which is fixed here, and their place in docs/fidelity.md."""
import pathlib

from compare import Exclusions, modules

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs/fidelity.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"

EXCLUSIONS = 181      # tests in exclusions.tsv; a new one shows here too
ONLY_WARM = 0        # ... of them those in which a warm run differs from a cold one
MODULES_MIN = 150
UNSTABLE_MAX = 10    # tests that may differ in one try and not in the next, as those that measure time do


def text():
    exclusions = Exclusions()
    lines = [BEGIN, f"{len(modules())} modules are compared; {len(exclusions.outcomes)} of their tests differ, "
             f"{len(exclusions.only_warm)} of these between cold and warm.", ""]
    for reason, why in exclusions.reasons.items():
        lines += [f"### {reason}", "", why, "", "| tests | of | plain | cold | warm |", "|---|---|---|---|---|"]
        groups = {}
        for test, (outcomes, r) in exclusions.outcomes.items():
            if r == reason:
                of, name = test.removeprefix("test.").rsplit(": " if ": " in test else ".", 1)
                groups.setdefault((of, outcomes), []).append(name)
        lines += [f"| {', '.join(names)} | {of} | {' | '.join(outcomes)} |" for (of, outcomes), names in groups.items()]
        lines.append("")
    return "\n".join([*lines, END])


def split(page):
    before, rest = page.split(BEGIN)
    return before, rest.split(END)[1]


def write():
    before, after = split(DOCS.read_text())
    DOCS.write_text(before + text() + after)


def check():
    exclusions = Exclusions()
    sizes = len(exclusions.outcomes), len(exclusions.only_warm)
    assert sizes == (EXCLUSIONS, ONLY_WARM), f"exclusions.tsv has {sizes}, tables.py fixes {(EXCLUSIONS, ONLY_WARM)}"
    names = modules()
    assert len(names) >= MODULES_MIN, len(names)
    strangers = [t for t in exclusions.outcomes if not any(t in exclusions.of(m) for m in names)]
    assert not strangers, f"of modules that are not in modules.txt: {strangers}"
    before, after = split(DOCS.read_text())
    assert DOCS.read_text() == before + text() + after, "docs/fidelity.md: run tests/fidelity/fidelity.py --docs"
