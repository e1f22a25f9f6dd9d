"""Attainment, error budget and burn."""

from __future__ import annotations

import pytest
from telemetry_feeds import START_S, HandClock, request_record, step, telemetry, tenants_event

from pdmuxd.controlplane.telemetry.attainment import FIVE_MINUTES_S, HOUR_S, MINUTE_S, Attainment
from pdmuxd.controlplane.telemetry.judged import Delivered, judge
from pdmuxd.engine.link.durations import Counts
from pdmuxd.engine.link.durations import counted as counts_of

LATE = {"ttft_s": 2.0}
SLOW = {"tbt_max_s": 0.05, "tbt_p99_s": 0.05, "tbt_gaps_met": 9}


def counts(*gaps_s: float) -> Counts:
    return counts_of(sorted(gaps_s))


def counted(*requests: dict[str, object], at_s: float = START_S) -> Attainment:
    attainment = Attainment()
    for changes in requests:
        attainment.on_request(judge(request_record(**changes)), at_s)
    return attainment


def test_each_target_is_judged_by_itself_when_requests_end() -> None:
    ttft, tbt, *_ = counted({}, LATE, SLOW, SLOW).violations(START_S, MINUTE_S)
    assert (ttft.requests, ttft.judged, ttft.missed, ttft.attainment_ratio) == (4, 4, 1, 0.75)
    assert (tbt.requests, tbt.judged, tbt.missed, tbt.attainment_ratio) == (4, 40, 2, 0.95)


@pytest.mark.parametrize(
    ("changes", "waited_s", "missed"),
    [
        ({"e2e_s": 4.0, "e2e_target_s": 5.0}, 0.0, False),
        ({"e2e_s": 6.0, "e2e_target_s": 5.0}, 0.0, True),
        ({"e2e_s": 6.0, "e2e_target_s": None}, 9.0, None),
        ({"outcome": "aborted", "e2e_s": None, "e2e_target_s": 5.0}, 4.0, None),
        ({"outcome": "aborted", "e2e_s": None, "e2e_target_s": 5.0}, 6.0, True),
    ],
)
def test_whole_answers_are_judged_where_they_have_a_target(changes, waited_s, missed) -> None:
    judged = judge(request_record(**changes), waited_s=waited_s)
    attainment = Attainment()
    attainment.on_request(judged, START_S)
    found = attainment.violations(START_S, MINUTE_S).e2e
    assert (judged.e2e_missed, found.judged, found.missed) == (missed, missed is not None, missed is True)
    assert judged.good == (missed is not True and judged.record.outcome == "finished")
    assert attainment.verdict(START_S, 0.99) == ("missed" if missed else "met")


def test_a_whole_answer_is_judged_by_what_its_client_saw() -> None:
    record = request_record(e2e_s=4.0, e2e_target_s=5.0)
    late = judge(record, Delivered(ttft_s=0.1, e2e_s=5.5))
    assert (late.e2e_missed, late.good) == (True, False)
    assert judge(record, Delivered(ttft_s=0.1, e2e_s=4.5)).e2e_missed is False


def test_a_request_without_a_token_or_a_gap_is_not_judged_when_it_ends() -> None:
    none = {"ttft_s": None, "tbt_max_s": None, "tbt_p99_s": None, "tbt_gaps": 0, "tbt_gaps_met": 0}
    ttft, tbt, *_ = counted(none).violations(START_S, MINUTE_S)
    assert (ttft.requests, ttft.attainment_ratio, ttft.burn(0.99)) == (0, None, None)
    assert (tbt.requests, tbt.judged, tbt.attainment_ratio) == (0, 0, None)


def test_percentiles_are_of_all_gaps_when_requests_differ_in_length() -> None:
    # 990 gaps of 20 ms in one request; ten with one gap of 30 ms each: 99 of 100 gaps take 20 ms.
    long = {"tbt_max_s": 0.02, "tbt_gaps": 990, "tbt_gaps_met": 990, "tbt_counts": counts(*[0.02] * 990)}
    short = {"tbt_max_s": 0.03, "tbt_gaps": 1, "tbt_gaps_met": 1, "tbt_counts": counts(0.03)}
    attainment = counted(long, *[short] * 10)
    gaps, worst = attainment.tbt_gaps(START_S), attainment.tbt_worst(START_S)
    assert (gaps.count, worst.count) == (1000, 11)
    assert (gaps.p50, gaps.p99) == (pytest.approx(20, rel=0.04), pytest.approx(20, rel=0.04))
    assert worst.p50 == pytest.approx(30, rel=0.04)


def test_all_tenants_together_are_measured_by_gaps_when_steps_are_shorter() -> None:
    known = telemetry(HandClock(), chat=0.04, batch=0.2)
    for _ in range(100):
        known.on_message(step(measured_step_s=0.01))
    waited = {"tbt_gaps": 3, "tbt_gaps_met": 3, "tbt_counts": counts(0.1, 0.1, 0.1)}
    known.on_request(request_record())
    known.on_request(request_record(request_id="r2", tenant="batch", **waited))
    gaps = known.stats_event(START_S).tbt_gap_ms
    each = {one.tenant: one.tbt_gap_ms for one in tenants_event(known).tenants}
    assert (gaps.count, each["chat"].count, each["batch"].count) == (13, 10, 3)
    assert (gaps.p50, gaps.p99) == (each["chat"].p50, each["batch"].p99)


def test_a_late_gap_is_no_bad_request_when_99_percent_of_its_gaps_are_in_time() -> None:
    one_late = {"tbt_max_s": 0.05, "tbt_p99_s": 0.03, "tbt_gaps": 200, "tbt_gaps_met": 199}
    attainment = counted(one_late)
    assert attainment.rates(START_S).goodput_per_s == pytest.approx(1 / 60, abs=1e-4)
    assert attainment.violations(START_S, MINUTE_S).tbt.missed == 1


def test_only_what_finished_with_both_targets_met_is_goodput() -> None:
    rates = counted({}, {}, LATE, SLOW, {"outcome": "aborted"}).rates(START_S)
    assert rates.requests_per_s == pytest.approx(5 / 60, abs=1e-4)
    assert rates.goodput_per_s == pytest.approx(2 / 60, abs=1e-4)


@pytest.mark.parametrize(
    ("made", "seen", "goods"),
    [
        ({}, None, (1, 1, 1)),
        ({}, Delivered(ttft_s=0.1, gaps_missed=0), (1, 1, 1)),
        ({}, Delivered(ttft_s=0.1, gaps_missed=1), (0, 1, 1)),
        ({}, Delivered(ttft_s=0.1, gaps_missed=2), (0, 1, 0)),
        ({}, Delivered(ttft_s=9.0, gaps_missed=0), (0, 1, 0)),
        (SLOW | {"tbt_gaps_met": 9}, None, (0, 0, 1)),
        (SLOW | {"tbt_gaps_met": 8}, None, (0, 0, 0)),
        (LATE, None, (0, 0, 0)),
        ({"outcome": "aborted"}, None, (0, 0, 0)),
    ],
)
def test_good_answers_are_told_by_client_by_steps_and_with_one_late_gap_forgiven(made, seen, goods) -> None:
    attainment = Attainment()
    attainment.on_request(judge(request_record(**made), seen), START_S)
    rates = attainment.rates(START_S)
    told = (rates.goodput_per_s, rates.good_by_steps_per_s, rates.good_forgiven_per_s)
    assert tuple(round(60 * each) for each in told) == goods
    counts = attainment.good(START_S)
    assert (counts.ended, counts.delivered, counts.by_steps, counts.forgiven) == (1, *goods)


def test_burn_is_one_when_the_budget_is_just_used_up() -> None:
    ttft, *_ = counted(LATE, *[{}] * 99).violations(START_S, FIVE_MINUTES_S)
    assert ttft.burn(0.99) == pytest.approx(1.0)
    assert ttft.burn(0.95) == pytest.approx(0.2)


def test_the_budget_left_is_that_of_the_worse_target_when_both_are_missed() -> None:
    attainment = counted(LATE, *[SLOW] * 30, *[{}] * 69)
    assert attainment.budget_left_ratio(START_S, 0.95) == pytest.approx(1 - 0.03 / 0.05), "of 1,000 gaps"
    assert attainment.budget_left_ratio(START_S, 0.99) == pytest.approx(-2.0)


def test_the_budget_is_whole_again_when_an_hour_has_passed() -> None:
    attainment = counted(LATE, SLOW)
    assert attainment.budget_left_ratio(START_S + HOUR_S + 31, 0.99) == 1.0
    assert attainment.requests == 2


def test_a_short_window_forgets_first_when_time_passes() -> None:
    attainment = counted(LATE)
    later_s = START_S + 120
    assert attainment.violations(later_s, MINUTE_S).ttft.requests == 0
    assert attainment.violations(later_s, FIVE_MINUTES_S).ttft.missed == 1
