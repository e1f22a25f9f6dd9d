"""Every request has one outcome, counted once: what was not served counts against the promise."""

from __future__ import annotations

import itertools

import pytest
from telemetry_feeds import HandClock, request_record, telemetry, tenants_event

from pdmuxd.controlplane.events.outcomes import Outcome, outcome_at_gateway
from pdmuxd.controlplane.telemetry.attainment import FIVE_MINUTES_S, ViolationCounts
from pdmuxd.controlplane.telemetry.judged import Delivered
from pdmuxd.controlplane.telemetry.settling import RECORD_WITHIN_S
from pdmuxd.controlplane.telemetry.slo_violations import Cause
from pdmuxd.controlplane.telemetry.telemetry import Telemetry


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def known(clock: HandClock) -> Telemetry:
    return telemetry(clock, chat=0.04)


def begin(known: Telemetry, request_id: str) -> None:
    known.on_begin(request_id, tenant="chat", path="/v1/completions")
    known.on_read(request_id, is_streamed=True, body_bytes=4000, read_s=0.0)
    known.on_sent(request_id)


def availability(known: Telemetry) -> ViolationCounts:
    return known.tenants["chat"].violations(known.clock(), FIVE_MINUTES_S).availability


@pytest.mark.parametrize(
    ("status", "end", "error", "outcome"),
    [
        (200, "", "", None),
        (200, "engine_lost", "", Outcome.LOST),
        (502, "engine_lost", "", Outcome.LOST),
        (200, "shutdown", "", Outcome.LOST),
        (200, "client_disconnected", "", Outcome.ABORTED),
        (499, "client_disconnected", "", Outcome.ABORTED),
        (504, "first_byte_timeout", "", Outcome.EXPIRED),
        (503, "", "max_wait", Outcome.EXPIRED),
        (503, "", "deadline_unreachable", Outcome.REFUSED),
        (503, "", "engine_starting", Outcome.REFUSED),
        (429, "", "node_limit", Outcome.REFUSED),
        (429, "", "tenant_limit", Outcome.LIMITED),
        (429, "", "requests_per_minute", Outcome.LIMITED),
        (400, "", "invalid_value", Outcome.INVALID),
        (500, "defect", "", Outcome.FAILED),
        (507, "", "", Outcome.FAILED),
    ],
)
def test_the_gateways_word_is_an_outcome(status: int, end: str, error: str, outcome: Outcome | None) -> None:
    assert outcome_at_gateway(status, end=end, error=error) is outcome


def test_a_tenant_whose_requests_are_refused_misses_its_promise(known: Telemetry) -> None:
    for number in range(60):
        begin(known, f"r{number}")
        known.on_request(request_record(request_id=f"r{number}"))
        known.on_answered(f"r{number}", status=200)
    for number in range(43):
        known.on_refused("chat", "tenant_limit", request_id=f"x{number}", path="/v1/completions", status=429)
    assert (availability(known).judged, availability(known).missed, availability(known).limited) == (
        103,
        43,
        43,
    )
    (load,) = tenants_event(known).tenants
    assert (load.verdict, load.asked, load.unserved, load.limited) == ("missed", 103, 43, 43)
    refused = known.requests.over()[-1]
    assert (refused.outcome, refused.error, refused.status) == (Outcome.LIMITED, "tenant_limit", 429)
    assert refused.violations[0].cause is Cause.LIMITED


def test_limits_of_the_tenant_raise_no_alarm_and_refusals_of_the_node_do(
    known: Telemetry, clock: HandClock
) -> None:
    def alarms(code: str) -> set[str]:
        for number in range(400):
            known.on_refused("chat", code, request_id=f"{code}{number}", path="/", status=429)
            clock.turn(0.05)
            known.watch(clock())
        return {alarm.kind for alarm in known.alarms.active() if alarm.tenant == "chat"}

    assert alarms("tenant_limit") == set()
    assert alarms("node_limit") == {"availability_burn"}


def test_a_stream_that_is_lost_with_its_engine_has_an_outcome(known: Telemetry, clock: HandClock) -> None:
    begin(known, "r1")
    known.on_first_byte("r1")
    known.on_answered("r1", status=200, delivered=Delivered(ttft_s=0.2), end="engine_lost")
    lifecycle = known.requests.find("r1")
    assert lifecycle is not None
    assert lifecycle.outcome is Outcome.LOST
    (violation,) = lifecycle.violations
    assert (violation.target, violation.text) == (
        "availability",
        "the engine was lost in the middle of its answer",
    )
    clock.turn(RECORD_WITHIN_S + 1)
    known.tick()
    assert (availability(known).judged, availability(known).missed) == (1, 1), "counted once"


@pytest.mark.parametrize(
    "order",
    # The gateway tells of the answer before it tells of the refusal.
    [
        order
        for order in itertools.permutations(("record", "answer", "refusal"))
        if order.index("answer") < order.index("refusal")
    ],
)
def test_a_request_that_the_engine_refused_is_counted_once_in_any_order(
    known: Telemetry, clock: HandClock, order: tuple[str, ...]
) -> None:
    begin(known, "r1")
    clock.turn(60.0)
    record = request_record(
        outcome="refused", cause="max_wait", queue_s=None, ttft_s=None, tbt_max_s=None, tbt_p99_s=None,
        tbt_gaps=0, tbt_gaps_met=0, tbt_counts=(), output_tokens=0,
    )  # fmt: skip
    tell = {
        "record": lambda: known.on_request(record),
        "answer": lambda: known.on_answered("r1", status=503, error="max_wait"),
        "refusal": lambda: known.on_refused("chat", "max_wait", request_id="r1", path="/", status=503),
    }
    for name in order:
        tell[name]()
    clock.turn(RECORD_WITHIN_S + 1)
    known.tick()
    assert known.tenants["chat"].outcomes == {Outcome.EXPIRED: 1}
    assert (availability(known).judged, availability(known).missed) == (1, 1)


@pytest.mark.parametrize("answered_first", [False, True])
def test_an_error_inside_a_stream_is_no_service(known: Telemetry, answered_first: bool) -> None:
    """The gateway passed on a whole answer with status 200: only the engine's record tells."""
    begin(known, "r1")
    ends = [
        lambda: known.on_request(request_record(outcome="failed")),
        lambda: known.on_answered("r1", status=200),
    ]
    for end in reversed(ends) if answered_first else ends:
        end()
    assert known.tenants["chat"].outcomes == {Outcome.FAILED: 1}


@pytest.mark.parametrize(
    ("status", "end", "error", "outcome"),
    [(499, "client_disconnected", "", Outcome.ABORTED), (400, "", "invalid_value", Outcome.INVALID)],
)
def test_what_is_the_clients_counts_neither_way(
    known: Telemetry, status: int, end: str, error: str, outcome: Outcome
) -> None:
    begin(known, "r1")
    known.on_answered("r1", status=status, end=end, error=error)
    assert known.tenants["chat"].outcomes == {outcome: 1}
    assert availability(known).judged == 0


def test_a_flood_of_refusals_does_not_push_out_what_was_served(known: Telemetry) -> None:
    begin(known, "r1")
    known.on_request(request_record())
    known.on_answered("r1", status=200)
    for number in range(5000):
        known.on_refused("chat", "tenant_limit", request_id=f"x{number}", path="/", status=429)
    assert known.requests.find("r1") is not None
    assert len(known.requests.over()) == 501
    assert known.tenants["chat"].outcomes == {Outcome.FINISHED: 1, Outcome.LIMITED: 5000}


def test_a_question_about_models_is_no_request_of_the_model(known: Telemetry) -> None:
    known.on_refused("chat", "engine_starting", status=503)
    assert known.tenants["chat"].outcomes == {}
