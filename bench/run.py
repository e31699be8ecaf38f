#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What a sandboxed run costs beside a plain one, measured side by side.

    bench/run.py [--rounds N] [--cloche PATH] [--python PATH] [--memory] [--faults] [--strace] [--json FILE]

All cases take turns within each round, in an order shuffled anew, so that whatever else the machine does meets all of
them.  Between two of them is a pause, so that none pays for what the one before it left to be cleared away.  Read the
ratios; the milliseconds belong to the machine.  Every run is checked: exit status 0 and the greeting on standard
output, else the benchmark fails.  The driver is one thread that calls posix_spawn (vfork underneath, so that its own
size costs nothing), reads a pipe to its end and calls wait4; time is CLOCK_MONOTONIC from before posix_spawn until
both are done.
"""

import argparse
import json
import os
import platform
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

REPOSITORY = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GREETING = b"Hello from Python!\n"
ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/", "LANG": "C.UTF-8"}
PAUSE = 0.02  # seconds
BASE = "plain python3"
OURS = "cloche run"


class Case:
    def __init__(self, name, argv, output):
        self.name = name
        self.argv = argv
        self.output = output  # what must come out; None: anything
        self.wall = []  # seconds, one for each round
        self.cpu = []
        self.faults = []

    def run(self, keep=True):
        """One run: seconds of wall clock; with @keep noted down."""
        null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        out, into = os.pipe2(os.O_CLOEXEC)
        actions = [(os.POSIX_SPAWN_DUP2, null, 0), (os.POSIX_SPAWN_DUP2, into, 1), (os.POSIX_SPAWN_DUP2, 2, 2)]
        time.sleep(PAUSE)
        begin = time.perf_counter_ns()
        pid = os.posix_spawn(self.argv[0], self.argv, ENV, file_actions=actions)
        os.close(into)
        output = b""
        while True:
            part = os.read(out, 65536)
            if not part:
                break
            output += part
        _, status, usage = os.wait4(pid, 0)
        wall = time.perf_counter_ns() - begin
        os.close(out)
        os.close(null)
        if status != 0 or (self.output is not None and output != self.output):
            sys.exit("bench: %s: status %d, output %r: nothing was measured" % (self.name, status, output[:200]))
        if keep:
            self.wall.append(wall / 1e9)
            self.cpu.append(usage.ru_utime + usage.ru_stime)
            self.faults.append(usage.ru_minflt)


def peers(python, script):
    """Other tools around the same interpreter and script, where they are installed."""
    bwrap = shutil.which("bwrap")
    if bwrap:
        argv = [bwrap, "--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/usr", "/usr"]
        for name in ("bin", "lib", "lib64", "sbin"):
            if os.path.islink("/" + name):
                argv += ["--symlink", os.readlink("/" + name), "/" + name]
            elif os.path.isdir("/" + name):
                argv += ["--ro-bind", "/" + name, "/" + name]
        if not python.startswith("/usr/"):
            prefix = os.path.dirname(os.path.dirname(python))
            argv += ["--ro-bind", prefix, prefix]
        argv += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--ro-bind", script, "/tmp/hello.py",
                 "--chdir", "/tmp", "--clearenv", "--", python, "/tmp/hello.py"]
        yield Case("bwrap (namespaces, no seccomp, no limits)", argv, GREETING)
    unshare = shutil.which("unshare")
    if unshare:
        yield Case("unshare (bare namespaces, no walls)",
                   [unshare, "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--net", "--ipc", "--uts",
                    python, script], GREETING)


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def table(rows, out):
    """Markdown, numbers to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for n, row in enumerate(rows):
        cells = [row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
        print("| " + " | ".join(cells) + " |", file=out)
        if n == 0:
            print("|" + "|".join(["-" * (widths[0] + 2)] + ["-" * (w + 1) + ":" for w in widths[1:]]) + "|", file=out)


def measure(cases, rounds):
    for _ in range(3):
        for case in cases:
            case.run(keep=False)
    order = list(cases)
    shuffle = random.Random(1).shuffle
    for n in range(rounds):
        shuffle(order)
        for case in order:
            case.run()
        if sys.stderr.isatty():
            print("\rround %d of %d" % (n + 1, rounds), end="" if n + 1 < rounds else "\r\x1b[K", file=sys.stderr)


def report_times(cases, faults, out):
    base = next(case for case in cases if case.name == BASE)
    head = ["case", "median ms", "min ms", "p95 ms", "CPU ms", "ratio", "ratio of minima"]
    rows = [head + (["page faults"] if faults else [])]
    for case in cases:
        row = [case.name]
        row += ["%.2f" % (1e3 * x) for x in (statistics.median(case.wall), min(case.wall), percentile(case.wall, 0.95),
                                             statistics.median(case.cpu))]
        row.append("%.2f" % (statistics.median(case.wall) / statistics.median(base.wall)))
        row.append("%.2f" % (min(case.wall) / min(base.wall)))
        if faults:
            row.append("%d" % statistics.median(case.faults))
        rows.append(row)
    table(rows, out)
    ours = [case for case in cases if case.name == OURS]
    for case in ours:
        pairs = sorted(a / b for a, b in zip(case.wall, base.wall))
        print("\n%s against %s, round by round: median ratio %.2f, middle half %.2f to %.2f; %.2f ms more by median, "
              "%.2f ms by minimum." % (case.name, base.name, statistics.median(pairs), percentile(pairs, 0.25),
                                       percentile(pairs, 0.75),
                                       1e3 * (statistics.median(case.wall) - statistics.median(base.wall)),
                                       1e3 * (min(case.wall) - min(base.wall))), file=out)


def field(path, *names):
    """The sum of some "Name:  N kB" lines, in KiB; None where we may not read."""
    try:
        with open(path, encoding="ascii", errors="replace") as f:
            return sum(int(line.split()[1]) for line in f if line.split(":")[0] in names)
    except OSError:
        return None


def descendants(pid):
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name, encoding="utf-8", errors="replace") as f:
                    parents[int(name)] = int(f.read().rpartition(")")[2].split()[1])
            except OSError:
                pass  # it ended meanwhile
    found = [pid]
    for p in found:
        found += sorted(child for child, parent in parents.items() if parent == p)
    return found


def describe(pid):
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as f:
            command = f.read().rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
        with open("/proc/%d/comm" % pid, encoding="utf-8", errors="replace") as f:
            comm = f.read().strip()
    except OSError:
        return "?", False
    try:
        exe = os.path.basename(os.readlink("/proc/%d/exe" % pid))
    except OSError:
        exe = comm
    return (command or comm)[:60], exe.startswith("python")


def sleeping(argv):
    """Start a script that prints a line and sleeps; return once the line is there."""
    p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=ENV)
    if p.stdout.readline() != b"ready\n":
        p.kill()
        sys.exit("bench: %s: no sleeping script came of it" % argv[0])
    time.sleep(0.3)
    return p


def stop(p):
    p.send_signal(signal.SIGTERM)
    try:
        p.wait(10)
    except subprocess.TimeoutExpired:
        p.kill()
        p.wait()
    p.stdout.close()


def report_memory(cloche, python, folder, out):
    script = os.path.join(folder, "sleeping.py")
    with open(script, "w", encoding="ascii") as f:
        f.write("import time\nprint('ready', flush=True)\ntime.sleep(60)\n")
    rows = [["process while a script sleeps", "whose", "PSS KiB", "private KiB"]]
    plain = sleeping([python, script])
    run = sleeping([cloche, "run", script])
    ours = [0, 0]
    unread = 0
    for pid in [plain.pid] + descendants(run.pid):
        command, is_python = describe(pid)
        path = "/proc/%d/smaps_rollup" % pid
        numbers = [field(path, "Pss"), field(path, "Private_Clean", "Private_Dirty")]
        whose = "plain" if pid == plain.pid else "script" if is_python else "ours"
        if None in numbers:
            unread += whose == "ours"
        elif whose == "ours":
            ours = [a + b for a, b in zip(ours, numbers)]
        rows.append([command, whose] + ["not readable" if n is None else str(n) for n in numbers])
    stop(run)
    stop(plain)
    rows.append(["all of ours together", "", str(ours[0]), str(ours[1])])
    print(file=out)
    table(rows, out)
    if unread:
        print("\n%d of our processes could not be read: the sum is too small; run this as root." % unread, file=out)


def report_strace(cases, out):
    strace = shutil.which("strace")
    if not strace:
        print("\nstrace is not installed: no summary of system calls", file=out)
        return
    for case in cases:
        with tempfile.NamedTemporaryFile("r") as f:
            p = subprocess.run([strace, "-c", "-f", "-S", "time", "-o", f.name, *case.argv], env=ENV,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=120)
            lines = f.read().rstrip().split("\n")
        verdict = "" if p.returncode == 0 else " (failed under strace: status %d)" % p.returncode
        print("\nstrace -c -f, %s%s; times are of a traced run, counts are what to look at:\n" % (case.name, verdict),
              file=out)
        print("\n".join("    " + line for line in lines[:22]), file=out)
        if len(lines) > 23:
            print("    ... %d more\n    %s" % (len(lines) - 23, lines[-1]), file=out)


def options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=100, help="how often each case runs (100)")
    parser.add_argument("--cloche", default=os.environ.get("CLOCHE_BIN", os.path.join(REPOSITORY, "build", "cloche")))
    parser.add_argument("--python", default="/usr/bin/python3", help="the interpreter of all cases; cloche's default one")
    parser.add_argument("--faults", action="store_true", help="page faults as a column")
    parser.add_argument("--memory", action="store_true", help="memory of our processes while a script sleeps")
    parser.add_argument("--strace", action="store_true", help="system calls of one run of each kind")
    parser.add_argument("--json", metavar="FILE", help="every single number, too")
    return parser.parse_args()


def main():
    o = options()
    out = sys.stdout
    if not os.access(o.cloche, os.X_OK):
        sys.exit("bench: %s is not there: build it, or name it with --cloche" % o.cloche)
    with tempfile.TemporaryDirectory(prefix="cloche-bench-") as folder:
        os.chmod(folder, 0o755)
        script = os.path.join(folder, "hello.py")
        with open(script, "w", encoding="ascii") as f:
            f.write("print('Hello from Python!')\n")
        python = os.path.realpath(o.python)
        cases = [Case("/bin/true", ["/bin/true"], b""),
                 Case("cloche --version", [o.cloche, "--version"], None),
                 Case(BASE, [o.python, script], GREETING),
                 Case(OURS, [o.cloche, "run", script], GREETING)]
        cases += peers(python, script)
        load = os.getloadavg()[0]
        measure(cases, max(o.rounds, 1))
        print("%d rounds of %d cases in turn, 3 unmeasured before; driver: one thread of Python %s, posix_spawn + wait4; "
              "as %s; %d CPUs, load %.1f before and %.1f after, Linux %s.\n" %
              (len(cases[0].wall), len(cases), platform.python_version(), "root" if os.geteuid() == 0 else "a user",
               os.cpu_count(), load, os.getloadavg()[0], platform.release()), file=out)
        report_times(cases, o.faults, out)
        print("\nCPU%s: what the kernel charged to the started process and what was waited for below it "
              "(%s waits for nobody)." %
              (" and page faults" if o.faults else "", OURS), file=out)
        if o.memory:
            report_memory(o.cloche, o.python, folder, out)
        if o.strace:
            report_strace([case for case in cases if case.name in (BASE, OURS)], out)
        if o.json:
            with open(o.json, "w", encoding="utf-8") as f:
                json.dump({case.name: {"wall": case.wall, "cpu": case.cpu, "faults": case.faults} for case in cases}, f)


main()
