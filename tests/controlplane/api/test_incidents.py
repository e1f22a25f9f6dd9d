"""Incidents over REST, the page and metrics: all tell the same object, open and kept."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from browsers import Browser
from stores import AdminCalls
from telemetry_feeds import HandClock, heartbeat

from pdmuxd.controlplane.history.incidents import IncidentStore
from pdmuxd.controlplane.node.engine_status import EngineStatus
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.controlplane.web.live import Live


@pytest.fixture
def hand() -> HandClock:
    return HandClock()


@pytest.fixture
def known(control_plane: ControlPlane, hand: HandClock) -> Telemetry:
    for name in ("chat", "docs"):
        control_plane.create_tenant(name)
    made = Telemetry(clock=hand)
    made.on_directory(control_plane.snapshot())
    made.status = lambda: EngineStatus(state="serving", since_s=hand(), stats=heartbeat())
    return made


def refuse(known: Telemetry, hand: HandClock, tenant: str, count: int) -> None:
    for number in range(count):
        known.on_refused(
            tenant, "requests_per_min", request_id=f"{tenant}{hand()}{number}", path="/", status=429
        )


def pass_time(known: Telemetry, hand: HandClock, seconds: int) -> None:
    for _ in range(10 * seconds):
        hand.turn(0.1)
        known.on_message(heartbeat())
        known.tick()


async def test_all_surfaces_tell_the_same_when_one_is_open_and_when_it_is_over(
    control_plane: ControlPlane, known: Telemetry, hand: HandClock
) -> None:
    call = AdminCalls(control_plane, telemetry=known)
    browser = Browser(call)
    await browser.log_in()
    live = Live(known)
    seen = list[tuple[str, str]]()
    for second in range(60):
        if second < 10:
            refuse(known, hand, "chat", 2)
        pass_time(known, hand, 1)
        told = (await call("GET", "/api/v1/incidents")).json()["incidents"]
        event = known.told["tenants"].model_dump(mode="json")["incidents"]
        assert [(one["incident_id"], one["state"], one["cause"]) for one in told] == [
            (one["incident_id"], one["state"], one["cause"]) for one in event
        ]
        headline = live.now().verdict.text
        (one,) = told or [None]
        if one is not None:
            seen.append((one["state"], "misses" if "misses its" in headline else "missed"))
            assert headline.startswith("chat "), headline
            assert one["targets"][0]["missed"] == min(20, 2 * (second + 1))
        alone = None if one is None else await call("GET", f"/api/v1/incidents/{one['incident_id']}")
        assert alone is None or alone.json()["state"] == told[0]["state"]
    assert set(seen) == {("open", "misses"), ("over", "missed")}
    assert seen == sorted(seen)
    page = (await browser.get("/ui/incidents")).text
    assert "No incident goes on" in page
    assert "pdmuxd limit show chat" in page
    file = (await browser.get("/ui/incidents?csv=incidents")).text
    assert file.splitlines()[0].startswith("began_at,tenant,missed")
    assert len(file.splitlines()) == 2


async def test_it_is_kept_and_found_by_tenant_cause_and_time(
    control_plane: ControlPlane, known: Telemetry, hand: HandClock
) -> None:
    call = AdminCalls(control_plane, telemetry=known)
    for tenant in ("chat", "docs"):
        refuse(known, hand, tenant, 5)
        pass_time(known, hand, 60)
    refuse(known, hand, "docs", 5)
    pass_time(known, hand, 1)

    async def found(query: str) -> list[tuple[str, str]]:
        answer = await call("GET", f"/api/v1/incidents?{query}")
        return [(one["tenant"], one["state"]) for one in answer.json()["incidents"]]

    assert await found("") == [("docs", "open"), ("chat", "over")]
    assert await found("state=over") == [("chat", "over")]
    assert await found("state=open") == await found("tenant=docs") == [("docs", "open")]
    assert await found("cause=queued") == await found("tenant=nobody%00") == []
    assert await found("limit=1") == [("docs", "open")]
    page = (await call("GET", "/api/v1/incidents?limit=1")).json()
    before = page["next_before"].replace("+", "%2B")
    assert await found(f"limit=1&before={before}") == [("chat", "over")]
    assert (await call("GET", "/api/v1/incidents/none-1")).status_code == 404
    assert (await call("GET", "/api/v1/incidents?state=maybe")).json()["field"] == "state"

    ended = IncidentStore(control_plane.store).end_left(datetime.now(UTC))
    assert [(one.tenant, one.ended_by, one.over_at) for one in ended] == [
        ("docs", "restart", ended[0].last_missed_at)
    ]
    other = Telemetry(clock=hand)
    other.incidents.restore(ended, hand())
    assert [one.incident_id for one in other.incidents.told(hand())[0]] == [ended[0].incident_id]
