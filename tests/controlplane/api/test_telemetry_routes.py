"""The read routes: what is kept is shown, filtered as asked; wrong questions are named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from stores import AdminCalls
from telemetry_feeds import HELLO, HandClock, directory, heartbeat, request_record, step, telemetry

from pdmuxd.controlplane.events.buffer import EventId
from pdmuxd.controlplane.node.engine_status import NO_ENGINE
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.telemetry.telemetry import Telemetry


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def known(clock: HandClock) -> Telemetry:
    made = telemetry(clock, chat=0.04, batch=0.2)
    stats = heartbeat(uptime_s=10.0, partition_id=1, prefill_sms=112, decode_sms=20, switches=3)
    made.status = lambda: replace(NO_ENGINE, state="serving", hello=HELLO, stats=stats)
    return made


@pytest.fixture
def call(control_plane: ControlPlane, known: Telemetry) -> AdminCalls:
    return AdminCalls(control_plane, telemetry=known)


async def test_decisions_are_filtered_as_asked(call: AdminCalls, known: Telemetry, clock: HandClock) -> None:
    for number, reason in enumerate(("best_fit", "decode_alone", "best_fit", "fused_fits")):
        known.on_message(step(step=number, reason=reason, now_s=float(number)))
        clock.turn(1.0)

    async def steps(query: str) -> list[int]:
        return [one["step"] for one in (await call("GET", f"/api/v1/decisions?{query}")).json()["decisions"]]

    assert await steps("") == [3, 2, 1, 0]
    assert await steps("reason=best_fit") == [2, 0]
    assert await steps("reason=best_fit&limit=1") == [2]
    assert await steps("after_seq=3") == [3]
    assert await steps("since=2026-01-31T12:00:02Z") == [3, 2]
    assert await steps("mode=fused") == []
    assert (await call("GET", "/api/v1/decisions")).json()["total_seen"] == 4


async def test_decisions_that_leave_some_out_are_found_when_they_are_asked_for(
    call: AdminCalls, known: Telemetry
) -> None:
    for number, out in enumerate((0, 12, 0)):
        known.on_message(step(step=number, sitting_out=out))
    (found,) = (await call("GET", "/api/v1/decisions?sitting_out=true&reason=best_fit")).json()["decisions"]
    assert (found["step"], found["sitting_out"]) == (1, 12)
    assert found["sitting_out_for"] == {"tenant": "chat", "tbt_ms": 40}
    rest = (await call("GET", "/api/v1/decisions?sitting_out=false")).json()["decisions"]
    assert [one["step"] for one in rest] == [2, 0]
    assert rest[0]["sitting_out_for"] is None


async def test_a_tenants_decisions_are_those_while_it_had_a_request(
    call: AdminCalls, known: Telemetry, clock: HandClock
) -> None:
    for number in range(6):
        if number == 2:
            known.on_begin("r1", tenant="chat", path="/v1/completions")
        known.on_message(step(step=number, now_s=float(number)))
        clock.turn(0.5)
        if number == 3:
            known.on_request(request_record())
        clock.turn(0.5)
    answer = (await call("GET", "/api/v1/decisions?tenant=chat")).json()
    assert [one["step"] for one in answer["decisions"]] == [3, 2]
    assert (await call("GET", "/api/v1/decisions?tenant=batch")).json()["decisions"] == []


async def test_a_request_is_shown_from_its_arrival_to_its_end(
    call: AdminCalls, known: Telemetry, clock: HandClock
) -> None:
    known.on_begin("r1", tenant="chat", path="/v1/completions")
    assert (await call("GET", "/api/v1/requests/r1")).json()["state"] == "in_flight"
    assert len((await call("GET", "/api/v1/requests?in_flight=true")).json()["requests"]) == 1
    for number in range(3):
        clock.turn(0.25)
        known.on_message(step(step=number, now_s=0.25 * number, tbt_slack_s=0.01 * number))
    clock.turn(0.25)
    known.on_request(request_record(queue_s=0.9, ttft_s=1.0, ttft_target_s=0.5))
    known.on_answered("r1", status=200)

    lifecycle = (await call("GET", "/api/v1/requests/r1")).json()

    assert (lifecycle["state"], lifecycle["status"], lifecycle["outcome"]) == ("ended", 200, "finished")
    assert [(point["what"], point["at_ms"]) for point in lifecycle["timeline"]] == [
        ("arrived", 0),
        ("prefill_started", 900),
        ("first_token", 1000),
        ("ended", 1000),
    ]
    assert (lifecycle["queue_ms"], lifecycle["prefill_ms"], lifecycle["ttft_ms"]) == (900, 100, 1000)
    assert [
        (violation["target"], violation["by_ms"], violation["cause"]) for violation in lifecycle["missed"]
    ] == [("ttft", 500, "queued")]
    assert lifecycle["decisions"] == {
        "count": 3,
        "by_reason": {"best_fit": 3},
        "by_partition_id": {"1": 3},
        "min_slack_ms": 0,
    }
    assert (await call("GET", "/api/v1/requests?in_flight=true")).json()["requests"] == []


async def test_requests_are_filtered_as_asked(call: AdminCalls, known: Telemetry) -> None:
    known.on_request(request_record(request_id="good"))
    known.on_request(request_record(request_id="late", ttft_s=9.0))
    known.on_request(request_record(request_id="gone", tenant="batch", outcome="aborted"))

    async def ids(query: str) -> list[str]:
        answer = (await call("GET", f"/api/v1/requests?{query}")).json()
        return [one["request_id"] for one in answer["requests"]]

    assert await ids("") == ["gone", "late", "good"]
    assert await ids("missed=true") == ["late"]
    assert await ids("missed=false&tenant=chat") == ["good"]
    assert await ids("outcome=aborted") == ["gone"]
    assert await ids("limit=1") == ["gone"]


async def test_attainment_is_shown_by_tenant_and_window(call: AdminCalls, known: Telemetry) -> None:
    for index in range(10):
        known.on_request(request_record(ttft_s=9.0 if index == 0 else 0.3))
    known.on_refused("chat", "tenant_limit")
    body = (await call("GET", "/api/v1/attainment")).json()
    assert [one["tenant"] for one in body["tenants"]] == ["batch", "chat"]
    chat = body["tenants"][1]
    assert (chat["requests"], chat["refused"], chat["budget_left_ratio"]) == (10, 1, -9)
    minute, hour, day = 60_000, 3_600_000, 86_400_000
    wanted = [minute, 5 * minute, hour, day, 30 * day]
    assert [one["window_ms"] for one in chat["ttft"]] == body["windows_ms"] == wanted
    for window in chat["ttft"]:
        assert (window["requests"], window["judged"], window["missed"]) == (10, 10, 1)
        assert (window["attainment_ratio"], window["burn"], window["budget_left_ratio"]) == (0.9, 10, -9)
    for window in chat["tbt"]:
        assert (window["requests"], window["judged"], window["missed"]) == (10, 100, 0), "by gap"
    assert chat["good"] == {"ended": 10, "delivered": 9, "by_steps": 9, "forgiven": 9}
    assert body["tenants"][0]["ttft"][0]["attainment_ratio"] is None
    assert len((await call("GET", "/api/v1/attainment?tenant=chat")).json()["tenants"]) == 1


async def test_attainment_comes_in_pages_with_the_totals_of_all(call: AdminCalls, known: Telemetry) -> None:
    known.on_request(request_record(ttft_s=9.0))
    known.watch(known.clock())
    first = await call("GET", "/api/v1/attainment?limit=1")
    assert [one["tenant"] for one in first.json()["tenants"]] == ["batch"]
    assert first.headers["Link"] == '</api/v1/attainment?limit=1&after=batch>; rel="next"'
    second = (await call("GET", "/api/v1/attainment?limit=1&after=batch")).json()
    assert [one["tenant"] for one in second["tenants"]] == ["chat"]
    nothing = (await call("GET", "/api/v1/attainment?limit=0")).json()
    totals = nothing["totals"]
    assert (nothing["tenants"], totals) == ([], first.json()["totals"])
    assert (totals["tenants"], totals["active"], totals["met"], totals["missed"]) == (2, 1, 0, 1)
    assert totals["requests"] == 1


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("active=true", ["chat"]),
        ("active=false", ["batch", "chat"]),
        ("q=ATC", ["batch"]),
        ("q=nothing", []),
        ("class=standard", ["batch", "chat"]),
        ("class=batch", []),
        ("state=missed", ["chat"]),
        ("state=no_traffic", ["batch"]),
        ("state=met", []),
        ("state=missed&q=batch", []),
        ("tenant=chat&state=met", []),
        ("after=zzz", []),
    ],
)
async def test_only_tenants_that_are_asked_for_are_shown(
    call: AdminCalls, known: Telemetry, query: str, names: list[str]
) -> None:
    known.on_request(request_record(ttft_s=9.0))
    known.watch(known.clock())
    body = (await call("GET", f"/api/v1/attainment?{query}")).json()
    assert [one["tenant"] for one in body["tenants"]] == names


async def test_the_time_of_all_groups_adds_up(call: AdminCalls, known: Telemetry) -> None:
    known.on_message(step(prefill_sms=112, decode_sms=20, measured_step_s=2.0))
    known.on_message(step(mode="fused", partition_id=0, measured_step_s=3.0))
    # What ended beside decode has run beside steps, which have its time.
    ended = {"reason": "prefill_finished", "decode_sms": 0, "decode_bs": 0, "decode_steps": 0}
    known.on_message(step(prefill_sms=112, measured_step_s=2.0, **ended))
    body = (await call("GET", "/api/v1/partitions")).json()
    assert [(one["partition_id"], one["time_ms"], one["in_force"]) for one in body["groups"]] == [
        (0, 0, False),
        (1, 2000, True),
        (2, 0, False),
        (3, 0, False),
    ]
    assert (body["fused"]["time_ms"], body["idle"]["time_ms"], body["switches"]) == (3000, 5000, 3)
    ratios = [one["time_ratio"] for one in (*body["groups"], body["fused"], body["idle"])]
    assert sum(ratios) == pytest.approx(1.0)


async def test_the_guard_and_drift_are_those_of_the_decisions(call: AdminCalls, known: Telemetry) -> None:
    known.on_message(step(guard_ratio=1.3, measured_decode_s=0.026))
    known.on_message(step(prefill_new_tokens=0, prefill_layers=0, measured_step_s=0.024))
    (cell,) = (await call("GET", "/api/v1/guard")).json()["cells"]
    assert (cell["decode_sms"], cell["ratio"], cell["observed_max_ratio"]) == (36, 1.3, pytest.approx(1.3))
    drift = (await call("GET", "/api/v1/drift")).json()
    assert [(one["work"], one["sms"], one["p50_ratio"]) for one in drift["pairs"]] == [("decode", 36, 1.2)]
    assert drift["alarm"] is False  # of a single sample


@pytest.mark.parametrize(
    ("path", "status", "field"),
    [
        ("decisions?reason=luck", 422, "reason"),
        ("decisions?mode=turbo", 422, "mode"),
        ("decisions?limit=0", 422, "limit"),
        ("decisions?since=yesterday", 422, "since"),
        ("requests?outcome=good", 422, "outcome"),
        ("requests/nobody", 404, None),
        ("attainment?tenant=nobody", 404, None),
        ("attainment?limit=501", 422, "limit"),
        ("attainment?state=late", 422, "state"),
        ("attainment?class=best", 422, "class"),
        ("attainment?active=maybe", 422, "active"),
        ("attainment?q=" + 64 * "a", 422, "q"),
        ("engine/log?lines=0", 422, "lines"),
        ("events?types=stats,weather", 422, "types"),
        ("events?after=yesterday", 422, "after"),
    ],
)
async def test_what_is_wrong_is_named_when_a_question_is(
    call: AdminCalls, path: str, status: int, field: str | None
) -> None:
    answer = await call("GET", f"/api/v1/{path}")
    assert (answer.status_code, answer.json()["field"]) == (status, field)


async def test_one_stream_too_many_is_refused(call: AdminCalls, known: Telemetry) -> None:
    known.events.clients = 64
    answer = await call("GET", "/api/v1/events")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert answer.json()["type"] == "urn:pdmuxd:problem:too-many-clients"


async def test_the_header_wins_when_a_place_is_given_twice(call: AdminCalls, known: Telemetry) -> None:
    known.tick()
    known.tick()
    head = EventId(session=known.events.session, number=known.events.head)
    known.events.close()
    answer = await call("GET", f"/api/v1/events?after={head.session}-0", headers={"Last-Event-ID": str(head)})
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    assert "event: stats" not in answer.text
    assert "event: bye" in answer.text


async def test_the_end_of_the_log_is_shown(control_plane: ControlPlane, tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    call = AdminCalls(control_plane, engine_log=path)
    assert (await call("GET", "/api/v1/engine/log")).json()["lines"] == []
    path.write_bytes(b"".join(b"line %d\n" % number for number in range(300)) + b"\xff\n")
    body = (await call("GET", "/api/v1/engine/log?lines=2")).json()
    assert body == {"path": str(path), "lines": ["line 299", "\ufffd"], "truncated": True}
    assert (await call("GET", "/api/v1/engine/log?lines=301")).json()["truncated"] is False


async def test_a_changes_effect_is_told_of_its_tenant_and_of_what_concerns_all(
    call: AdminCalls, known: Telemetry, clock: HandClock
) -> None:
    known.on_request(request_record(tenant="batch"))
    known.on_message(step())
    known.on_directory(directory(2, chat=0.03, batch=0.2))
    clock.turn(61.0)
    known.on_request(request_record(request_id="r2", tenant="batch", ttft_s=2.0))
    answer = await call("GET", "/api/v1/effects?tenant=chat")
    assert answer.status_code == 200
    (effect,) = answer.json()["effects"]
    assert (effect["state"], effect["text"], effect["mixed"]) == ("measuring", "TBT 40 to 30 ms", False)
    assert effect["before"]["sms"]["prefill_sms"] == 96
    assert effect["before"]["tenants"][0]["ttft_attainment_ratio"] == 1
    assert effect["after"]["length_ms"] == 61_000
    assert [one["tenant"] for one in effect["after"]["tenants"]] == ["batch"]
    assert effect["after"]["tenants"][0]["ttft_attainment_ratio"] == 0
    assert (await call("GET", "/api/v1/effects?tenant=batch")).json()["effects"] == []
    assert (await call("GET", "/api/v1/effects?tenant=nobody")).status_code == 404
    assert (await call("GET", "/api/v1/effects?limit=0")).status_code == 422
