# SPDX-License-Identifier: Apache-2.0
"""Root's server: what faces clients has no rights, and its two halves end together."""
import os
import re
import signal
import socket
import struct

import pytest

from harness import Residue, processes, wait_for
from serving import STREAM_OUTPUT, Native, Server, begun, request


@pytest.fixture
def root(callers):
    if "root" not in callers:
        pytest.skip("needs: root; a user's server has no rights to give up")
    return callers["root"]


def status(pid):
    with open(f"/proc/{pid}/status") as f:
        return dict(re.findall(r"(\w+):\t(.*)", f.read()))


def test_the_front_has_no_rights(root):
    with Server(root) as s, Native(s.path) as n:
        assert n.run(request("print(1)")).stdout == "1\n"
        front, launcher = status(s.p.pid), status(s.launcher())
        assert "0" not in front["Uid"].split() + front["Gid"].split() and front["Groups"].strip() == ""
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert int(front[name], 16) == 0, (name, front[name])
        assert (front["NoNewPrivs"], front["Seccomp"]) == ("1", "2")
        assert os.stat(f"/proc/{s.p.pid}/fd").st_uid == 0, "it is dumpable: others of its user can look into it"
        assert launcher["Uid"].split() == ["0"] * 4
        tasks = [status(f"{s.p.pid}/task/{t}") for t in os.listdir(f"/proc/{s.p.pid}/task")]
        assert all((t["Seccomp"], int(t["CapEff"], 16)) == ("2", 0) for t in tasks)


def test_the_launcher_holds_no_client(root):
    """It has its socket to the front and what tells of ended children; no connection, no listening socket."""
    with Server(root) as s, Native(s.path) as n:
        assert n.run(request("print(1)")).stdout == "1\n"
        folder = f"/proc/{s.launcher()}/fd"
        held = {int(fd): os.readlink(f"{folder}/{fd}") for fd in os.listdir(folder)}
        sockets = [fd for fd, what in held.items() if what.startswith("socket:") and fd > 2]
        assert sockets == [3] and len(held) <= 5, held


def test_clients_see_root(root):
    with Server(root) as s, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as c:
        c.connect(s.path)
        pid, uid, gid = struct.unpack("3i", c.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        assert (pid, uid) == (s.p.pid, 0) and status(s.p.pid)["Uid"].split()[0] != "0"


def test_a_users_server_is_one_process(callers):
    with Server(callers["user"]) as s:
        assert s.launcher() == 0 and status(s.p.pid)["Uid"].split()[0] == str(callers["user"].uid)


@pytest.mark.parametrize("half", ["front", "launcher"])
def test_one_half_is_killed(root, residue_of_root, half):
    """Nothing outlives either; and another server takes the place."""
    s = Server(root)
    with Native(s.path) as n, Native(s.path, "other") as other:
        begun(n, args=[residue_of_root.mark], mode="cold")
        begun(other)
        residue_of_root.look(s.p.pid)
        launcher = s.launcher()
        os.kill(s.p.pid if half == "front" else launcher, signal.SIGKILL)
        assert s.p.wait(10) == (-9 if half == "front" else 125)
        assert half == "front" or s.log("event=launcher_lost")
        assert wait_for(lambda: launcher not in processes())
    residue_of_root.assert_none(may_leave_empty_cgroup=True)
    with Server(root, socket_path=s.path) as again, Native(again.path) as n:
        assert n.run(request("print(1)")).stdout == "1\n"


@pytest.fixture
def residue_of_root(root):
    return Residue(root)


def test_a_private_configuration_is_read_again(root):
    """The front may not read it; it gets it all the same, at each SIGHUP."""
    folder = root.folder()
    config = folder / "cloche.ini"
    config.write_text("[limits]\nopen_files = 100\n")
    config.chmod(0o600)
    folder.chmod(0o700)
    script = "import resource\nprint(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    with Server(root, env={"CLOCHE_CONFIG": str(config)}) as s, Native(s.path) as n:
        assert n.run(request(script)).stdout == "100\n"
        config.write_text("[limits]\nopen_files = 120\n")
        s.p.send_signal(signal.SIGHUP)
        assert s.wait_log("event=reloaded") and n.run(request(script)).stdout == "120\n"


def test_an_interpreter_that_only_root_can_read(root):
    """It is said whose rights are missing"""
    folder = root.folder()
    (folder / "bin").mkdir()
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (folder / "bin" / "python3").symlink_to("/usr/bin/python3")
    folder.chmod(0o700)
    config = root.file(f"[environment default]\npython = {folder}/bin/python3\n", "cloche.ini")
    s = Server(root, env={"CLOCHE_CONFIG": str(config)}, ready=False)
    assert s.p.wait(10) in (2, 125) and wait_for(lambda: s.log("Permission denied", "root's server reads it as user"))
    assert not os.path.exists(s.path)


def test_signals_for_the_group_end_it_in_order(root):
    """A terminal's interrupt, or systemd, reaches the launcher too: that is for the front to follow."""
    with Server(root, env={"CLOCHE_SERVER_GRACE": "20"}, start_new_session=True) as s, Native(s.path) as n:
        n.start(request("import os, time\nos.write(1, b'x')\ntime.sleep(3)\nos.write(1, b'whole')"), STREAM_OUTPUT)
        assert n.take()[2] == b"x"
        os.killpg(s.p.pid, signal.SIGTERM)
        assert n.take()[2] == b"whole" and n.answer().status == "ok"
        assert s.stop() == 0 and not os.path.exists(s.path)


def test_root_without_other_users(root):
    """In a user namespace with one id there is nobody to become: it says so, and gives up all else."""
    s = Server(root, before=["/usr/bin/unshare", "--user", "--map-root-user", "/usr/bin/env"])
    with s, Native(s.path) as n:
        assert s.log("event=front_is_root") and n.run(request("print(1)")).stdout == "1\n"
        front = status(s.p.pid)
        assert (int(front["CapEff"], 16), int(front["CapBnd"], 16), front["Seccomp"]) == (0, 0, "2")
