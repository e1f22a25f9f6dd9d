"""What a daemon leaves raised or open is ended when it is gone, and what another has stays."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from stores import new_database, opened

from pdmuxd.controlplane.database.heartbeat import ALIVE, beat
from pdmuxd.controlplane.events.messages import AlarmEvent, IncidentEvent
from pdmuxd.controlplane.history.alarms import AlarmStore, write_alarm
from pdmuxd.controlplane.history.incidents import IncidentStore, incident_rows, write_incidents
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.services.store import Store

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
LATER = NOW + ALIVE + timedelta(seconds=1)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[tuple[ControlPlane, ControlPlane]]:
    url = new_database(tmp_path)
    with opened(url) as one, opened(url) as other:
        yield one, other


def alarm(state: str = "raised") -> AlarmEvent:
    return AlarmEvent.model_validate(
        {
            "id": "engine_down",
            "kind": "engine_down",
            "tenant": None,
            "severity": "critical",
            "state": state,
            "at": NOW,
            "since": NOW,
            "text": "the engine is down",
        }
    )


def tell(node: ControlPlane, now: datetime, *, state: str = "raised") -> None:
    with node.store.transaction() as session:
        beat(session, node.store.node, now)
        write_alarm(session, alarm(state), node.store.node)
        session.commit()


def raised(node: ControlPlane) -> int:
    return sum(one.ended_at is None for one in AlarmStore(node.store).list(limit=10))


def incident(tenant: str, at: datetime) -> IncidentEvent:
    return IncidentEvent.model_validate(
        {
            "at": at,
            "incident_id": f"{tenant}-1",
            "tenant": tenant,
            "state": "open",
            "began_at": NOW,
            "last_missed_at": NOW,
            "over_at": None,
            "ended_by": None,
            "promised_ratio": 0.99,
            "targets": (),
            "cause": "queued",
            "cause_ratio": None,
            "behind": None,
            "text": "queued",
            "command": None,
            "predicted": None,
            "not_predicted": None,
        }
    )


def test_alarms_of_another_node_that_is_there_stay(
    nodes: tuple[ControlPlane, ControlPlane], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "is_shared", True)
    one, other = nodes
    tell(one, NOW)
    tell(other, NOW)
    assert raised(one) == 2
    assert AlarmStore(one.store).end_left(NOW) == 0
    tell(other, LATER, state="cleared")  # clears its own and no other
    assert raised(one) == 1
    assert AlarmStore(other.store).end_left(LATER) == 1  # `one` has not been heard of for a minute
    assert raised(other) == 0


def test_where_one_daemon_uses_the_database_all_that_was_left_is_ended(
    nodes: tuple[ControlPlane, ControlPlane], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "is_shared", False)
    before, now = nodes
    tell(before, NOW)
    assert AlarmStore(now.store).end_left(NOW) == 1
    tell(now, NOW)
    assert AlarmStore(now.store).end_left(NOW) == 0


def test_incidents_that_another_node_goes_on_telling_of_stay(
    nodes: tuple[ControlPlane, ControlPlane], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = nodes
    with one.store.transaction() as session:
        write_incidents(session, incident_rows([incident("chat", NOW), incident("docs", LATER)]))
        session.commit()
    monkeypatch.setattr(Store, "is_shared", True)
    assert [each.tenant for each in IncidentStore(other.store).end_left(LATER)] == ["chat"]
    monkeypatch.setattr(Store, "is_shared", False)
    assert [each.tenant for each in IncidentStore(other.store).end_left(LATER)] == ["docs"]
