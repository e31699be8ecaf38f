# SPDX-License-Identifier: Apache-2.0
"""One property: the same job through every door has the same result, times, ids and the like aside."""
import json
import re
import subprocess

import pytest

from doors import JSON, LINES, Door
from harness import REPO, STOPPED_BY_US, Result, strict_json
from mcp_client import Stdio
from serving import Native

MIB = 1 << 20
# What may differ: who it was, how long it took, how it was started.
ASIDE = ("run_id", "execution_time", "cpu_time", "queue_time", "peak_memory_bytes", "mode")

JOBS = {
    "ok": {"script_content": "print('ok')"},
    "unicode": {"script_content": "print('äöü 🐍 \\u2028 \\x1b[31m \\x00 \"\\\\')", "script_name": "Größe 🐍.py"},
    "stderr": {"script_content": "import sys\nprint('out')\nprint('err', file=sys.stderr)"},
    "traceback": {"script_content": "def f():\n    return {}['missing']\n\nf()\n"},
    "syntax error": {"script_content": "if True print(1)"},
    "exit code": {"script_content": "import os\nos._exit(137)"},
    "signal": {"script_content": "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)"},
    "own SIGKILL": {"script_content": "import os\nos.kill(os.getpid(), 9)"},
    "timeout": {"script_content": "print('before')\nwhile True: pass", "timeout": 0.4},
    "cpu limit": {"script_content": "print('before')\nwhile True: pass", "limits": {"cpu_seconds": 0.3}},
    "memory limit": {"script_content": "print('before')\nx = bytearray(300 << 20)\nx = bytes(300 << 20)",
                     "limits": {"memory_bytes": 64 * MIB}},
    "output limit": {"script_content": "import os\nwhile True: os.write(1, b'x' * 4096)",
                     "limits": {"output_bytes_hard": MIB, "output_bytes": 1000}},
    "truncated": {"script_content": "for i in range(5000): print(i, 'ä' * 10)", "limits": {"output_bytes": 4096}},
    "no UTF-8": {"script_content": "import os\nos.write(1, b'ok\\xff\\xfe\\xc3')\nos.write(2, b'\\xed\\xa0\\x80')"},
    "base64": {"script_content": "import os\nos.write(1, bytes(range(256)))", "output": "base64"},
    "stdin": {"script_content": "import sys\nprint(sys.stdin.read() * 2)", "stdin": "zwei\nZeilen ü"},
    "stdin of bytes": {"script_content": "import sys\nprint(sys.stdin.buffer.read())", "stdin": {"base64": "AP8BAg=="}},
    "args and env": {"script_content": "import os, sys\nprint(sys.argv, os.environ['A'], os.environ['B_2'])",
                     "args": ["", "a b", "ü\n", "-x"], "env": {"A": "1=2", "B_2": "ä"}},
    "files": {"script_content": "import helper\nprint(helper.x, open('d/e.bin', 'rb').read())",
              "files": {"helper.py": "x = 7", "d/e.bin": {"base64": "/wA="}}},
    "artifacts": {"script_content": "import os\nos.mkdir('out')\nopen('out/a.csv', 'w').write('1,2')\nopen('out/b', 'wb').write(b'\\0\\xff')\n"
                                    "os.symlink('/etc/passwd', 'out/link')\nopen('big.bin', 'wb').truncate(9 << 20)",
                  "artifacts": ["out/**", "*.bin", "none/*"]},
    "left over": {"script_content": "import subprocess\nsubprocess.Popen(['sleep', '60'])\nprint('done')"},
    "buffered": {"script_content": "import os\nprint('first')\nos.write(1, b'second\\n')", "buffered": True},
    "no network": {"script_content": "import socket\ntry:\n    socket.socket()\nexcept OSError as e:\n    print(e.errno)",
                   "network": "none"},
    "where it is": {"script_content": "import os, sys\nprint(__file__, __name__, sys.path[0], os.getcwd(), os.getuid(), os.environ['HOME'], sys.flags)"},
    "missing module": {"script_content": "import nobody_has_this"},
    "named, cold": {"script_content": "print('a')", "script_name": "named.py", "args": ["x", "é"], "mode": "cold"},
    "stderr truncated": {"script_content": "import sys; sys.stderr.write('e' * 5000); sys.exit(3)", "limits": {"output_bytes": 1000},
                         "mode": "cold"},
    "no text in a file": {"script_content": "import os; print(os.environ['A'], open('f/g').read(), input())", "mode": "cold",
                          "env": {"A": "1"}, "files": {"f/g": {"base64": "AAECgA=="}}, "stdin": {"base64": "aGk="}},
    "all artifacts": {"script_content": "open('o.bin', 'wb').write(bytes(3))\nopen('p.txt', 'w').write('p')", "artifacts": ["*"],
                      "mode": "cold"},
    "own SIGKILL, cold": {"script_content": "import os; os.kill(os.getpid(), 9)", "mode": "cold", "network": "none", "buffered": True},
    "refused: nothing": {"script_content": ""},
    "refused: a field": {"script_content": "print(1)", "timeuot": 3},
    "refused: a limit": {"script_content": "print(1)", "limits": {"processes": 0}},
    "refused: an environment": {"script_content": "print(1)", "environment": "nowhere"},
    "refused: a file": {"script_content": "print(1)", "files": {"/etc/passwd": ""}},
    "refused: a file outside": {"script_content": "print(1)", "files": {"../x": ""}},
    "refused: little memory": {"script_content": "print(1)", "limits": {"memory_bytes": 1}},
}

DRIVER = r"""
#include <cloche/cloche.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
	struct cloche_error e;
	struct cloche *c;
	char *line = NULL;
	size_t size = 0;
	ssize_t n;

	if (cloche_open(NULL, &c, &e) < 0)
		return 1;
	while ((n = getline(&line, &size, stdin)) > 0) {
		char *result = NULL;
		int r = cloche_run(c, line, (size_t)n, NULL, &result, &e);

		if (!result || (r < 0 && r != CLOCHE_INVALID))
			(void)fprintf(stderr, "%d %s\n", r, e.message);
		(void)puts(result ? result : "null");
		(void)fflush(stdout);
		cloche_free(result);
	}
	cloche_close(c);
	return 0;
}
"""


def plain(obj):
    """What has to agree"""
    if "error" in obj:
        assert set(obj) == {"error"}, obj
        return obj
    Result(obj)
    kept = {k: v for k, v in obj.items() if k not in ASIDE}
    if kept["status"] in STOPPED_BY_US:  # the message has the value that was reached
        kept["message"] = re.sub(r"\d+(\.\d+)?", "N", kept["message"])
    if kept["status"] in ("output_limit",):
        for name in ("stdout_bytes", "stdout"):  # how far it came until it was stopped
            kept.pop(name)
    return kept


class Doors:
    def __init__(self, who):
        self.who = who
        self.door = Door(who)
        self.mcp = Stdio(who, "--server", self.door.server.path)
        self.own_mcp = Stdio(who, "--local")
        folder = who.folder()
        build = who.binary.parent
        (folder / "driver.c").write_text(DRIVER)
        subprocess.run(["gcc", "-Wall", "-Werror", "-o", folder / "driver", folder / "driver.c", "-I", REPO / "include", "-L", build,
                        "-lcloche", f"-Wl,-rpath,{build}"], check=True, timeout=60)
        (folder / "cloche-supervisor").symlink_to(build / "cloche-supervisor")
        self.driver = subprocess.Popen([*who.prefix(), folder / "driver"], env=who.env(), stdin=subprocess.PIPE, cwd="/",
                                       stdout=subprocess.PIPE)

    def close(self):
        self.driver.stdin.close()
        assert self.driver.wait(20) == 0
        self.driver.stdout.close()
        self.mcp.__exit__()
        self.own_mcp.__exit__()
        self.door.__exit__()

    def library(self, job):
        self.driver.stdin.write(json.dumps(job).encode() + b"\n")
        self.driver.stdin.flush()
        return strict_json(self.driver.stdout.readline())

    def command(self, job):
        return strict_json(self.who.trigger_raw(job, "--local").stdout)

    def native(self, job):
        with Native(self.door.server.path) as n:
            answer = n.run(job)
        return {"error": answer[1]} if isinstance(answer, tuple) else answer.obj

    def http(self, job):
        answer = self.door.call("POST", "/v1/runs", job)
        if answer.status == 422:
            return {"error": answer.json["error"]}
        assert (answer.status, answer.type) == (200, JSON), answer
        return answer.json

    def batch(self, job):
        line, = self.door.call("POST", "/v1/runs/batch", json.dumps(job).encode() + b"\n", {"Content-Type": LINES}).lines
        return {"error": line["error"]} if "error" in line else line["result"]

    def model(self, job, mcp=None):
        """By the Model Context Protocol"""
        fields = dict(job)
        return (mcp or self.mcp).call(fields.pop("script_content"), **fields)["structuredContent"]

    def own_model(self, job):
        """By the same, without a server"""
        return self.model(job, self.own_mcp)


@pytest.fixture(scope="module")
def doors():
    found = {}
    yield found
    for d in found.values():
        d.close()


@pytest.mark.parametrize("name", JOBS)
def test_doors_agree(who, doors, name):
    d = doors.get(who.name) or doors.setdefault(who.name, Doors(who))
    job = JOBS[name]
    wanted = plain(d.command(job))
    assert ("error" in wanted) == name.startswith("refused"), wanted
    for way in (d.library, d.native, d.http, d.batch, d.model, d.own_model):
        assert plain(way(job)) == wanted, way.__name__


def test_the_table_has_every_status_that_a_script_can_cause(who, doors):
    d = doors.get(who.name) or doors.setdefault(who.name, Doors(who))
    seen = {d.http(JOBS[name])["status"] for name in ("ok", "exit code", "signal", "timeout", "cpu limit", "memory limit", "output limit")}
    assert seen == {"ok", "error", "signaled", "timeout", "cpu_limit", "memory_limit", "output_limit"}
