from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest
from admin_daemon import AdminDaemon
from stores import slo

from pdmuxd.controlplane.outlook.tbt_costs import TbtCost
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.telemetry.tbt_cap import TbtCap
from pdmuxd.daemon.cli import slo as commands


@pytest.fixture(autouse=True)
def _tenants(control_plane: ControlPlane) -> None:
    control_plane.create_tenant("chat", slo(0.04))
    control_plane.create_tenant("batch", slo(0.2))


def test_only_the_given_targets_change_when_set(pdmuxd, control_plane: ControlPlane) -> None:
    out = pdmuxd("slo", "set", "chat", "--tbt-ms", "25", "--attainment", "0.999").out

    revision = control_plane.get_slo("chat")
    assert (revision.version, revision.slo.tbt_s, revision.slo.attainment_ratio) == (2, 0.025, 0.999)
    assert (revision.slo.ttft_fixed_s, revision.slo.ttft_per_1k_new_tokens_s) == (0.5, 0.8)
    assert "TTFT         500 ms and 800 ms per 1,000 new tokens" in out
    assert "TBT          25 ms" in out
    assert "attainment   99.9%" in out


def test_a_target_of_whole_answers_is_set_kept_and_taken_away(pdmuxd, control_plane: ControlPlane) -> None:
    assert "whole        20000 ms" in pdmuxd("slo", "set", "chat", "--e2e-ms", "20000").out
    pdmuxd("slo", "set", "chat", "--tbt-ms", "30")
    held = control_plane.get_slo("chat").slo
    assert (held.e2e_s, held.tbt_s) == (20.0, 0.03)
    assert pdmuxd("slo", "show", "--json").json["chat"]["e2e_ms"] == 20_000.0
    assert "no target" in pdmuxd("slo", "set", "chat", "--e2e-ms", "none").out
    assert control_plane.get_slo("chat").slo.e2e_s is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("soon", "--e2e-ms is 'soon'; allowed are milliseconds, or none"),
        ("0", "e2e_ms is 0; allowed are null, or 1 to 86400000"),
    ],
)
def test_one_line_says_what_a_target_of_whole_answers_may_be(pdmuxd, given: str, said: str) -> None:
    assert said in pdmuxd("slo", "set", "chat", "--e2e-ms", given, code=2).err


def test_it_is_refused_when_no_target_is_given(pdmuxd, control_plane: ControlPlane) -> None:
    assert "at least one of --ttft-fixed-ms" in pdmuxd("slo", "set", "chat", code=2).err
    assert control_plane.get_slo("chat").version == 1


def test_one_line_names_what_is_allowed_when_a_target_is_wrong(pdmuxd, control_plane: ControlPlane) -> None:
    err = pdmuxd("slo", "set", "chat", "--tbt-ms", "0.5", code=2).err
    assert err.splitlines()[-1] == "error: tbt_ms is 0.5; allowed are 1 to 10000"
    assert control_plane.get_slo("chat").version == 1


def test_the_edit_is_refused_when_someone_was_faster(
    pdmuxd, daemon: AdminDaemon, control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = commands.targets_of

    def read_slowly(answer):
        control_plane.set_slo("chat", slo(0.01))
        return read(answer)

    monkeypatch.setattr(commands, "targets_of", read_slowly)
    err = pdmuxd("slo", "set", "chat", "--tbt-ms", "30", code=2).err
    assert err == "error: the SLO of chat is at version 2, not 1; read it again\n"
    assert control_plane.get_slo("chat").slo.tbt_s == 0.01


def test_it_is_said_to_be_in_force_when_the_engine_has_confirmed(pdmuxd, daemon: AdminDaemon) -> None:
    assert pdmuxd("slo", "set", "chat", "--tbt-ms", "30", "--json").json["in_force"] is True


def test_it_is_said_not_to_be_in_force_when_the_engine_does_not_confirm(
    pdmuxd, daemon: AdminDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.acks = False
    monkeypatch.setattr(commands, "IN_FORCE_WITHIN_S", 0.2)
    assert "in force     no" in pdmuxd("slo", "set", "chat", "--tbt-ms", "30").out


def test_the_tenant_that_sets_the_split_is_named_when_shown(pdmuxd) -> None:
    for words in (["show"], ["show", "batch"], ["set", "batch", "--tbt-ms", "100"]):
        out = pdmuxd("slo", *words).out
        assert "The strictest TBT is 40 ms, of tenant chat: decode is one batch on one partition" in out


def test_all_tenants_are_shown_when_none_is_named(pdmuxd) -> None:
    assert set(pdmuxd("slo", "show", "--json").json) == {"batch", "chat"}
    rows = [line.split() for line in pdmuxd("slo", "show").out.splitlines() if "95%" in line]
    assert rows == [
        ["batch", "500", "800", "200", "95%", "1", "no"],
        ["chat", "500", "800", "40", "95%", "1", "no"],
    ]


def test_edits_are_newest_first_when_the_history_is_shown(pdmuxd, control_plane: ControlPlane) -> None:
    for tbt_s in (0.03, 0.02):
        control_plane.set_slo("chat", slo(tbt_s))
    history = pdmuxd("slo", "history", "chat", "--json").json
    assert [(one["version"], one["tbt_ms"]) for one in history] == [(3, 20.0), (2, 30.0), (1, 40.0)]
    table = pdmuxd("slo", "history", "chat", "--limit", "2").out
    assert [line.split()[2] for line in table.splitlines() if "95%" in line] == ["20", "30"]


def test_it_is_said_when_there_is_no_such_tenant(pdmuxd) -> None:
    for words in (["show", "nobody"], ["set", "nobody", "--tbt-ms", "9"], ["history", "nobody"]):
        assert pdmuxd("slo", *words, code=2).err.endswith("error: there is no tenant 'nobody'\n")


def test_what_a_target_costs_is_shown_with_its_cap(
    pdmuxd, control_plane: ControlPlane, daemon: AdminDaemon
) -> None:
    assert "no two tenants have sent requests" in pdmuxd("slo", "cost").out
    tenant = control_plane.update_tenant("chat", max_tbt_cost_ratio=0.1)
    daemon.telemetry.on_directory(control_plane.directory)
    cost = TbtCost(
        tenant="chat",
        tbt_s=0.01,
        time_ratio=0.5,
        others_tbt_s=0.06,
        prefill_busy_ratio=0.9,
        prefill_busy_ratio_without=0.5,
    )
    daemon.costs = (cost, replace(cost, tenant="gone"))
    (row,) = [line for line in pdmuxd("slo", "cost").out.splitlines() if " chat " in f" {line}"]
    assert row.split()[1:] == ["10", "ms", "50%", "60", "ms", "90%", "50%", "40%", "10%"]
    daemon.telemetry.tbt_caps = {
        "chat": TbtCap(since_s=1.0, tenant_since_ms=tenant.since_ms, tbt_s=0.06, cost_ratio=0.4)
    }
    (told,) = pdmuxd("slo", "cost", "--json").json
    assert (told["capped_since"], told["planned_tbt_ms"]) == ("1970-01-01T00:00:01Z", 60.0)
    (row,) = [line for line in pdmuxd("slo", "cost").out.splitlines() if " chat " in f" {line}"]
    assert row.split()[-2:] == datetime.fromtimestamp(1.0).astimezone().strftime("%F %T").split()
