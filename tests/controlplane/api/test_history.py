"""The history over REST: to operators all of it, to a tenant's key what is its own."""

from __future__ import annotations

import csv
import io
import time
from datetime import UTC, datetime

import pytest
from stores import AdminCalls
from telemetry_feeds import HandClock, heartbeat, request_record, step

from pdmuxd.controlplane.history.history import History
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.telemetry.telemetry import Telemetry


@pytest.fixture
def hand() -> HandClock:
    hand = HandClock()
    hand.now_s = time.time() // 3600 * 3600 - 1800.0
    return hand


@pytest.fixture
def known(hand: HandClock, control_plane: ControlPlane) -> Telemetry:
    known = Telemetry(clock=hand)
    for name in ("chat", "batch"):
        control_plane.create_tenant(name)
    control_plane.refresh()
    known.on_directory(control_plane.directory)
    return known


@pytest.fixture
def call(control_plane: ControlPlane, known: Telemetry) -> AdminCalls:
    history = History(known.recorder, control_plane.store)
    return AdminCalls(control_plane, telemetry=known, history=history)


def served(known: Telemetry, hand: HandClock, *, minutes: int = 3) -> None:
    """In each minute two requests of `chat`, one of them late, one of `batch`, and one refused."""
    known.on_message(heartbeat(policy="auto"))
    for minute in range(minutes):
        for tenant, ttft_s in (("chat", 0.3), ("chat", 9.0), ("batch", 0.3)):
            rid = f"{minute}-{tenant}-{ttft_s}"
            known.on_begin(rid, tenant=tenant, path="/v1/completions")
            record = request_record(
                request_id=rid, tenant=tenant, ttft_s=ttft_s, new_tokens=900, reused_tokens=100
            )
            known.on_request(record)
            known.on_answered(rid, status=200)
        known.on_refused("chat", "tenant_limit")
        known.on_message(step(mode="split", reason="best_fit", measured_step_s=0.02))
        hand.turn(60.0)
        known.tick()


def iso(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def test_a_tenants_history_is_shown_by_the_minute(
    call: AdminCalls, known: Telemetry, hand: HandClock
) -> None:
    start_s = hand()
    served(known, hand)
    body = (await call("GET", f"/api/v1/history?tenant=chat&from={iso(start_s)}&to={iso(hand())}")).json()
    assert (body["tenant"], body["step_s"]) == ("chat", 60)
    assert body["at"] == [iso(start_s + 60 * minute) for minute in range(3)]
    columns = body["columns"]
    assert {name: columns[name] for name in ("arrivals", "ttft_judged", "ttft_missed", "refused")} == {
        "arrivals": [2, 2, 2],
        "ttft_judged": [2, 2, 2],
        "ttft_missed": [1, 1, 1],
        "refused": [1, 1, 1],
    }
    assert columns["worst_ttft_ms"] == [9000] * 3
    assert {len(column) for column in columns.values()} == {3}
    node = (await call("GET", f"/api/v1/history?from={iso(start_s)}&to={iso(hand())}&step_s=3600")).json()
    assert (node["tenant"], node["columns"]["arrivals"]) == (None, [9])


async def test_what_happened_meanwhile_is_marked(
    call: AdminCalls, known: Telemetry, hand: HandClock, control_plane: ControlPlane
) -> None:
    start_s = hand()
    known.on_message(heartbeat(policy="auto"))
    known.on_message(heartbeat(policy="muxwise"))
    known.on_state("down", "killed")
    body = {"ttft_fixed_ms": 1000, "ttft_per_1k_new_tokens_ms": 1000, "tbt_ms": 30, "attainment_ratio": 0.99}
    assert (await call("PUT", "/api/v1/tenants/chat/slo", json=body)).status_code == 200
    known.on_directory(control_plane.directory)
    hand.turn(1.0)
    await call("GET", "/api/v1/history/decisions")  # stores what is not stored yet
    query = f"from={iso(start_s - 60)}&to={iso(hand() + 60)}"
    marks = (await call("GET", f"/api/v1/history?{query}")).json()["marks"]
    assert [(mark["kind"], mark["tenant"], mark["text"]) for mark in marks] == [
        ("policy", None, "the policy is muxwise, it was auto"),
        ("engine", None, "the engine is down: killed"),
        ("slo", "chat", "chat: TBT 50 to 30 ms"),
    ]


async def test_decisions_are_summed_up(call: AdminCalls, known: Telemetry, hand: HandClock) -> None:
    start_s = hand()
    served(known, hand)
    query = f"from={iso(start_s)}&to={iso(hand())}"
    minutes = (await call("GET", f"/api/v1/history/decisions?{query}")).json()["summaries"]
    assert [(one["at"], one["reason"], one["count"], one["time_ms"]) for one in minutes] == [
        (iso(start_s + 60 * minute), "best_fit", 1, 20) for minute in range(3)
    ]
    (hour,) = (await call("GET", f"/api/v1/history/decisions?{query}&step_s=3600")).json()["summaries"]
    assert (hour["count"], hour["prefill_tokens"]) == (3, 3 * 2048)
    assert (await call("GET", f"/api/v1/history/decisions?{query}&step_s=120")).json()["field"] == "step_s"


async def test_alarms_have_a_beginning_and_an_end(
    call: AdminCalls, known: Telemetry, hand: HandClock
) -> None:
    for number in range(3):
        known.on_begin(str(number), tenant="chat", path="/generate")
        known.on_read(str(number), is_streamed=True, body_bytes=100, read_s=0.0)
    for second in range(40):
        hand.turn(1.0)
        known.watch(hand())
        if second == 20:
            for number in range(3):
                known.on_answered(str(number), status=499)
    (late,) = (await call("GET", "/api/v1/alarms/history?kind=late_now")).json()["alarms"]
    assert (late["tenant"], late["severity"], late["ended_by"]) == ("chat", "warning", "cleared")
    assert late["began_at"] < late["raised_at"] < late["ended_at"]
    down = (await call("GET", "/api/v1/alarms/history?kind=engine_down")).json()["alarms"]
    assert [(one["ended_at"], one["ended_by"]) for one in down] == [(None, None)]
    page = (await call("GET", "/api/v1/alarms/history?limit=1")).json()
    older = (await call("GET", f"/api/v1/alarms/history?limit=1&before={page['next_before']}")).json()
    assert page["alarms"][0]["alarm_id"] > older["alarms"][0]["alarm_id"]


async def test_usage_is_told_as_json_and_as_csv(call: AdminCalls, known: Telemetry, hand: HandClock) -> None:
    start_s = hand()
    served(known, hand)
    query = f"from={iso(start_s)}&to={iso(start_s + 3600)}"
    lines = (await call("GET", f"/api/v1/usage?{query}")).json()["lines"]
    assert [(line["tenant"], line["requests"], line["refused_by_cause"]) for line in lines] == [
        ("batch", 3, {}),
        ("chat", 6, {"tenant_limit": 3}),
    ]
    chat = lines[1]
    assert (chat["prompt_tokens"], chat["cached_tokens"], chat["prefill_tokens"]) == (6000, 600, 5400)
    assert chat["ttft_attainment_ratio"] == 0.5
    answer = await call("GET", f"/api/v1/usage?{query}&format=csv&tenant=chat")
    assert answer.headers["Content-Type"].startswith("text/csv")
    (row,) = csv.DictReader(io.StringIO(answer.text))
    assert (row["tenant"], row["requests"], row["refused_by_cause"]) == ("chat", "6", "tenant_limit=3")
    assert row["from"] == datetime.fromtimestamp(start_s, UTC).isoformat()


async def test_usage_of_a_deleted_tenant_is_still_told_to_operators(
    call: AdminCalls, known: Telemetry, hand: HandClock, control_plane: ControlPlane
) -> None:
    start_s = hand()
    served(known, hand)
    control_plane.delete_tenant("chat")
    known.on_directory(control_plane.directory)
    query = f"from={iso(start_s)}&to={iso(start_s + 3600)}&tenant=chat"
    (line,) = (await call("GET", f"/api/v1/usage?{query}")).json()["lines"]
    assert line["requests"] == 6
    assert (await call("GET", "/api/v1/history?tenant=chat")).status_code == 404


async def test_a_key_reads_its_own_history_and_usage_only(
    call: AdminCalls, known: Telemetry, hand: HandClock, control_plane: ControlPlane
) -> None:
    served(known, hand)
    secret = control_plane.keys.issue("chat", scopes=("read",)).secret
    for path in ("history", "usage"):
        assert (await call("GET", f"/api/v1/{path}?tenant=chat", token=secret)).status_code == 200
        assert (await call("GET", f"/api/v1/{path}?tenant=batch", token=secret)).status_code == 403
        assert (await call("GET", f"/api/v1/{path}", token=secret)).status_code == 403
    for path in ("history/decisions", "alarms/history"):
        assert (await call("GET", f"/api/v1/{path}?", token=secret)).status_code == 403


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("history?step_s=0", "step_s"),
        ("history?step_s=61", "step_s"),
        ("history?step_s=1&from=2026-01-01T00:00:00Z&to=2026-01-02T00:00:00Z", "step_s"),
        ("history?from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z", "to"),
        ("history?from=2026-01-02T00:00:00", "from"),
        ("history?to=0001-01-01T00:00:00%2B14:00", "to"),
        ("usage?from=2026-01-01T00:30:00Z&to=2026-01-02T00:00:00Z", "from"),
        ("usage?from=2020-01-01T00:00:00Z", "from"),
        ("usage?format=xml", "format"),
        ("alarms/history?before=0", "before"),
    ],
)
async def test_a_wrong_question_is_named(call: AdminCalls, query: str, field: str) -> None:
    answer = await call("GET", f"/api/v1/{query}")
    assert (answer.status_code, answer.json()["field"]) == (422, field)


async def test_an_unknown_tenant_is_not_found(call: AdminCalls) -> None:
    assert (await call("GET", "/api/v1/history?tenant=nobody")).status_code == 404
    assert (await call("GET", "/api/v1/usage?tenant=nobody")).json()["lines"] == []
