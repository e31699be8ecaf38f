# SPDX-License-Identifier: Apache-2.0
"""The two tests that every table of cases gets: `from both import test_control, test_inside`."""

import attack_support as support
from attack_support import need_binary, need_root, need_x86_64, run_control, run_inside, verdict_of


def test_control(control_case, canaries, folder):
    """Outside, the attack works."""
    need_x86_64()
    canaries.reset()
    canaries.start_victim("user" if control_case.control == "user" else "root")
    params = canaries.params()
    params["env"] = {"SECRET_OF_THE_CALLER": canaries.token}
    try:
        verdict = run_control(control_case, params, folder, pass_fds=())
    finally:
        canaries.end_victim()
        canaries.reset()
    assert "breach" in verdict, "the attack does not work outside, so it proves nothing: %s" % verdict


def test_inside(inside_case, canaries):
    """Inside, it is held in a stated way, and nothing of the host was touched."""
    case, who = inside_case
    need_x86_64()
    need_binary()
    if who == "root":
        need_root()
    canaries.reset()
    canaries.start_victim(who)
    try:
        result = run_inside(case, canaries.params(), who, env={"SECRET_OF_THE_CALLER": canaries.token})
        canaries.assert_untouched()
    finally:
        canaries.end_victim()
    if support.door != "local" and not case.request:
        assert result["mode"] == "warm", result["warnings"]
    assert result["status"] == "ok", "%s: %s\n%s" % (result["status"], result["message"], result["stderr"])
    assert canaries.token not in result["stdout"] + result["stderr"]
    verdict = verdict_of(result["stdout"])
    assert verdict.get("held") in case.held, "expected %s, got %s" % (case.held, verdict)
