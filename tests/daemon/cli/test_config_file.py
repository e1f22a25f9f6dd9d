"""`pdmuxd apply`, `diff` and `export`."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from admin_daemon import AdminDaemon
from stores import slo

from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.tenants.limit_values import Limit
from pdmuxd.engine.core.slo import DEFAULT_SLO

CHAT = """\
tenants:
  chat:
    slo: {ttft_fixed_ms: 500, ttft_per_1k_new_tokens_ms: 800, tbt_ms: 40, attainment_ratio: 0.95}
    priority_class: interactive
    weight: 2
    limits:
      requests_per_min: {value: 600, action: wait}
---
tenants:
  batch:  # all defaults
---
policy: {policy: muxwise, shadow: auto}
prices:
  currency: EUR
  prices:
    - {input: "0.15", cached: "0.03", output: "0.6"}
    - {tenant: chat, input: "0.1", cached: "0.03", output: "0.6"}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tenants.yaml"
    path.write_text(CHAT)
    return path


def test_a_file_is_in_force_when_it_is_applied(pdmuxd, control_plane: ControlPlane, file: Path) -> None:
    out = pdmuxd("--why", "ticket 7", "apply", "-f", str(file), "--yes").out

    assert "+ create tenant chat: " in out
    assert "~ change the policy: policy none -> muxwise, shadow none -> auto" in out
    assert "~ change the prices: currency none -> EUR, all tenants, all models none -> 0.15" in out
    assert out.endswith("2 tenants created, the policy changed, the prices changed (settings version 1)\n")
    chat, batch = control_plane.get_tenant("chat"), control_plane.get_tenant("batch")
    assert (chat.slo, chat.weight, chat.priority_class) == (slo(0.04), 2.0, "interactive")
    assert chat.limits == (Limit(name="requests_per_min", value=600, action="wait"),)
    assert (batch.slo, batch.limits) == (DEFAULT_SLO, ())
    assert control_plane.scheduling.current().scheduling.policy == "muxwise"
    (entry,) = control_plane.audit()
    assert (entry.action, entry.why, entry.settings_version) == ("config.apply", "ticket 7", 1)
    assert "batch, chat (--json shows all)" in pdmuxd("audit").out
    again = pdmuxd("apply", "-f", str(file), "--yes").out
    assert again == "nothing differs (settings version 1)\n"
    assert len(control_plane.audit()) == 1


def test_nothing_is_changed_when_an_export_is_applied(
    pdmuxd, control_plane: ControlPlane, daemon: AdminDaemon, file: Path
) -> None:
    pdmuxd("apply", "-f", str(file), "--yes")
    control_plane.set_slo("batch", slo(0.033_333_333_333))  # more digits than REST tells
    before = control_plane.snapshot()
    exported = file.with_name("exported.yaml")
    exported.write_text(pdmuxd("export").out)
    assert "API keys and admin tokens are not in it" in exported.read_text()

    assert pdmuxd("apply", "-f", str(exported), "--prune", "--yes").out.startswith("nothing differs")
    assert pdmuxd("diff", "-f", str(exported), "--prune").out == "nothing differs\n"
    assert control_plane.snapshot() == before


def test_drift_is_told_by_the_exit_code_when_someone_edits_by_hand(
    pdmuxd, control_plane: ControlPlane, file: Path
) -> None:
    pdmuxd("apply", "-f", str(file), "--yes")
    control_plane.set_slo("chat", slo(0.03))
    control_plane.create_tenant("by-hand")

    out = pdmuxd("diff", "-f", str(file), code=3).out
    assert "~ change tenant chat: slo.tbt_ms 30 -> 40\n" in out
    assert "not named, so left as they are: by-hand (--prune deletes them)" in out
    pruned = pdmuxd("diff", "-f", str(file), "--prune", "--json", code=3).json
    assert [(one["action"], one["name"]) for one in pruned["changes"]] == [
        ("delete", "by-hand"),
        ("change", "chat"),
    ]
    assert control_plane.get_slo("chat").slo.tbt_s == 0.03


@pytest.mark.parametrize(("answer", "is_applied"), [("y\n", True), ("n\n", False), ("", False)])
def test_it_asks_before_it_changes_when_nobody_has_said_yes(
    pdmuxd,
    control_plane: ControlPlane,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    is_applied: bool,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    pdmuxd("apply", "-f", str(file), code=0 if is_applied else 1)
    assert len(control_plane.list_tenants()) == (2 if is_applied else 0)


def test_nothing_is_changed_when_another_change_comes_while_it_asks(
    pdmuxd, control_plane: ControlPlane, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(io.StringIO):
        def readline(self, *_: object) -> str:
            control_plane.create_tenant("first")
            return "y\n"

    monkeypatch.setattr(sys, "stdin", Slow())
    err = pdmuxd("apply", "-f", str(file), code=2).err
    assert "the configuration is at version 1, not 0; read it again" in err
    assert [one.name for one in control_plane.list_tenants()] == ["first"]


def test_standard_input_is_read_when_it_is_named(
    pdmuxd, control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "give --yes or --dry-run" in pdmuxd("apply", "-f", "-", code=2).err
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(CHAT.encode())))
    assert "(nothing was changed)" in pdmuxd("apply", "-f", "-", "--dry-run").out
    assert control_plane.list_tenants() == []


def test_several_files_are_one_configuration_when_given(
    pdmuxd, control_plane: ControlPlane, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(f"tenants: {{{name}: {{weight: 2}}}}")
    pdmuxd("apply", "-f", "a.yaml", "-f", "b.yaml", "--yes", "--prune")
    assert [one.name for one in control_plane.list_tenants()] == ["a", "b"]
    err = pdmuxd("apply", "-f", "a.yaml", "-f", "a.yaml", code=2).err
    assert err == "error: a.yaml:1: tenants.a is here twice; it stands at a.yaml:1 already\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "tenants:\n  chat:\n    weigth: 2\n",
            ':3: tenants.chat.weigth: "weigth" is not a field here; allowed are ',
        ),
        (
            "tenants:\n  chat:\n    max_wait_ms: 20s\n",
            ':3: tenants.chat.max_wait_ms: max_wait_ms is "20s"; allowed are',
        ),
        ("tenants:\n\n  Chat: {}\n", ':3: tenants.Chat: the name of a tenant is "Chat"; allowed are 1 to 63'),
        ("tenants:\n  chat: {limits: {rpm: 4}}\n", ':2: tenants.chat.limits.rpm: "rpm" is not a field here'),
        (
            "tenants:\n  chat:\n    limits: {concurrency: 4}\n",
            ":3: tenants.chat.limits.concurrency: 4 is not allowed",
        ),
        (
            "tenants:\n  chat:\n    slo: {tbt_ms: 40}\n",
            ":3: tenants.chat.slo.ttft_fixed_ms: ttft_fixed_ms is missing",
        ),
        ("policy:\n  policy: nothing\n", ":2: policy.policy: unknown policy 'nothing'"),
        (
            "policy:\n  partitions: []\n",
            ":2: policy.partitions: partitions is []; allowed are null, or 1 to 24",
        ),
        ("tenant: {}\n", ':1: tenant: "tenant" is not a field here; allowed are tenants, policy'),
        ("tenants:\n  a: {}\n  a: {}\n", ":3: 'a' is here twice; it stands on line 2 already"),
        ("a: &x {}\nb: *x\n", ":2: *x is an alias; write out what it stands for"),
    ],
)
def test_the_line_the_field_and_what_is_allowed_are_named_when_a_file_is_wrong(
    pdmuxd, control_plane: ControlPlane, file: Path, text: str, said: str
) -> None:
    file.write_text(text)
    err = pdmuxd("apply", "-f", str(file), "--yes", code=2).err
    assert f"error: {file}{said}" in " ".join(err.split("\n")).replace("  ", " ")
    assert control_plane.audit() == []


def test_every_fault_has_its_line_when_there_are_several(
    pdmuxd, control_plane: ControlPlane, file: Path
) -> None:
    file.write_text("tenants:\n  a: {weight: 0}\n  b: {weight: 1}\n  c: {weight: 1000}\n")
    err = pdmuxd("apply", "-f", str(file), "--yes", code=2).err.splitlines()
    assert [line.rpartition(".yaml:")[2] for line in err] == [
        "2: tenants.a.weight: weight is 0; allowed are 0.01 to 100",
        "4: tenants.c.weight: weight is 1000; allowed are 0.01 to 100; nothing was changed",
    ]


def test_all_tenants_are_not_deleted_when_a_pruning_file_is_empty(
    pdmuxd, control_plane: ControlPlane, file: Path
) -> None:
    control_plane.create_tenant("chat")
    file.write_text("tenants:\n")
    err = pdmuxd("apply", "-f", str(file), "--prune", "--yes", code=2).err
    assert "tenants is empty; with prune, which deletes all others, name at least one" in err
    assert len(control_plane.list_tenants()) == 1


def test_it_is_said_in_a_line_when_there_is_no_file(pdmuxd, tmp_path: Path) -> None:
    assert "give at least one -f FILE" in pdmuxd("apply", code=2).err
    assert pdmuxd("apply", "-f", "none.yaml", code=2).err == (
        "error: cannot read none.yaml: No such file or directory\n"
    )
    assert "Is a directory" in pdmuxd("diff", "-f", str(tmp_path), code=2).err
    (tmp_path / "large.yaml").write_bytes(b"#" * (10 << 20))
    assert "allowed are at most 4194304" in pdmuxd("diff", "-f", "large.yaml", code=2).err


def test_the_schema_is_printed_without_a_daemon_when_asked(pdmuxd) -> None:
    schema = json.loads(pdmuxd("apply", "--schema").out)
    assert schema["$schema"].endswith("2020-12/schema")
    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) == {"tenants", "policy", "prices"}
