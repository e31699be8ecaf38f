# SPDX-License-Identifier: Apache-2.0
# Runs one module of CPython's regression tests and writes a line for each test: "=", its name, what became of it.
import sys

folder, module, *left_out = sys.argv[1:]
del sys.argv[1:]
sys.path.insert(0, folder)

import importlib
import unittest

from test import support

support.use_resources = []  # as regrtest without -u: no network, no tests that take very long
support.verbose = 0


class Lines(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.outcomes = {}
        self.details = []

    def note(self, test, outcome, detail=""):
        name = test.id()
        if self.outcomes.get(name, "ok") in ("ok", "skipped"):
            self.outcomes[name] = outcome
        if detail:
            self.details.append(f"{name}: {outcome}: {detail}")

    def addSuccess(self, test):
        self.note(test, "ok")

    def addError(self, test, err):
        super().addError(test, err)
        self.note(test, "error", self.errors[-1][1])

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.note(test, "FAIL", self.failures[-1][1])

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            kept = self.failures if issubclass(err[0], test.failureException) else self.errors
            self.note(test, "FAIL" if kept is self.failures else "error", f"{subtest}: {kept[-1][1]}")

    def addSkip(self, test, reason):
        self.note(test, "skipped", reason)

    def addExpectedFailure(self, test, err):
        self.note(test, "expected failure")

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.note(test, "unexpected success")


def leave_out(suite):
    for i, test in enumerate(suite._tests):
        if isinstance(test, unittest.TestSuite):
            leave_out(test)
        elif test.id().removeprefix(f"test.{module}.") in left_out:
            suite._tests[i] = unittest.TestSuite()


result = Lines()
name = "module"
try:
    suite = unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module("test." + module))
    leave_out(suite)
    name = "end"
    suite.run(result)
    result.outcomes[name] = "reached"
except unittest.SkipTest as e:
    result.outcomes[name] = "skipped"
    result.details.append(f"{name}: skipped: {e}")
support.reap_children()
sys.stderr.write("\n".join(result.details) + "\n")
sys.stdout.write("\n" + "".join(f"=\t{name}\t{outcome}\n" for name, outcome in result.outcomes.items()))
