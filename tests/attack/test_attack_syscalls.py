# SPDX-License-Identifier: Apache-2.0
"""Every system call, from inside: probes with arguments that matter, a sweep over all numbers, calls by other doors."""

import json
import os
import re
import subprocess

import pytest

import syscall_table as table
from attack_support import PRELUDE, PYTHON, as_user, compile_c, environment, need_binary, need_x86_64, trigger

HEADER = "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"

PROBE = PRELUDE + r"""
def verdict(nr, args):
    words = [BUF(a.encode()) if isinstance(a, str) else a for a in args]
    try:
        SC(nr, *words)
        return "OK"
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e.errno))
def one(nr, args):
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.setitimer(signal.ITIMER_REAL, 2)
        os.write(w, verdict(nr, args).encode())
        os._exit(0)
    os.close(w)
    out = os.read(r, 64).decode()
    os.close(r)
    _, st = os.waitpid(pid, 0)
    return out or ("signal %d" % os.WTERMSIG(st) if os.WIFSIGNALED(st) else "exit %d" % os.WEXITSTATUS(st))
print(json.dumps([one(nr, args) for nr, args in json.load(open(sys.argv[2]))]))
"""


def numbers():
    need_x86_64()
    if not os.path.exists(HEADER):
        pytest.fail("no %s: install linux-libc-dev" % HEADER)
    with open(HEADER) as f:
        return {**table.NEWER, **{n: int(v) for n, v in re.findall(r"#define __NR_(\w+) (\d+)", f.read())}}


def ask(calls, who, **more):
    """The verdicts of @calls, a list of (number, arguments), from one run."""
    need_binary()
    result = trigger({"script_content": PROBE, "args": ["{}", "/tmp/calls"], "files": {"calls": json.dumps(calls)},
        "timeout": 120,
                      **more}, who, timeout=180)
    assert result["status"] == "ok", (result["status"], result["message"], result["stderr"])
    return json.loads(result["stdout"].strip().splitlines()[-1])


def ask_outside(calls, folder):
    path = os.path.join(folder, "calls")
    with open(path, "w") as f:
        json.dump(calls, f)
    out = subprocess.run(as_user("user") + [PYTHON, "-c", PROBE, "{}", path], env=environment("user"), cwd=folder,
                         capture_output=True, text=True, check=True, timeout=120).stdout
    return json.loads(out.strip().splitlines()[-1])


def probe_calls():
    nr = numbers()
    return [(nr.get(what, what), list(args)) for _, what, args, _ in table.PROBES]


def test_probes_control(folder):
    """Outside, an ordinary user's kernel answers otherwise: most of the probes really ask something."""
    got = ask_outside(probe_calls(), folder)
    other = [row[0] for row, verdict in zip(table.PROBES, got) if row[3] != {"OK"} and verdict not in row[3]]
    assert len(other) >= 60, other


def test_probes(who):
    assert len(table.PROBES) >= 127
    got = ask(probe_calls(), who)
    wrong = ["%s: %s, not %s" % (row[0], verdict, "/".join(sorted(row[3]))) for row, verdict in zip(table.PROBES, got)
             if verdict not in row[3]]
    assert not wrong, "\n".join(wrong)


def test_no_network_probes(who):
    """Without a network there are no sockets but Unix ones."""
    rows = [r for r in table.PROBES if r[1] == "socket"]
    nr = numbers()["socket"]
    got = ask([(nr, list(r[2])) for r in rows], who, network="none")
    allowed = [r[0] for r, verdict in zip(rows, got) if verdict == "OK"]
    assert all(name.startswith("socket unix") for name in allowed), allowed


def expected(name):
    if name in table.SUCCESS:
        return {"OK"}
    if name in table.NOT_SUPPORTED:
        return {"EOPNOTSUPP"}
    if name in table.EPERM:
        return {"EPERM"}
    if name in table.SOME:
        return table.SOME[name]
    return None if name in table.ALLOW else {"ENOSYS"}


def test_sweep(who, folder):
    """Each number from 0 to 1000 with bad arguments: the verdict is the table's, and unknown ones do not exist."""
    names = {v: n for n, v in numbers().items()}
    swept = [n for n in range(1001) if names.get(n) not in table.NOT_SWEPT]
    got = ask([(n, [-1] * 6) for n in swept], who)
    wrong = []
    newer = [n for n, verdict in zip(swept, got) if verdict == "ENOSYS" and names.get(n) in table.NEWER]
    newer = {n for n, verdict in zip(newer, ask_outside([(n, [-1] * 6) for n in newer], folder)) if verdict == "ENOSYS"}
    for number, verdict in zip(swept, got):
        name = names.get(number, "")
        want = table.PASSED_BY.get(number) or expected(name)
        if want is None:
            # futex: the kernel itself knows no operation -1; newer: this one is older than the call
            bad = verdict == "ENOSYS" and name != "futex" and number not in newer
        else:
            bad = verdict not in want
        if bad:
            wrong.append("%d %s: %s, not %s" % (number, name, verdict,
                "reached" if want is None else "/".join(sorted(want))))
    assert not wrong, "\n".join(wrong)


def test_sweep_high_bits(who):
    """A bit above the 32 that the kernel compares never opens what is shut without it."""
    nr = numbers()
    rows = [r for r in table.PROBES if "OK" not in r[3] and isinstance(r[1], str)]
    calls = []
    for _, what, args, _ in rows:
        # Pointers stay as they are: a bad one would be refused for another reason.
        calls.append((nr[what], [a if isinstance(a, str) or a == 0 else (a | 1 << 32 if a >= 0 else a) for a in args]))
    got = ask(calls, who)
    opened = [r[0] for r, verdict in zip(rows, got) if verdict == "OK"]
    assert not opened, opened


FOREIGN = r"""
#include <stdio.h>
int main(void)
{
	long r;

#ifdef X32
	register long ten __asm__("r10") = 0;
	__asm__ volatile("syscall" : "=a"(r) : "a"(0x40000000L + 39), "r"(ten) : "rcx", "r11", "memory");
#else
	__asm__ volatile("int $0x80" : "=a"(r) : "a"(20L) : "memory");
#endif
	printf("%ld\n", r);
	return r > 0 ? 42 : 1;
}
"""


def build_foreign(folder, *flags):
    need_x86_64()
    source = os.path.join(folder, "foreign.c")
    with open(source, "w") as f:
        f.write(FOREIGN)
    return compile_c(source, os.path.join(folder, "foreign"), *flags)


def test_other_door_control(folder):
    """Outside, the 32-bit door is open (where the kernel has it)."""
    p = subprocess.run([build_foreign(folder)], capture_output=True)
    if p.returncode == -11:
        pytest.skip("needs: a kernel with 32-bit system calls")
    assert p.returncode == 42


@pytest.mark.parametrize("flags", [(), ("-DX32",)], ids=["int-0x80", "x32"])
def test_other_door(who, folder, flags):
    """Calls by a foreign ABI end the caller with SIGSYS."""
    import base64
    need_binary()
    with open(build_foreign(folder, *flags), "rb") as f:
        program = base64.b64encode(f.read()).decode()
    script = "import os, subprocess\nos.chmod('foreign', 0o755)\nprint(subprocess.run(['/tmp/foreign']).returncode)"
    result = trigger({"script_content": script, "files": {"foreign": {"base64": program}}}, who)
    assert result["stdout"] == "-31\n", result
    script = "import os\nos.chmod('foreign', 0o755)\nos.execv('/tmp/foreign', ['foreign'])"
    result = trigger({"script_content": script, "files": {"foreign": {"base64": program}}}, who)
    assert (result["status"], result["return_code"], result["signal"]) == ("signaled", -31, "SIGSYS"), result


def test_allowed_and_refused_do_not_meet():
    sets = [table.ALLOW, set(table.SOME), table.EPERM, table.SUCCESS, table.NOT_SUPPORTED]
    for i, a in enumerate(sets):
        for b in sets[i + 1:]:
            assert not a & b
    known = set(numbers())
    assert not (table.ALLOW | set(table.SOME)) - known
