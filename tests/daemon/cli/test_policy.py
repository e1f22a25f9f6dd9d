from __future__ import annotations

import pytest
from admin_daemon import AdminDaemon

from pdmuxd.controlplane.services.control_plane import ControlPlane


def test_what_is_not_given_stays_when_a_policy_is_set(pdmuxd, control_plane: ControlPlane) -> None:
    pdmuxd("policy", "set", "muxwise:preempt", "--shadow", "auto")
    out = pdmuxd("policy", "set", "--partitions", "112,20;96,36").out
    assert "policy    muxwise:preempt" in out
    assert "splits    112,20;96,36" in out
    assert "shadow    auto" in out
    told = control_plane.snapshot()
    assert told.engine_settings("auto").partitions == ((112, 20), (96, 36))

    pdmuxd("policy", "set", "default", "--partitions", "default", "--shadow", "none")
    assert control_plane.snapshot().engine_settings("auto").policy == "auto"
    assert pdmuxd("policy", "rollback", "--to", "1", "--json").json["policy"] == "muxwise:preempt"
    assert [one["version"] for one in pdmuxd("policy", "history", "--json").json] == [4, 3, 2, 1]
    assert "muxwise:preempt" in pdmuxd("policy", "history").out


def test_it_is_said_to_be_in_force_when_the_engine_has_confirmed(pdmuxd, daemon: AdminDaemon) -> None:
    assert pdmuxd("policy", "set", "muxwise", "--json").json["in_force"] is True
    assert "in force  yes" in pdmuxd("policy", "show").out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give a policy, --partitions or --shadow"),
        (["nobody"], "unknown policy 'nobody'"),
        (["--partitions", "96"], "allowed are pairs of SMs such as 112,20;96,36"),
    ],
)
def test_one_line_says_what_is_wrong(
    pdmuxd, control_plane: ControlPlane, words: list[str], said: str
) -> None:
    err = pdmuxd("policy", "set", *words, code=2).err
    assert said in " ".join(err.split())
    assert control_plane.snapshot().scheduling.version == 0


def test_the_policies_are_listed(pdmuxd, control_plane: ControlPlane) -> None:
    assert "static:P,D" in pdmuxd("policy", "list").out
