#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who may include whom: the table of ARCHITECTURE.md, checked.

    check_layers.py [SRC]       check each .c and .h below SRC (default: src beside this folder); exit 1 with one line a fault
    check_layers.py --selftest  show that it rejects what it has to
"""

import os
import re
import sys
import tempfile

OWN = {"base", "job", "sandbox", "zygote", "run", "cli", "server", "lib", "history", "doors"}
# module -> what it may include besides itself: a whole module, or single headers of one
MAY = {
    "base": [],
    "job": ["base"],
    "sandbox": ["base"],
    "zygote": ["base", "sandbox/spec.h", "sandbox/inside.h", "Python.h"],
    "run": ["base", "job", "sandbox/spec.h", "sandbox/outside.h", "sandbox/probe.h", "zygote/wire.h"],
    "cli": ["base", "job", "run"],
    "lib": ["base", "job", "run", "cloche/cloche.h"],
    "server": ["base", "job", "run", "history"],
    "history": ["base", "job"],
    "doors": ["base", "job", "run", "history"],
}
# module -> headers from outside that would break its promise
NEVER = {
    "base": r"jansson|Python|event2|sqlite3|ini\.h",
    "job": r"Python|event2|sqlite3|sys/(socket|wait|mount|prctl|ptrace)\.h|sched\.h|spawn\.h",
    "sandbox": r"jansson|Python|event2|sqlite3|ini\.h",
    "run": r"event2|sqlite3|getopt\.h|Python",
    "zygote": r"jansson|event2|sqlite3|ini\.h",
    "cli": r"event2|sqlite3|Python",
    "lib": r"getopt|event2|sqlite3|Python",
    "history": r"event2|jansson|Python|sys/(socket|wait|mount|prctl|ptrace)\.h|sched\.h|spawn\.h",
    "server": r"sqlite3|event2|Python|getopt",
}
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def allowed(module, path):
    top = path.split("/")[0]
    return top == module or top in MAY[module] or path in MAY[module]


def check_line(module, mark, path):
    """What is wrong with one include, or None."""
    if mark == "<":
        if path.split("/")[0] in OWN:
            return 'write "%s", not <%s>' % (path, path)
        if re.match(NEVER.get(module, r"\Z\A"), path):
            return "%s must not know <%s>" % (module, path)
        return None
    if "/" not in path or path.startswith("."):
        return 'write the module: "module/%s"' % os.path.basename(path)
    if not allowed(module, path):
        return "%s must not include %s" % (module, path)
    return None


def check(src):
    faults = []
    for top, folders, files in os.walk(src):
        folders.sort()
        for name in sorted(files):
            if not name.endswith((".c", ".h")):
                continue
            path = os.path.join(top, name)
            module = os.path.relpath(path, src).split(os.sep)[0]
            if module not in MAY:
                faults.append("%s: no module of the table" % path)
                continue
            with open(path, encoding="utf-8") as f:
                for number, line in enumerate(f, 1):
                    m = INCLUDE.match(line)
                    wrong = m and check_line(module, *m.groups())
                    if wrong:
                        faults.append("%s:%d: %s" % (path, number, wrong))
    return faults


SAMPLES = [  # (file, line, is it right)
    ("base/a.c", '#include "base/fd.h"', True), ("base/a.c", '#include "job/limits.h"', False), ("base/a.c", "#include <errno.h>", True),
    ("job/a.c", '#include "base/err.h"', True), ("job/a.c", '#include "sandbox/spec.h"', False), ("job/a.c", "#include <jansson.h>", True),
    ("job/a.c", "#include <sys/wait.h>", False), ("sandbox/a.c", '#include "job/request.h"', False),
    ("sandbox/a.c", "#include <jansson.h>", False), ("sandbox/a.c", '#include "sandbox/cgroup.h"', True),
    ("run/a.c", '#include "sandbox/outside.h"', True), ("run/a.c", '#include "sandbox/spec.h"', True),
    ("run/a.c", '#include "sandbox/inside.h"', False), ("run/a.c", '#include "sandbox/cgroup.h"', False),
    ("run/a.c", '#include "zygote/wire.h"', True), ("run/a.c", '#include "cli/say.h"', False), ("run/a.c", "#include <getopt.h>", False),
    ("cli/a.c", '#include "run/run.h"', True), ("cli/a.c", '#include "sandbox/spec.h"', False), ("cli/a.c", '#include "server/http.h"', False),
    ("server/a.c", '#include "cli/say.h"', False), ("zygote/a.c", '#include "sandbox/inside.h"', True),
    ("zygote/a.c", '#include "run/run.h"', False), ("zygote/a.c", '#include "sandbox/outside.h"', False),
    ("base/a.c", '#include "err.h"', False), ("run/a.c", '#include "../job/request.h"', False), ("cli/a.c", "#include <base/fd.h>", False),
    ("base/sub/a.h", '# include "run/run.h"', False), ("other/a.c", "#include <errno.h>", False),
]


def selftest():
    wrong = 0
    for name, line, is_right in SAMPLES:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, name)
            os.makedirs(os.path.dirname(path))
            with open(path, "w", encoding="utf-8") as f:
                f.write("/* a */\n" + line + "\n")
            if bool(check(folder)) == is_right:
                print("selftest: %s: %s was %s" % (name, line, "rejected" if is_right else "accepted"))
                wrong += 1
    return wrong


def main(argv):
    if argv[1:] == ["--selftest"]:
        return 1 if selftest() else 0
    src = argv[1] if len(argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "src")
    if not os.path.isdir(src):
        print("check_layers: %s is no folder" % src)
        return 2
    faults = check(src)
    print("\n".join(faults) if faults else "check_layers: ok")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
