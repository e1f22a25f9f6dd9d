"""What fused steps take beside what is typical: a quantile of scatter, apart from stalls and the host."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.engine.core.estimates.latency_margin import (
    FLOOR_RISE_S,
    HIGHEST_FACTOR,
    HOST_STEPS,
    LEAST_DEVIATION,
    STALL_STEPS,
    LatencyMargin,
)

STEP_S, STALL_S = 0.03, 0.02


def settled(scatter: float, stalls: float = 0.0, *, steps: int, attainment: float = 0.99) -> LatencyMargin:
    chance, margin = random.Random(3), LatencyMargin()
    for _ in range(steps):
        seen_s = STEP_S * chance.lognormvariate(0.0, scatter) + (chance.random() < stalls) * STALL_S
        margin = margin.after(predicted_s=STEP_S, measured_s=seen_s, attainment_ratio=attainment)
    return margin


@pytest.mark.parametrize("scatter", [0.03, 0.06, 0.1])
def test_as_few_steps_exceed_it_as_the_attainment_allows_when_times_scatter(scatter: float) -> None:
    chance, margin, exceeded, steps = random.Random(5), settled(scatter, steps=2_000), 0, 40_000
    for _ in range(steps):
        seen = chance.lognormvariate(0.0, scatter)
        exceeded += seen > margin.ratio
        margin = margin.after(predicted_s=1.0, measured_s=seen)
    assert 0.001 < exceeded / steps < 0.004


def test_it_follows_the_scatter_within_hundreds_of_steps() -> None:
    assert settled(0.0, steps=300).ratio < 1.02
    assert 1.12 < settled(0.06, steps=300).ratio < 1.27


def test_a_stricter_attainment_plans_for_rarer_steps() -> None:
    strict, relaxed = (settled(0.06, steps=20_000, attainment=a).ratio for a in (0.999, 0.9))
    assert strict > relaxed + 0.04


def test_stalls_do_not_widen_it_and_are_expected_for_a_while() -> None:
    quiet, stalling = settled(0.03, steps=20_000), settled(0.03, 0.003, steps=20_000)
    assert stalling.ratio == pytest.approx(quiet.ratio, abs=0.02)
    assert stalling.expected_stall_s == pytest.approx(STALL_S, rel=0.15)
    assert not quiet.expected_stall_s
    for _ in range(STALL_STEPS):
        stalling = stalling.after(predicted_s=STEP_S, measured_s=STEP_S)
    assert not stalling.expected_stall_s


def test_steps_that_all_take_longer_are_no_stalls() -> None:
    margin = settled(0.0, steps=300)
    for _ in range(250):
        margin = margin.after(predicted_s=STEP_S, measured_s=1.5 * STEP_S)
    assert margin.ratio > 1.5


@pytest.mark.parametrize("ratio", [1.07, 1.3])
def test_it_can_have_the_ratio_that_a_decision_told(ratio: float) -> None:
    margin = LatencyMargin(deviation=0.06, expected_stalls=7).with_ratio(ratio).expecting(0.02)
    assert margin.ratio == pytest.approx(ratio)
    assert (margin.deviation, margin.expected_stall_s, margin.expected_stalls) == (0.06, 0.02, 7)
    assert LatencyMargin().expecting(0.02).expected_stalls == STALL_STEPS


@given(
    measured_s=st.lists(st.floats(1e-5, 10.0), max_size=50),
    attainment=st.floats(0.5, 0.9999),
)
def test_it_stays_within_its_bounds_whatever_steps_take(measured_s: list[float], attainment: float) -> None:
    margin = LatencyMargin()
    for seen_s in measured_s:
        margin = margin.after(predicted_s=0.01, measured_s=seen_s, attainment_ratio=attainment)
        assert margin.deviation >= LEAST_DEVIATION
        assert 1.0 <= margin.factor <= HIGHEST_FACTOR
        assert margin.bound_s(0.01) >= 0.01
        assert 0.0 <= margin.expected_stall_s <= 10.0


def test_the_floor_rises_and_not_the_ratio_when_quick_steps_waited_for_the_host() -> None:
    margin = LatencyMargin(deviation=0.02, factor=5.0)
    first = margin.after(predicted_s=0.008, measured_s=0.02)
    second = first.after(predicted_s=0.008, measured_s=0.02)
    assert second.factor == 5.0
    assert second.ratio < 1.15
    assert second.floor_s == pytest.approx(first.bound_s(0.008) + FLOOR_RISE_S)


def test_one_long_step_by_itself_is_no_slow_host() -> None:
    """At a target of 20 ms a stall of 20 ms would lift the floor over it: no step were fused for seconds."""
    margin = settled(0.01, steps=300)
    for _ in range(10):
        margin = margin.after(predicted_s=0.017, measured_s=0.037)
        for _ in range(HOST_STEPS):
            margin = margin.after(predicted_s=0.017, measured_s=0.017)
    assert margin.floor_s == 0.0
    assert margin.expected_stall_s == pytest.approx(0.02)


def test_the_floor_is_forgotten_within_seconds_when_no_step_is_fused() -> None:
    margin = LatencyMargin(floor_s=0.02)
    for _ in range(1000):  # eight seconds of steps of 8 ms
        margin = margin.without_a_step()
    assert 0.01 < margin.floor_s < 0.016
    for _ in range(10_000):
        margin = margin.without_a_step()
    assert margin == LatencyMargin()


def test_wide_scatter_is_forgotten_while_splits_run_in_place_of_fused_steps() -> None:
    wide = LatencyMargin(deviation=0.55, factor=7.0)
    assert wide.without_a_step() == wide
    halved = wide
    for _ in range(500):  # five seconds of steps of 10 ms
        halved = halved.without_a_step(instead_s=0.01)
    assert halved.deviation == pytest.approx(0.3)
    assert halved.factor == pytest.approx(5.0)
    narrow = LatencyMargin(deviation=0.01, factor=1.5)
    assert narrow.without_a_step(instead_s=60.0) == narrow
