"""Attainment, error budget and burn."""

from __future__ import annotations

import pytest
from telling import START_S, request_record

from pdmuxd.controlplane.telemetry.attainment import FIVE_MINUTES_S, HOUR_S, MINUTE_S, Attainment

LATE = {"ttft_s": 2.0}
SLOW = {"tbt_max_s": 0.05, "tbt_gaps_met": 9}


def counted(*requests: dict[str, object], at_s: float = START_S) -> Attainment:
    attainment = Attainment()
    for changes in requests:
        attainment.on_request(request_record(**changes), at_s)
    return attainment


def test_each_target_is_judged_by_itself_when_requests_end() -> None:
    ttft, tbt = counted({}, LATE, SLOW, SLOW).misses(START_S, MINUTE_S)
    assert (ttft.requests, ttft.missed, ttft.attainment_ratio) == (4, 1, 0.75)
    assert (tbt.requests, tbt.missed, tbt.attainment_ratio) == (4, 2, 0.5)


def test_a_request_without_a_token_or_a_gap_is_not_judged_when_it_ends() -> None:
    none = {"ttft_s": None, "tbt_max_s": None, "tbt_p99_s": None, "tbt_gaps": 0, "tbt_gaps_met": 0}
    ttft, tbt = counted(none).misses(START_S, MINUTE_S)
    assert (ttft.requests, ttft.attainment_ratio, ttft.burn(0.99)) == (0, None, None)
    assert tbt.requests == 0


def test_only_what_finished_with_both_targets_met_is_goodput() -> None:
    rates = counted({}, {}, LATE, SLOW, {"outcome": "aborted"}).rates(START_S)
    assert rates.requests_per_s == pytest.approx(5 / 60, abs=1e-4)
    assert rates.goodput_per_s == pytest.approx(2 / 60, abs=1e-4)


def test_burn_is_one_when_the_budget_is_just_used_up() -> None:
    ttft, _ = counted(LATE, *[{}] * 99).misses(START_S, FIVE_MINUTES_S)
    assert ttft.burn(0.99) == pytest.approx(1.0)
    assert ttft.burn(0.95) == pytest.approx(0.2)


def test_the_budget_left_is_that_of_the_worse_target_when_both_are_missed() -> None:
    attainment = counted(LATE, *[SLOW] * 3, *[{}] * 96)
    assert attainment.budget_left_ratio(START_S, 0.95) == pytest.approx(1 - 0.03 / 0.05)
    assert attainment.budget_left_ratio(START_S, 0.99) == pytest.approx(-2.0)


def test_the_budget_is_whole_again_when_an_hour_has_passed() -> None:
    attainment = counted(LATE, SLOW)
    assert attainment.budget_left_ratio(START_S + HOUR_S + 31, 0.99) == 1.0
    assert attainment.requests == 2


def test_a_short_window_forgets_first_when_time_passes() -> None:
    attainment = counted(LATE)
    later_s = START_S + 120
    assert attainment.misses(later_s, MINUTE_S)[0].requests == 0
    assert attainment.misses(later_s, FIVE_MINUTES_S)[0].missed == 1
