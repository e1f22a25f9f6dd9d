"""What is held becomes an alarm and an entry of the audit, and so does its end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from stores import new_database, opened

from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.daemon.duties.quarantine_record import QuarantineRecord
from pdmuxd.daemon.gateway.quarantine import Quarantine

REASON = "the engine was killed by signal 9: IndexError: index out of range"


class Rig:
    """Engines that die with requests, under a clock that the test moves."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self.now_s = 1000.0
        self.quarantine = Quarantine(600.0, lambda: self.now_s)
        self.record = QuarantineRecord(self.quarantine, control_plane, lambda: self.now_s)
        self._control_plane = control_plane

    def die(self, tenant: str, *texts: str) -> None:
        engine = object()
        for text in texts:
            rid = f"{text}-{self.now_s:.0f}"
            payload = f'{{"prompt":"{text}","rid":"{rid}"}}'.encode()
            self.quarantine.in_flight(engine, tenant=tenant, payload=payload, rid=rid, begun_s=None)
        self.quarantine.engine_died(engine, REASON)

    async def passes(self, seconds: float) -> None:
        self.now_s += seconds
        await self.record.look()

    @property
    def entries(self) -> list[tuple[str, str, str | None]]:
        found = self._control_plane.audit(limit=50)
        return [
            (one.who_kind, one.action, one.tenant) for one in found if one.action.startswith("quarantine.")
        ]


@pytest.fixture
def control_plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with opened(new_database(tmp_path)) as made:
        yield made


@pytest.fixture
def rig(control_plane: ControlPlane) -> Rig:
    return Rig(control_plane)


async def test_what_is_held_and_what_expires_is_in_the_audit_once(
    rig: Rig, control_plane: ControlPlane
) -> None:
    rig.die("chat", "bad")
    await rig.passes(1.0)
    assert not list(rig.record.conditions())
    rig.die("chat", "bad", "good")
    for _ in range(4):
        await rig.passes(1.0)
    assert rig.entries == [("daemon", "quarantine.hold", "chat")] * 2, "the body, and the tenant"
    entries = [one for one in control_plane.audit(limit=9) if one.action == "quarantine.hold"]
    (body,) = (one.after for one in entries if one.after and one.after["body"])
    assert body["request_ids"] == ["bad-1000", "bad-1001"]
    assert body["engine_errors"] == [REASON, REASON]
    (condition,) = rig.record.conditions()
    assert condition.id == "quarantined:chat"
    assert "pdmuxd engine quarantine --release chat" in condition.text
    await rig.passes(600.0)
    assert rig.entries[:2] == [("daemon", "quarantine.expire", "chat")] * 2
    assert not list(rig.record.conditions())
    await rig.passes(1.0)
    assert len(rig.entries) == 4


async def test_what_an_operator_releases_does_not_expire(rig: Rig) -> None:
    for _ in range(2):
        rig.die("chat", "bad")
    for _ in range(2):
        await rig.passes(1.0)
    assert rig.record.release("chat") == 2
    await rig.passes(1.0)
    assert [action for _, action, _ in rig.entries] == ["quarantine.hold"] * 2, "REST records the release"


async def test_a_setting_that_releases_all_is_in_the_audit(rig: Rig, control_plane: ControlPlane) -> None:
    for _ in range(2):
        rig.die("chat", "bad")
    for _ in range(2):
        await rig.passes(1.0)
    rig.quarantine.hold_s = 0.0
    await rig.passes(1.0)
    newest = control_plane.audit(limit=1)[0]
    assert (newest.action, newest.after and newest.after["why"]) == (
        "quarantine.expire",
        "data.quarantine_s",
    )
