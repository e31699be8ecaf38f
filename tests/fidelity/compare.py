# SPDX-License-Identifier: Apache-2.0
"""What is fed to the three ways, and what counts as a difference."""
import concurrent.futures
import dataclasses
import gzip
import json
import pathlib

from cases import ALL, CASES
from three import WAYS

HERE = pathlib.Path(__file__).resolve().parent
ONE_MODULE = (HERE / "one_module.py").read_text()
MODULE_SECONDS = 240
TRIES = 3
JOBS = 2


@dataclasses.dataclass
class Report:
    n_equal: int = 0
    n_explained: int = 0
    unstable: list = dataclasses.field(default_factory=list)  # told apart in one try, not in another
    failed: list = dataclasses.field(default_factory=list)    # one text for each
    needless: list = dataclasses.field(default_factory=list)  # explained, but equal here
    rows: list = dataclasses.field(default_factory=list)      # of these, as a table of exclusions would have them

    def add(self, other):
        self.n_equal += other.n_equal
        self.n_explained += other.n_explained
        self.unstable += other.unstable
        self.failed += other.failed
        self.needless += other.needless
        self.rows += other.rows

    def __str__(self):
        return (f"{self.n_equal} equal, {self.n_explained} different as explained, {len(self.needless)} explained "
                f"but equal here, {len(self.unstable)} unstable, {len(self.failed)} failed")


def in_parallel(function, items, jobs=JOBS, say=lambda text: None):
    """@say: gets a text as soon as there is one"""
    total = Report()
    pool = concurrent.futures.ThreadPoolExecutor(jobs)
    try:
        for done in concurrent.futures.as_completed([pool.submit(function, i) for i in items]):
            report = done.result()
            total.add(report)
            for text in report.failed:
                say(f"  DIFFERENT {text}")
            for text in report.unstable:
                say(f"  unstable: {text}")
            for text in report.needless:
                say(f"  explained but equal: {text}")
    finally:
        pool.shutdown(cancel_futures=True)
    return total


# ---- whole outcomes: standard output, standard error, exit status, files -----------------------------------------

def show(name, what, outcomes):
    return f"{name}: {what}: " + "; ".join(f"{way} {str(getattr(o, what))[-400:]!r}" for way, o in outcomes.items())


def differing(outcomes, same):
    """Fields in which not all are the same"""
    first, *others = outcomes.values()
    return [what for what in same if any(what in first.differences(o) for o in others)]


def compare_script(three, name, script, ways, same, **fields):
    for attempt in range(TRIES):
        outcomes = three.all(script, ways, **fields)
        bad = differing(outcomes, same)
        if not bad:
            return outcomes, Report(n_equal=1, unstable=[name] if attempt else [])
    return outcomes, Report(failed=[show(name, what, outcomes) for what in bad])


def compare_case(three, name):
    case = CASES[name]
    return compare_script(three, name, case.script, case.ways, case.same, script_name="case.py", **case.fields)[1]


def human_eval(path):
    """[(name, script)], 164 of them"""
    with gzip.open(path, "rt", encoding="utf-8") as f:
        problems = [json.loads(line) for line in f]
    assert len(problems) == 164, len(problems)
    end = "\n{test}\ncheck({entry_point})\nprint('passed')\n"
    return [(p["task_id"], p["prompt"] + p["canonical_solution"] + end.format(**p)) for p in problems]


def compare_human_eval(three, problem):
    name, script = problem
    outcomes, report = compare_script(three, name, script, WAYS, ALL, timeout=30,
                                      script_name=name.replace("/", "_") + ".py")
    if not report.failed and (outcomes["plain"].status, outcomes["plain"].stdout) != (0, b"passed\n"):
        report = Report(failed=[show(name, "equal, but wrong, stderr", outcomes)])
    return report


# ---- CPython's regression tests: test by test -----------------------------------------------------------------------

class Exclusions:
    """exclusions.tsv: test, outcomes plain, cold and warm, a reason's name; a line with '#' is a reason."""

    def __init__(self, path=HERE / "exclusions.tsv"):
        self.reasons, self.outcomes = {}, {}
        for line in path.read_text().splitlines():
            if line.startswith("# "):
                name, text = line[2:].split(": ", 1)
                self.reasons[name] = text
            elif line:
                test, *outcomes, reason = line.split("\t")
                assert test not in self.outcomes and len(outcomes) == 3, line
                self.outcomes[test] = (tuple(outcomes), reason)
        used = {reason for _, reason in self.outcomes.values()}
        assert used == set(self.reasons), used ^ set(self.reasons)

    def of(self, module):
        return {t: o for t, (o, _) in self.outcomes.items() if t.startswith((f"test.{module}.", f"{module}: "))}

    @property
    def only_warm(self):
        """Those in which warm differs from cold"""
        return [t for t, ((_, cold, warm), _) in self.outcomes.items() if cold != warm]


def modules():
    """name -> (seconds that it takes, tests left out), by modules.txt"""
    lines = (line.split() for line in (HERE / "modules.txt").read_text().splitlines() if not line.startswith("#"))
    return {name: (float(seconds), left_out) for name, seconds, *left_out in lines}


def outcomes_by_test(module, outcome):
    tests = {}
    for line in outcome.stdout.decode("utf-8", "replace").split("\n"):
        if line.startswith("=\t"):
            _, name, result = line.split("\t")
            tests[name if name.startswith(f"test.{module}.") else f"{module}: {name}"] = result
    tests[f"{module}: exit status"] = str(outcome.status)
    tests[f"{module}: files left"] = " ".join(sorted(outcome.files)) or "none"
    return tests


def triples(three, folder, module):
    """test -> (plain, cold, warm)"""
    _, left_out = modules().get(module, (0, []))
    ways = three.all(ONE_MODULE, args=[str(folder), module, *left_out], script_name="one_module.py",
                     timeout=MODULE_SECONDS)
    found = {way: outcomes_by_test(module, o) for way, o in ways.items()}
    names = set().union(*found.values())
    return {n: tuple(found[way].get(n, "absent") for way in WAYS) for n in names}, ways


def compare_module(three, folder, exclusions, module):
    expected = exclusions.of(module)
    wrong_before, n_tries = None, 0
    while n_tries < TRIES:
        found, ways = triples(three, folder, module)
        n_tries += 1
        wrong = {t: o for t, o in found.items() if len(set(o)) > 1 and o != expected.get(t)}
        if wrong_before is None:
            wrong_before = first = wrong
        wrong_before = {t: o for t, o in wrong.items() if t in wrong_before}
        if not wrong_before:
            break
    report = Report(n_explained=sum(len(set(o)) > 1 for o in found.values()) - len(wrong),
                    n_equal=sum(len(set(o)) == 1 for o in found.values()),
                    unstable=[t for t in first if t not in wrong_before],
                    needless=[t for t in expected if len(set(found.get(t, ("absent",)))) == 1])
    for t, o in sorted(wrong_before.items()):
        report.rows.append("\t".join([t, *o]))
        said = f", explained as {' '.join(expected[t])}" if t in expected else ""
        report.failed.append(f"{t}: plain {o[0]}, cold {o[1]}, warm {o[2]}{said}\n" + details(t, ways))
    if len(found) <= 3 and not report.failed and all(o[0] != "skipped" for o in found.values()):
        report.failed.append(f"{module}: not one test was run")
    return report


def details(test, ways):
    """What the test itself said, cold and warm"""
    texts = []
    for way in WAYS:
        text = "\n" + ways[way].stderr.decode("utf-8", "replace")
        at = text.find(f"\n{test}: ") + 1
        if at > 0:
            texts.append(f"    {way}: " + " | ".join(text[at:at + 5000].split("\ntest.")[0].strip().splitlines()[-3:]))
    return "\n".join(texts)
