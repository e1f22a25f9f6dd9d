"""Who waits past a target counts as late now, whatever the requests that ended say."""

from __future__ import annotations

import pytest
from telemetry_feeds import HandClock, request_record, telemetry, tenants_event

from pdmuxd.controlplane.telemetry.attainment import MINUTE_S
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.controlplane.telemetry.waiting import OpenCounts
from pdmuxd.engine.link.messages import TenantQueue, TenantQueues

# Targets: 0.5 s, and 0.8 s more for each 1,000 new tokens; 4,000 bytes are taken for 1,000 tokens.
BODY_BYTES = 4000


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def known(clock: HandClock) -> Telemetry:
    return telemetry(clock, chat=0.04, batch=0.2)


def begin(known: Telemetry, *request_ids: str, is_streamed: bool = True, tenant: str = "chat") -> None:
    for request_id in request_ids:
        known.on_begin(request_id, tenant=tenant, path="/v1/completions")
        known.on_read(request_id, is_streamed=is_streamed, body_bytes=BODY_BYTES, read_s=0.0)
        known.on_sent(request_id)


def counts(known: Telemetry, tenant: str = "chat") -> OpenCounts:
    return known.open_counts(known.clock()).get(tenant, OpenCounts())


def ttft_attainment(known: Telemetry) -> float | None:
    (tenant,) = (one for one in tenants_event(known).tenants if one.tenant == "chat")
    return tenant.ttft_attainment_ratio


def test_a_request_is_late_now_when_it_waits_past_its_target(known: Telemetry, clock: HandClock) -> None:
    begin(known, "a")
    clock.turn(1.3)
    assert (counts(known).waiting, counts(known).late) == (1, 0)
    clock.turn(0.1)
    assert (counts(known).waiting, counts(known).late) == (1, 1)
    assert counts(known).oldest_wait_s == pytest.approx(1.4)
    known.on_first_byte("a")
    assert (counts(known).waiting, counts(known).late, counts(known).begun_late) == (0, 0, 1)
    known.on_request(request_record(request_id="a", ttft_s=1.4))
    known.on_answered("a", status=200)
    assert counts(known) == OpenCounts()


def test_an_overload_cannot_look_good_when_few_requests_end(known: Telemetry, clock: HandClock) -> None:
    begin(known, *(f"waits-{number}" for number in range(168)))
    known.on_request(request_record(request_id="in-time"))
    clock.turn(60.0)
    known.on_request(request_record(request_id="in-time-too"))
    event = tenants_event(known)
    (chat,) = event.tenants
    assert (chat.late_now, chat.waiting, chat.oldest_wait_ms) == (168, 168, 60_000)
    assert chat.ttft_attainment_ratio == pytest.approx(2 / 170, abs=1e-6)
    assert chat.verdict == "missed"
    assert chat.budget_left_ratio is not None
    assert chat.budget_left_ratio < -90
    stats = known.stats_event(clock())
    assert (stats.late_now, stats.waiting_total, stats.oldest_wait_ms) == (168, 168, 60_000)


def test_late_requests_raise_an_alarm_that_ends_when_they_are_served(
    known: Telemetry, clock: HandClock
) -> None:
    begin(known, "a", "b", "c")
    seen: list[tuple[str, str]] = []
    for _ in range(30):
        clock.turn(1.0)
        before = len(known.alarms.recent())
        known.watch(clock())
        new = known.alarms.recent()[: len(known.alarms.recent()) - before]
        seen += [(event.kind, event.state) for event in new if event.kind == "late_now"]
        if seen == [("late_now", "raised")]:
            for request_id in ("a", "b", "c"):
                known.on_answered(request_id, status=499)
    assert seen == [("late_now", "raised"), ("late_now", "cleared")]


def test_without_traffic_nothing_is_said_to_be_met(known: Telemetry, clock: HandClock) -> None:
    known.on_refused("chat", "tenant_limit")
    (chat,) = tenants_event(known).tenants
    assert (chat.verdict, chat.ttft_attainment_ratio, chat.tbt_attainment_ratio) == ("no_traffic", None, None)
    known.on_request(request_record())
    assert tenants_event(known).tenants[0].verdict == "met"


def test_a_request_is_judged_once_when_it_goes_from_open_to_ended(known: Telemetry, clock: HandClock) -> None:
    begin(known, "late", "in-time")
    known.on_first_byte("in-time")
    clock.turn(2.0)
    assert ttft_attainment(known) == 0.5
    known.on_first_byte("late")
    assert ttft_attainment(known) == 0.5
    for request_id, ttft_s in (("late", 2.0), ("in-time", 0.1)):
        known.on_request(request_record(request_id=request_id, ttft_s=ttft_s))
        known.on_answered(request_id, status=200)
    ttft, *_ = known.tenants["chat"].violations(clock(), MINUTE_S, counts(known))
    assert (ttft.judged, ttft.missed) == (2, 1)


def test_a_body_that_comes_slowly_is_not_late(known: Telemetry, clock: HandClock) -> None:
    known.on_begin("slow", tenant="chat", path="/v1/completions")
    clock.turn(30.0)
    assert (counts(known).waiting, counts(known).late) == (1, 0)
    known.on_read("slow", is_streamed=True, body_bytes=BODY_BYTES, read_s=30.0)
    clock.turn(1.0)
    assert counts(known).late == 0
    clock.turn(1.0)
    assert counts(known).late == 1, "also while the gateway itself keeps it waiting"


def test_the_target_of_a_long_prompt_is_learned_from_those_before(clock: HandClock) -> None:
    known = telemetry(clock)
    known.expected.learn("chat", 10_000, BODY_BYTES)
    begin(known, "second")
    clock.turn(8.0)
    assert counts(known).late == 0, "10,000 tokens may take 8.5 s"
    clock.turn(1.0)
    assert counts(known).late == 1


def report(waiting: int, late: int, oldest_wait_s: float) -> TenantQueues:
    queue = TenantQueue(tenant="chat", waiting=waiting, late=late, oldest_wait_s=oldest_wait_s)
    return TenantQueues(queues=(queue,))


def test_answers_that_are_not_streamed_wait_as_long_as_the_engine_says(
    known: Telemetry, clock: HandClock
) -> None:
    begin(known, "a", "b", "c", is_streamed=False)
    clock.turn(5.0)
    known.on_message(report(waiting=2, late=1, oldest_wait_s=4.0))
    assert (counts(known).waiting, counts(known).late, counts(known).oldest_wait_s) == (2, 1, 4.0)
    begin(known, "streamed")
    assert counts(known).waiting == 2, "the engine counts that one too"
    known.on_message(TenantQueues(queues=()))
    assert (counts(known).waiting, counts(known).late) == (1, 0)


def test_all_answers_wait_when_the_engine_says_nothing_any_more(known: Telemetry, clock: HandClock) -> None:
    begin(known, "a", is_streamed=False)
    known.on_message(TenantQueues(queues=()))
    clock.turn(1.0)
    assert counts(known).waiting == 0
    clock.turn(5.0)
    assert (counts(known).waiting, counts(known).late) == (1, 1)


def test_tenants_are_told_apart_and_the_late_ones_come_first(known: Telemetry, clock: HandClock) -> None:
    begin(known, "a", tenant="batch")
    begin(known, "b", "c")
    known.in_flight = lambda: {"chat": 2, "batch": 1}
    clock.turn(9.0)
    known.on_first_byte("b")
    known.on_first_byte("c")
    assert [(one.tenant, one.late_now) for one in tenants_event(known).tenants] == [
        ("batch", 1),
        ("chat", 0),
    ]
