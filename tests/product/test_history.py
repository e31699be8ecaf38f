# SPDX-License-Identifier: Apache-2.0
"""What a server writes down: all of it, never in a result's way, through kill -9, full disks, locks and damage."""
import concurrent.futures
import json
import os
import pathlib
import signal
import sqlite3
import statistics
import subprocess
import threading
import time

import pytest

from harness import strict_json, wait_for
from serving import STREAM_OUTPUT, Native, Server, on_terminal, request

STATS, STATS_REPLY = 6, 71
MARK = "q7mark3"


class Historian(Server):
    """A server whose history is in a folder of its own"""

    def __init__(self, who, folder=None, env=None, **kw):
        self.base = pathlib.Path(folder or who.folder())
        self.db = self.base / "state" / "history.db"
        super().__init__(who, env={"CLOCHE_HISTORY_PATH": str(self.db), **(env or {})}, **kw)

    def stats(self):
        with Native(self.path) as n:
            n.send(STATS)
            kind, _, body = n.take()
        assert kind == STATS_REPLY
        return strict_json(body)["history"]

    def settled(self, written, seconds=10):
        assert wait_for(lambda: self.stats()["written"] >= written and self.stats()["queued"] == 0, seconds), self.stats()

    def history(self, *args, code=0):
        p = self.who.cloche("history", *args, env={"CLOCHE_HISTORY_PATH": str(self.db)})
        assert p.returncode == code, p
        return p

    def rows(self, *args):
        return [strict_json(line) for line in self.history("--json", *args).stdout.splitlines()]

    def show(self, run_id):
        return strict_json(self.history("show", run_id, "--json").stdout)

    def run(self, script="print(1)", **fields):
        with Native(self.path) as n:
            return n.run(request(script, **fields))


@pytest.fixture
def server(who):
    with Historian(who) as s:
        yield s


def ids(db):
    """Every run_id in the database as another program sees it"""
    c = sqlite3.connect(f"file:{db}?mode=ro", uri=True, timeout=10)
    try:
        return {r[0] for r in c.execute("SELECT run_id FROM runs")}
    except sqlite3.OperationalError as e:
        assert "no such table" in str(e)  # it is being made
        return set()
    finally:
        c.close()


def is_whole(db):
    c = sqlite3.connect(db, timeout=10)
    answer = c.execute("PRAGMA integrity_check").fetchall()
    c.close()
    return answer == [("ok",)]


def test_every_run_is_there(server):
    results = [server.run("print('a')", script_name="a.py"),
               server.run("import sys\nsys.stderr.write('no')\nsys.exit(3)", script_name="b.py"),
               server.run("while 1: pass", script_name="c.py", timeout=0.3),
               server.run("print('\\x00\\xff')", output="base64", artifacts=["nothing*"]),
               server.run("open('f.txt','w').write('" + MARK * 3 + "')", artifacts=["*.txt"])]
    server.settled(5)
    rows = server.rows()
    assert [r["run_id"] for r in rows] == [r.run_id for r in reversed(results)]
    for row, result in zip(reversed(rows), results):
        assert {k: v for k, v in row.items() if k in result.obj} == {k: result.obj[k] for k in row if k in result.obj}
        assert (row["tenant"], row["environment"]) == (f"uid-{os.geteuid()}", "default")
        shown = server.show(row["run_id"])
        assert shown["has_output"] and {k: v for k, v in shown["result"].items() if k != "artifacts"} == \
            {k: v for k, v in result.obj.items() if k != "artifacts"}
        assert all("base64" not in a for a in shown["result"]["artifacts"])
    shown = server.show(results[4].run_id[:10])
    assert shown["script"].count(MARK * 3) == 1 and shown["result"]["artifacts"] == [
        {"name": "f.txt", "size": 21, "media_type": "text/plain", "left_out": "not kept in the history"}]
    assert [r["script_name"] for r in server.rows("--status", "error")] == ["b.py"]
    assert [r["script_name"] for r in server.rows("--name", "[bc].py")] == ["c.py", "b.py"]
    assert len(server.rows("--limit", "2")) == 2 and server.rows("--since", "2001-01-01") == rows
    assert server.rows("--tenant", "somebody") == [] and server.rows("--since", str(int(time.time()) + 100)) == []


def test_whose_it_is(server):
    server.run()
    server.settled(1)
    st, folder = server.db.stat(), server.db.parent.stat()
    assert (st.st_mode & 0o7777, folder.st_mode & 0o7777) == (0o600, 0o700)
    with open(f"/proc/{server.p.pid}/status") as f:
        uid = int([line for line in f if line.startswith("Uid:")][0].split()[1])
    assert st.st_uid == folder.st_uid == uid
    for other in server.db.parent.iterdir():
        assert other.stat().st_mode & 0o077 == 0, other


def test_streamed_runs_and_those_that_never_began(who, server):
    with Native(server.path) as n:
        streamed = n.run(request("print('streamed')"), STREAM_OUTPUT)
    server.settled(1)
    shown = server.show(streamed.run_id)
    assert not shown["has_output"] and (shown["result"]["stdout"], shown["stdout_bytes"]) == ("", 9)
    p = server.history("show", streamed.run_id, "--stdout", code=127)
    assert p.stdout == b"" and b"was not kept" in p.stderr
    assert server.history("show", streamed.run_id, "--stderr").stdout == b""  # nothing was written: that is known
    with Native(server.path) as n:
        n.start(request("import time\ntime.sleep(60)"))
        time.sleep(0.3)
    server.settled(2)
    assert server.rows("--limit", "1")[0]["status"] == "cancelled"  # its client has gone


def test_what_is_not_to_be_kept(who):
    with Historian(who, env={"CLOCHE_HISTORY_STORE_SCRIPTS": "no", "CLOCHE_HISTORY_STORE_OUTPUT": "no"}) as s:
        r = s.run(f"print('{MARK}' + '{MARK}')", args=[MARK], env={"A": MARK}, stdin=MARK)
        s.settled(1)
        shown = s.show(r.run_id)
        assert (shown["script"], shown["has_output"], shown["result"]["stdout"]) == (None, False, "")
        s.history("show", r.run_id, "--script", code=127)
        files = [f.read_bytes() for f in s.db.parent.iterdir()]
    assert len(files) >= 2 and not any(MARK.encode() in f for f in files)
    with Historian(who, env={"CLOCHE_HISTORY_ENABLED": "no"}) as s:
        assert s.run().status == "ok" and s.stats() is None and not s.db.parent.exists()
        assert b"no history yet" in s.history().stderr


def test_rows_that_could_be_seen_outlive_kill_9(who):
    base = who.folder()
    seen = set()
    for turn in range(2):
        with Historian(who, base) as s:
            def work():
                try:
                    with Native(s.path) as n:
                        for _ in range(1000):
                            n.run(request("print('x' * 2000)"))
                except (AssertionError, OSError):
                    return

            threads = [threading.Thread(target=work) for _ in range(3)]
            for t in threads:
                t.start()
            goal = len(seen) + 100
            assert wait_for(lambda: s.db.exists() and len(ids(s.db)) > goal, 30), s.lines
            now = ids(s.db)
            s.stop(signal.SIGKILL)
            for t in threads:
                t.join(20)
        assert seen < now and now <= ids(s.db) and is_whole(s.db)
        seen = ids(s.db)


def on_small_disk(who, folder):
    owner = "" if who.is_root else f",uid={who.uid},gid={who.gid}"
    return ["/usr/bin/unshare", "-m", "/bin/sh", "-c",
            f'mount -t tmpfs -o size=1m,mode=755{owner} small "{folder}" && exec "$@"', "sh"]


def test_a_full_disk_holds_up_nobody(who):
    if os.geteuid() != 0:
        pytest.skip("needs: root, for a small disk")
    base = who.folder()
    with Historian(who, base, before=on_small_disk(who, base)) as s:
        inside = pathlib.Path(f"/proc/{s.p.pid}/root{base}")
        assert s.run().status == "ok"
        s.settled(1)
        with open(inside / "filler", "wb", buffering=0) as f, pytest.raises(OSError):
            while True:
                f.write(bytes(4096))
        results = [s.run("print('y' * 3000)", script_name=f"{i}.py") for i in range(20)]
        assert all(r.stdout == "y" * 3000 + "\n" for r in results)
        assert s.wait_log("event=history", "full"), s.lines
        assert wait_for(lambda: s.stats()["state"] == "opening"), s.stats()
        assert s.stats()["queued"] == 20 and "full" in s.stats()["error"]
        (inside / "filler").unlink()
        s.settled(21)
        assert s.stats()["state"] == "writing" and s.wait_log("written again")
        code = ("import json, sqlite3, sys\nc = sqlite3.connect(sys.argv[1])\nprint(json.dumps([c.execute(q).fetchall() for q in "
                "('PRAGMA integrity_check', 'SELECT run_id FROM runs')]))")
        seen = subprocess.run(["/usr/bin/nsenter", "-t", str(s.p.pid), "-m", "/usr/bin/python3", "-c", code, str(s.db)],
                              capture_output=True, check=True, timeout=30).stdout
        check, rows = json.loads(seen)
        assert check == [["ok"]] and {r.run_id for r in results} < {r[0] for r in rows}


def test_a_lock_delays_rows_alone(server):
    for _ in range(3):
        server.run()
    server.settled(3)
    c = sqlite3.connect(server.db, isolation_level=None, timeout=10)
    c.execute("BEGIN EXCLUSIVE")
    began, times = time.monotonic(), []
    while time.monotonic() - began < 2:
        start = time.monotonic()
        assert server.run().status == "ok"
        times.append(time.monotonic() - start)
    assert server.stats()["written"] == 3 and server.stats()["queued"] == len(times)
    c.execute("ROLLBACK")
    c.close()
    assert statistics.median(times) < 0.5, times  # a part of the lock's time: nobody waited for it
    server.settled(3 + len(times))
    assert len(ids(server.db)) == 3 + len(times)


def test_bounds_are_kept(who):
    with Historian(who, env={"CLOCHE_HISTORY_MAX_ROWS": "5"}) as s:
        last = [s.run(script_name=f"{i}.py").run_id for i in range(20)][-5:]
        s.settled(20)
        assert wait_for(lambda: len(ids(s.db)) == 5) and ids(s.db) == set(last)
    with Historian(who, s.base, env={"CLOCHE_HISTORY_MAX_AGE": "3"}) as s:
        time.sleep(3.1)
        newest = s.run().run_id
        s.settled(1)
        assert wait_for(lambda: ids(s.db) == {newest})


@pytest.mark.parametrize("damage", ["letter", "newer", "foreign"])
def test_a_database_that_is_not_ours_is_left_alone(who, damage):
    base = who.folder()
    with Historian(who, base) as s:
        s.run()
        s.settled(1)
    if damage == "letter":
        content = b"Dear reader, " * 1000
        s.db.write_bytes(content)
    else:
        c = sqlite3.connect(s.db)
        c.execute("PRAGMA user_version = 99" if damage == "newer" else "PRAGMA application_id = 7")
        c.close()
        content = s.db.read_bytes()
    words = {"letter": "is damaged or no history", "newer": "of a newer cloche", "foreign": "another program's"}[damage]
    with Historian(who, base) as s:
        assert s.wait_log("event=history", words), s.lines
        assert s.run().status == "ok"
        assert s.stats()["state"] == "broken" and words in s.stats()["error"]
        assert words.encode() in s.history(code=125).stderr
    assert s.db.read_bytes() == content


def follow(server, *args):
    p = server.who.popen("history", "--follow", "--json", "--limit", "1000", *args,
                         env={"CLOCHE_HISTORY_PATH": str(server.db)})
    lines = []
    t = threading.Thread(target=lambda: lines.extend(p.stdout), daemon=True)
    t.start()
    return p, t, lines


def test_two_followers_see_each_run_once(who, server):
    early = follow(server)  # before there is anything
    first = [server.run().run_id for _ in range(5)]
    server.settled(5)
    late = follow(server)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        rest = list(pool.map(lambda i: server.run().run_id, range(40)))
    for p, t, lines in (early, late):
        assert wait_for(lambda: len(lines) >= 45, 30), len(lines)
        p.terminate()
        t.join(5)
        p.communicate()
        got = [strict_json(line)["run_id"] for line in lines]
        assert sorted(got) == sorted(first + rest) and got[:5] == first


def test_a_terminal_obeys_nothing(who, server):
    evil = "\x1b]0;owned\x07\x1b[2J\u009b31m\u202e"
    r = server.run(f"import sys\n# {evil}\nsys.stdout.write('out' + chr(27) + '[31m\\n')\nraise ValueError('\\x1b[5m')",
                   script_name="a\u202eb.py", artifacts=["*"])
    server.settled(1)
    env = {"CLOCHE_HISTORY_PATH": str(server.db)}
    for args in ([], ["show", r.run_id], ["show", r.run_id, "--stdout"], ["show", r.run_id, "--script"],
                 ["show", r.run_id, "--stderr"], ["--json"]):
        text = on_terminal(who, "history", *args, env=env, stderr=subprocess.PIPE)[1].replace(b"\r\n", b"\n").decode()
        assert text and not any((c < " " and c != "\n") or "\x7f" <= c <= "\x9f" for c in text), (args, text)
        assert "\u202e" not in text, (args, text)
        if args == ["--json"]:
            assert strict_json(text)["script_name"] == "a\u202eb.py"
    assert server.history("show", r.run_id, "--stdout").stdout == b"out\x1b[31m\n"  # no terminal: as it was


def test_what_is_asked_wrongly(who, server):
    for args, words in ((["--status", "fine"], b"one of ok, error"), (["--since", "soon"], b"--since"), (["--limit", "0"], b"--limit"),
                        (["show"], b"ID"), (["show", "zz"], b"run_id"), (["x"], b"show ID"), (["--script"], b"only with show"),
                        (["show", "abcdef", "--follow"], b"only for the list"), (["--name", ""], b"name")):
        server.run()
        server.settled(1)
        p = server.history(*args, code=2)
        assert p.stdout == b"" and words in p.stderr and p.stderr.count(b"\n") == 1, p
    p = server.history("show", "0" * 32, code=127)
    assert b"no such run" in p.stderr


def test_the_usual_place_of_a_users(callers):
    who = callers["user"]
    state = who.folder()
    with Historian(who, env={"XDG_STATE_HOME": str(state), "CLOCHE_HISTORY_PATH": None}) as s:
        r = s.run()
        s.settled(1)
    p = who.cloche("history", "--json", env={"XDG_STATE_HOME": str(state)})
    assert r.run_id.encode() in p.stdout and (state / "cloche/history.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("has_user", [True, False])
def test_the_usual_place_of_roots(callers, has_user):
    """With a user for the server's front, in a mount namespace where that user and /var/lib are ours"""
    if "root" not in callers:
        pytest.skip("needs: root")
    who = callers["root"]
    passwd = who.folder() / "passwd"
    lines = [line for line in pathlib.Path("/etc/passwd").read_text().splitlines() if not line.startswith("cloche:")]
    passwd.write_text("\n".join(lines + ["cloche:x:64123:64123::/nonexistent:/bin/false"] * has_user) + "\n")
    before = ["/usr/bin/unshare", "-m", "/bin/sh", "-c", f'mount --bind "{passwd}" /etc/passwd && '
              'mount -t tmpfs -o mode=755 lib /var/lib && exec "$@"', "sh"]
    with Historian(who, env={"CLOCHE_HISTORY_PATH": None}, before=before) as s:
        r = s.run()
        lib = pathlib.Path(f"/proc/{s.p.pid}/root/var/lib")
        if not has_user:  # what belongs to nobody, nobody's other programs could read
            assert s.log("event=no_history", "no user cloche") and s.stats() is None and not list(lib.iterdir())
            return
        s.settled(1)
        for path in (lib / "cloche", lib / "cloche/history.db"):
            assert path.stat().st_uid == 64123 and path.stat().st_mode & 0o077 == 0
        p = who.cloche("history", "--json", before=["/usr/bin/nsenter", "-t", str(s.p.pid), "-m"])
        assert r.run_id.encode() in p.stdout, p


NAMES = ["plain.py", 'x" status=ok run="y', "back\\slash", "a\u202eb", "tab is refused", "\U000e0041tag", "=", "ünï"]


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_log(who, form):
    with Historian(who, env={"CLOCHE_SERVER_LOG": form}, ready=False) as s:
        assert s.wait_log("ready")
        for name in NAMES:
            r = s.run(f"print('{MARK}')\nraise ValueError('{MARK}')", script_name=name, args=[MARK], env={"A": MARK},
                      stdin=MARK, files={"f": MARK})
            assert MARK in r.stderr
        with Native(s.path) as n:
            assert n.run(request(MARK, **{MARK: 1}))[0] == 1
        assert s.wait_log("run", count=len(NAMES) + 1) and s.wait_log("refused")
    assert s.log("stopped") and not [line for line in s.lines if f"'{MARK}'" in line or f"={MARK}" in line]
    runs = [line for line in s.lines if "unnamed" not in line and ("event=run " in line or '"event": "run"' in line)]
    assert len(runs) == len(NAMES)
    if form == "json":
        lines = [strict_json(line) for line in s.lines]
        assert all({"time", "level", "event"} <= set(obj) for obj in lines)
        names = [obj["script"] for obj in lines if obj["event"] == "run"]
        assert names[:5] + names[6:] == NAMES[:5] + NAMES[6:]
        assert all(obj["status"] == "error" and obj["code"] == 1 and obj["uid"] == os.geteuid() for obj in lines
                   if obj["event"] == "run")
    else:
        assert all(line.count(" status=error ") == 1 and line.startswith("level=info event=run run=") for line in runs)
        assert ' script="x\\" status=ok run=\\"y" status=error ' in runs[1] and "\u202e" not in "".join(runs)
