"""Every change is recorded with who, when, why, before and after."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from profiling import measured_profile
from stores import FakeClock, slo

from pdmuxd.controlplane.database.audit import log_entry
from pdmuxd.controlplane.database.callers import Caller, acting
from pdmuxd.controlplane.database.opening import open_database
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.engine.core.errors import ConflictError, StaleVersionError

ALICE = Caller(kind="admin-token", name="alice", role="admin")


def newest(control_plane: ControlPlane) -> Any:
    return control_plane.audit(limit=1)[0]


def test_a_change_is_recorded_whole_when_it_is_made(control_plane: ControlPlane) -> None:
    control_plane.create_tenant("chat", slo(0.04))
    with acting(ALICE, "ticket 4711"):
        revision = control_plane.set_slo("chat", slo(0.03))

    entry = newest(control_plane)
    assert (entry.who_kind, entry.who, entry.why) == ("admin-token", "alice", "ticket 4711")
    assert (entry.action, entry.subject, entry.tenant) == ("slo.set", "chat", "chat")
    assert (entry.at, entry.settings_version) == (revision.created_at, revision.settings_version)
    assert (entry.before["tbt_s"], entry.after["tbt_s"]) == (0.04, 0.03)


def test_every_kind_of_change_leaves_an_entry_when_made(control_plane: ControlPlane) -> None:
    control_plane.create_tenant("chat")
    key = control_plane.keys.issue("chat")
    new = control_plane.keys.rotate(key.key_id)
    control_plane.keys.revoke(new.key_id)
    control_plane.update_tenant("chat", max_in_flight=7)
    control_plane.set_slo("chat", slo())
    control_plane.admin_tokens.issue("deploy")
    control_plane.admin_tokens.revoke("deploy")
    profile_id = control_plane.profiles.add(measured_profile(), origin="measured").profile_id
    control_plane.profiles.activate(profile_id, None)
    control_plane.profiles.set_frozen(profile_id, True)
    control_plane.profiles.roll_back(None)
    control_plane.record_action("engine.drain", subject="engine", after={"changed": True})
    control_plane.delete_tenant("chat")

    entries = list(reversed(control_plane.audit(limit=100)))
    assert [entry.action for entry in entries] == [
        "tenant.create",
        "key.issue",
        "key.rotate",
        "key.issue",
        "key.revoke",
        "tenant.update",
        "slo.set",
        "admin-token.issue",
        "admin-token.revoke",
        "profile.add",
        "profile.activation",
        "profile.freeze",
        "profile.activation",
        "engine.drain",
        "tenant.delete",
    ]
    assert {entry.who for entry in entries} == {"pdmuxd"}
    # Each change has a version, and the entries of one have the same.
    assert len({entry.settings_version for entry in entries}) == len(entries) - 1


def test_no_secret_is_recorded_when_keys_are_issued(control_plane: ControlPlane) -> None:
    control_plane.create_tenant("chat")
    secrets = [control_plane.keys.issue("chat").secret, control_plane.admin_tokens.issue("deploy").secret]
    recorded = repr(control_plane.audit())
    assert "key.issue" in recorded
    for secret in secrets:
        assert secret[5:-4] not in recorded


def test_nothing_is_recorded_when_nothing_is_changed(control_plane: ControlPlane) -> None:
    control_plane.create_tenant("chat")
    control_plane.update_tenant("chat", enabled=True)
    with pytest.raises(ConflictError):
        control_plane.create_tenant("chat")
    with pytest.raises(StaleVersionError):
        control_plane.delete_tenant("chat", expected_version=99)
    assert [entry.action for entry in control_plane.audit()] == ["tenant.create"]


def test_entries_come_in_pages_when_asked(control_plane: ControlPlane) -> None:
    for name in "abcde":
        control_plane.create_tenant(name)
    first = control_plane.audit(limit=2)
    rest = control_plane.audit(before_id=first[-1].entry_id)
    assert [entry.subject for entry in (*first, *rest)] == ["e", "d", "c", "b", "a"]
    assert [entry.subject for entry in control_plane.audit(tenant="b")] == ["b"]
    assert control_plane.audit(who="nobody") == control_plane.audit(action="x\0") == []


def test_entries_of_a_period_come_alone_when_asked(url: str) -> None:
    engine = open_database(url)

    control_plane = ControlPlane(engine, clock=FakeClock())
    for name in "abc":
        control_plane.create_tenant(name)
    at = {entry.subject: entry.at for entry in control_plane.audit()}

    def names(**period: Any) -> list[str]:
        return [entry.subject for entry in control_plane.audit(**period)]

    assert names(since=at["b"]) == ["c", "b"]
    assert names(until=at["b"]) == ["a"]
    assert names(since=at["b"], until=at["c"]) == ["b"]
    assert names(since=at["c"], until=at["c"]) == []
    engine.dispose()


def test_the_log_says_it_when_a_change_is_made(url: str, caplog: pytest.LogCaptureFixture) -> None:
    engine = open_database(url)
    control_plane = ControlPlane(engine, recorded=log_entry)
    with caplog.at_level(logging.INFO, "pdmuxd.audit"), acting(ALICE, "ticket 4711", "10.0.0.7"):
        control_plane.create_tenant("chat")
    engine.dispose()
    assert caplog.messages == [
        "audit: tenant.create chat by admin-token alice from 10.0.0.7 (settings 1): ticket 4711"
    ]


def test_a_changes_entry_stays_when_its_tenant_is_deleted(control_plane: ControlPlane) -> None:
    control_plane.create_tenant("chat")
    control_plane.delete_tenant("chat")
    assert [entry.action for entry in control_plane.audit(tenant="chat")] == [
        "tenant.delete",
        "tenant.create",
    ]
    assert newest(control_plane).after is None


def test_entries_are_forgotten_in_small_parts_when_they_are_old(control_plane: ControlPlane) -> None:
    for number in range(5):
        control_plane.create_tenant(f"t{number}")
    kept = control_plane.audit(limit=2)
    before = kept[-1].at
    parts = [control_plane.forget_audit(before, limit=2) for _ in range(3)]
    assert (parts, control_plane.audit()) == ([2, 1, 0], kept)
    assert control_plane.directory.version == 5
