"""A tenant's attainment is what its clients saw, and each request counts once."""

from __future__ import annotations

import pytest
from telemetry_feeds import HandClock, request_record, telemetry, tenants_event

from pdmuxd.controlplane.telemetry.attainment import FIVE_MINUTES_S, TargetCounts
from pdmuxd.controlplane.telemetry.judged import Delivered, JudgedRequest
from pdmuxd.controlplane.telemetry.settling import RECORD_WITHIN_S
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.engine.link.durations import bucket_of


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def settled() -> list[JudgedRequest]:
    """What was told of requests that are over."""
    return []


@pytest.fixture
def known(clock: HandClock, settled: list[JudgedRequest]) -> Telemetry:
    return telemetry(clock, on_settled=settled.append, chat=0.04)


def begin(known: Telemetry, request_id: str = "r1") -> None:
    known.on_begin(request_id, tenant="chat", path="/v1/completions")
    known.on_read(request_id, is_streamed=True, body_bytes=4000, read_s=0.0)
    known.on_sent(request_id)


def judged(known: Telemetry) -> TargetCounts:
    return known.tenants["chat"].violations(known.clock(), FIVE_MINUTES_S)


SLOW = Delivered(
    ttft_s=1.6, gaps_missed=4, gap_max_s=0.184, gap_counts=((bucket_of(0.02), 4), (bucket_of(0.184), 4))
)


@pytest.mark.parametrize("answered_first", [False, True])
def test_what_clients_saw_counts_and_what_was_made_is_kept_beside_it(
    known: Telemetry, clock: HandClock, answered_first: bool
) -> None:
    begin(known)
    clock.turn(2.0)
    ends = [
        lambda: known.on_request(request_record()),
        lambda: known.on_answered("r1", status=200, delivered=SLOW),
    ]
    for end in reversed(ends) if answered_first else ends:
        end()
    ttft, tbt, *_ = judged(known)
    assert (ttft.judged, ttft.missed, ttft.engine_judged, ttft.engine_missed) == (1, 1, 1, 0)
    assert (tbt.judged, tbt.missed, tbt.engine_judged, tbt.engine_missed) == (10, 4, 10, 0)
    (chat,) = tenants_event(known).tenants
    assert chat.goodput_per_s == 0
    assert chat.tbt_gap_ms.count == 10, "two of them came with the token before"
    assert chat.tbt_worst_ms.p99 == pytest.approx(184, rel=0.04)
    assert chat.ttft_ms.p50 == pytest.approx(1600, rel=0.04)


def test_the_engines_word_counts_when_an_answer_is_not_streamed(known: Telemetry, clock: HandClock) -> None:
    begin(known)
    clock.turn(3.0)
    known.on_answered("r1", status=200)
    known.on_request(request_record())
    ttft, tbt, *_ = judged(known)
    assert (ttft.judged, ttft.missed, tbt.judged, tbt.missed) == (1, 0, 10, 0)


def test_nothing_is_counted_twice_when_record_and_answer_come_late(
    known: Telemetry, clock: HandClock
) -> None:
    begin(known)
    known.on_request(request_record())
    assert judged_requests(known) == 0, "its client has not had all of it"
    for _ in range(3):
        clock.turn(RECORD_WITHIN_S)
        known.tick()
    known.on_answered("r1", status=200, delivered=SLOW)
    known.on_answered("r1", status=200, delivered=SLOW)
    for _ in range(3):
        clock.turn(RECORD_WITHIN_S)
        known.tick()
    assert judged_requests(known) == 1


def judged_requests(known: Telemetry) -> int:
    return judged(known).ttft.judged


@pytest.mark.parametrize(
    ("status", "waited_s", "missed"), [(499, 2.0, 1), (499, 1.0, 0), (504, 2.0, 1), (429, 2.0, 0)]
)
def test_a_client_that_left_after_its_target_was_served_too_late(
    known: Telemetry, clock: HandClock, status: int, waited_s: float, missed: int
) -> None:
    begin(known)
    clock.turn(waited_s)
    known.on_answered("r1", status=status)
    for _ in range(2):
        clock.turn(RECORD_WITHIN_S)
        known.tick()
    ttft, *_ = judged(known)
    assert (ttft.judged, ttft.missed, ttft.engine_judged) == (missed, missed, 0)


def test_an_aborted_request_missed_its_target_when_it_had_waited_longer(
    known: Telemetry, clock: HandClock
) -> None:
    begin(known)
    clock.turn(2.0)
    known.on_answered("r1", status=499)
    nothing = {"ttft_s": None, "tbt_max_s": None, "tbt_p99_s": None, "tbt_gaps": 0, "tbt_gaps_met": 0}
    known.on_request(request_record(outcome="aborted", tbt_counts=(), **nothing))
    ttft, *_ = judged(known)
    assert (ttft.judged, ttft.missed) == (1, 1)


def test_a_requests_delivery_is_shown(known: Telemetry) -> None:
    begin(known)
    known.on_request(request_record())
    known.on_answered("r1", status=200, delivered=SLOW)
    lifecycle = known.requests.find("r1")
    assert lifecycle is not None
    assert lifecycle.delivered == SLOW


@pytest.mark.parametrize("is_answered_first", [False, True])
def test_a_batch_of_prompts_counts_as_one_request(
    known: Telemetry, clock: HandClock, settled: list[JudgedRequest], *, is_answered_first: bool
) -> None:
    known.on_begin("r1", tenant="chat", path="/v1/completions")
    known.on_read("r1", is_streamed=False, body_bytes=4000, read_s=0.0, answers=3)
    if is_answered_first:
        known.on_answered("r1", status=200)
    late = {"ttft_s": 9.0, "tbt_gaps_met": 7, "tbt_max_s": 0.2, "tbt_p99_s": 0.2}
    for number, changes in enumerate(({}, late, {})):
        known.on_request(request_record(request_id=f"r1_{number}", **changes))
    if not is_answered_first:
        known.on_answered("r1", status=200)
    clock.turn(2 * RECORD_WITHIN_S)
    known.tick()
    (one,) = settled
    assert (one.record.request_id, one.record.output_tokens, one.record.new_tokens) == ("r1", 33, 3000)
    assert (one.ttft_s, one.ttft_missed, one.good) == (9.0, True, False)
    assert (one.gaps, one.gaps_missed, one.gap_max_s) == (30, 3, 0.2)


def test_what_is_known_of_a_batch_counts_when_a_record_is_lost(
    known: Telemetry, clock: HandClock, settled: list[JudgedRequest]
) -> None:
    known.on_begin("r1", tenant="chat", path="/v1/completions")
    known.on_read("r1", is_streamed=False, body_bytes=4000, read_s=0.0, answers=2)
    known.on_request(request_record(request_id="r1_0"))
    known.on_answered("r1", status=200)
    clock.turn(2 * RECORD_WITHIN_S)
    known.tick()
    (one,) = settled
    assert (one.record.request_id, one.record.output_tokens) == ("r1", 11)


def test_choices_with_ids_of_their_own_are_not_followed_by_one_that_failed(
    known: Telemetry, clock: HandClock, settled: list[JudgedRequest]
) -> None:
    known.on_begin("r1", tenant="chat", path="/v1/completions")
    known.on_read("r1", is_streamed=False, body_bytes=4000, read_s=0.0, answers=2)
    for name in ("x", "y"):
        known.on_request(request_record(request_id=name))
    known.on_answered("r1", status=200)
    clock.turn(2 * RECORD_WITHIN_S)
    known.tick()
    assert [each.good for each in settled] == [True, True]
