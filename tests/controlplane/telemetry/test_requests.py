"""A request's life from the gateway's and the engine's words, and why it missed a target."""

from __future__ import annotations

import pytest
from telemetry_feeds import START_S, HandClock, request_record, step, telemetry

from pdmuxd.controlplane.telemetry.decisions import Decisions
from pdmuxd.controlplane.telemetry.judged import Delivered
from pdmuxd.controlplane.telemetry.requests import RequestHistory
from pdmuxd.controlplane.telemetry.slo_violations import Cause, SplitInForce
from pdmuxd.controlplane.telemetry.telemetry import Telemetry

LATE_GAP = {"tbt_max_s": 0.07, "tbt_gaps_met": 9}


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def known(clock: HandClock) -> Telemetry:
    return telemetry(clock)


@pytest.mark.parametrize("answered_first", [False, True])
def test_a_life_is_whole_when_its_two_ends_come_in_either_order(
    known: Telemetry, clock: HandClock, answered_first: bool
) -> None:
    known.on_begin("r1", tenant="chat", path="/v1/completions")
    clock.turn(1.0)
    ends = [lambda: known.on_request(request_record()), lambda: known.on_answered("r1", status=200)]
    for end in reversed(ends) if answered_first else ends:
        end()

    lifecycle = known.requests.find("r1")

    assert lifecycle is not None
    assert (lifecycle.status, lifecycle.arrived_s, lifecycle.ended_s) == (200, START_S, START_S + 1.0)
    assert lifecycle.record == request_record()
    assert known.requests.in_flight() == ()
    assert [each.request_id for each in known.requests.ended()] == ["r1"]


def test_a_request_waits_until_its_answer_begins(known: Telemetry) -> None:
    for request_id in ("a", "b", "c"):
        known.on_begin(request_id, tenant="chat", path="/generate")
    known.on_first_byte("a")
    known.on_answered("b", status=499)
    assert known.open_counts(known.clock())["chat"].waiting == 1
    assert [lifecycle.request_id for lifecycle in known.requests.in_flight()] == ["a", "c"]


def test_the_oldest_are_forgotten_when_there_are_too_many() -> None:
    lifecycles = RequestHistory(Decisions(), kept=3)
    for number in range(5):
        lifecycles.on_record(request_record(request_id=str(number)), START_S)
    assert [lifecycle.request_id for lifecycle in lifecycles.ended()] == ["2", "3", "4"]
    assert lifecycles.find("1") is None


def test_nothing_was_missed_when_both_targets_were_met(known: Telemetry) -> None:
    assert known.requests.on_record(request_record(), START_S).violations == ()


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"queue_s": 1.5, "ttft_s": 1.6}, Cause.QUEUED),
        ({"queue_s": 0.1, "ttft_s": 1.6}, Cause.PREFILL_SLOW),
        ({"queue_s": 0.1, "ttft_s": 1.6, "retractions": 2}, Cause.RETRACTED),
    ],
)
def test_a_late_first_token_has_its_cause_when_it_is_known(
    known: Telemetry, changes: dict[str, float], cause: Cause
) -> None:
    (violation,) = known.requests.on_record(request_record(**changes), START_S).violations
    assert (violation.target, violation.cause) == ("ttft", cause)
    assert violation.by_s == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("during", "cause"),
    [
        ({"reason": "tbt_infeasible", "tbt_slack_s": -0.01}, Cause.NO_SPLIT_MEETS_TARGET),
        ({"decode_bs": 0, "measured_step_s": 0.06}, Cause.PREFILL_BETWEEN_TOKENS),
        ({"measured_step_s": 0.07}, Cause.SLOWER_THAN_PREDICTED),
        ({}, Cause.UNKNOWN),
    ],
)
def test_a_long_gap_has_its_cause_when_a_decision_meanwhile_tells(
    known: Telemetry, clock: HandClock, during: dict[str, object], cause: Cause
) -> None:
    known.on_begin("r1", tenant="chat", path="/v1/completions")
    clock.turn(1.0)
    known.on_message(step(**during))
    clock.turn(1.0)
    known.on_request(request_record(**LATE_GAP))
    lifecycle = known.requests.find("r1")
    assert lifecycle is not None
    (violation,) = lifecycle.violations
    assert (violation.target, violation.cause) == ("tbt", cause)
    assert violation.text.startswith("1 of 10 gap was too long, the longest by 30 ms: ")


def test_a_decision_before_the_first_token_is_no_cause_of_a_gap(known: Telemetry, clock: HandClock) -> None:
    known.on_begin("r1", tenant="chat", path="/v1/completions")
    clock.turn(0.1)
    known.on_message(step(reason="tbt_infeasible", tbt_slack_s=-0.01))
    clock.turn(2.0)
    known.on_request(request_record(**LATE_GAP))
    lifecycle = known.requests.find("r1")
    assert lifecycle is not None
    assert lifecycle.violations[0].cause == Cause.UNKNOWN


@pytest.mark.parametrize("answered_first", [False, True])
def test_the_host_was_late_when_the_engine_was_in_time_and_the_client_was_not_served_so(
    known: Telemetry, clock: HandClock, answered_first: bool
) -> None:
    known.on_begin("r1", tenant="chat", path="/v1/completions")
    delivered = Delivered(ttft_s=1.5, gaps_missed=2, gap_max_s=0.05)
    ends = [
        lambda: known.on_request(request_record()),
        lambda: known.on_answered("r1", status=200, delivered=delivered),
    ]
    for end in reversed(ends) if answered_first else ends:
        end()
    lifecycle = known.requests.find("r1")
    assert lifecycle is not None
    assert [(each.target, each.cause) for each in lifecycle.violations] == [
        ("ttft", Cause.HOST_LATE),
        ("tbt", Cause.HOST_LATE),
    ]
    first, gaps = lifecycle.violations
    assert first.by_s == pytest.approx(0.2)
    assert first.text == "made after 300 ms, delivered after 1.50 s, allowed 1.30 s"
    assert gaps.text.startswith("2 of 10 gaps were too long, the longest by 10 ms")


def test_the_host_is_not_blamed_when_the_engine_was_late_too(known: Telemetry) -> None:
    known.on_begin("r1", tenant="chat", path="/v1/completions")
    known.on_answered("r1", status=200, delivered=Delivered(ttft_s=1.7))
    known.on_request(request_record(queue_s=1.5, ttft_s=1.6))
    lifecycle = known.requests.find("r1")
    assert lifecycle is not None
    assert [each.cause for each in lifecycle.violations] == [Cause.QUEUED]


NO_TOKEN = {"ttft_s": None, "queue_s": None, "output_tokens": 0, "tbt_gaps": 0, "tbt_gaps_met": 0}
NO_TOKEN |= {"tbt_max_s": None, "tbt_p99_s": None, "tbt_counts": ()}


@pytest.mark.parametrize("answered_first", [False, True])
@pytest.mark.parametrize(
    ("ended", "cause", "text"),
    [
        (
            {"outcome": "refused", "cause": "max_wait"},
            Cause.QUEUED,
            "waited 60.00 s in the engine's queue, allowed 1.30 s: refused, since it had waited for as long "
            "as it may (max_wait)",
        ),
        (
            {"outcome": "aborted"},
            Cause.QUEUED,
            "aborted after 60.00 s, allowed 1.30 s: its prefill had not begun",
        ),
        (
            {"outcome": "failed", "queue_s": 2.0},
            Cause.UNKNOWN,
            "failed after 60.00 s, allowed 1.30 s: its prefill had begun after 2.00 s and was not done; not "
            "explained",
        ),
    ],
)
def test_the_host_is_not_blamed_when_no_token_was_made(
    known: Telemetry,
    clock: HandClock,
    answered_first: bool,
    ended: dict[str, object],
    cause: Cause,
    text: str,
) -> None:
    known.on_begin("r1", tenant="chat", path="/v1/completions")
    clock.turn(60.0)
    ends = [
        lambda: known.on_request(request_record(**(NO_TOKEN | ended))),
        # A stream that ended with an error in its body: its first byte was no token.
        lambda: known.on_answered("r1", status=200, delivered=Delivered(ttft_s=60.0)),
    ]
    for end in reversed(ends) if answered_first else ends:
        end()
    lifecycle = known.requests.find("r1")
    assert lifecycle is not None
    (violation,) = (each for each in lifecycle.violations if each.target != "availability")
    assert (violation.target, violation.cause, violation.text) == ("ttft", cause, text)
    assert violation.by_s == pytest.approx(58.7)


def test_a_request_that_ended_before_its_target_passed_missed_nothing(
    known: Telemetry, clock: HandClock
) -> None:
    known.on_begin("r1", tenant="chat", path="/v1/completions")
    clock.turn(1.0)
    known.on_request(request_record(**NO_TOKEN, outcome="aborted"))
    known.on_answered("r1", status=499)
    lifecycle = known.requests.find("r1")
    assert lifecycle is not None
    assert lifecycle.violations == ()


def test_the_split_is_named_when_its_decisions_are_to_blame(known: Telemetry, clock: HandClock) -> None:
    known.on_begin("r1", tenant="chat", path="/v1/completions")
    clock.turn(1.0)
    for decode_sms in (20, 36, 36):
        known.on_message(step(decode_sms=decode_sms, prefill_sms=132 - decode_sms, measured_step_s=0.07))
        clock.turn(0.1)
    # In time, so not to blame.
    for _ in range(5):
        known.on_message(step(decode_sms=64, prefill_sms=68))
    clock.turn(1.0)
    known.on_request(request_record(**LATE_GAP))
    lifecycle = known.requests.find("r1")
    assert lifecycle is not None
    (violation,) = lifecycle.violations
    assert violation.split == SplitInForce(mode="split", prefill_sms=96, decode_sms=36)


def test_the_split_is_that_of_its_prefill_when_that_was_slow(known: Telemetry, clock: HandClock) -> None:
    known.on_begin("r1", tenant="chat", path="/v1/completions")
    clock.turn(0.5)
    known.on_message(step(now_s=0.5, decode_sms=64, prefill_sms=68))
    clock.turn(1.5)
    known.on_message(step(now_s=2.0))
    known.on_request(request_record(queue_s=0.1, ttft_s=1.6))
    lifecycle = known.requests.find("r1")
    assert lifecycle is not None
    (violation,) = lifecycle.violations
    assert violation.split == SplitInForce(mode="split", prefill_sms=68, decode_sms=64)
