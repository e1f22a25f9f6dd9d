"""The bound of fused steps: a quantile found by unequal steps."""

from __future__ import annotations

import random

import pytest

from pdmuxd.engine.core.latency_margin import FALL, FLOOR_RISE_S, HIGHEST, LOWEST, RISE, LatencyMargin


def test_it_rises_by_a_step_at_most_when_a_step_took_longer() -> None:
    bound = LatencyMargin(ratio=1.0)
    assert bound.after(predicted_s=0.01, measured_s=0.0105).ratio == pytest.approx(1.05)
    assert bound.after(predicted_s=0.01, measured_s=0.1).ratio == pytest.approx(1.0 + RISE)


def test_it_falls_slowly_and_never_below_the_prediction_when_steps_keep_to_it() -> None:
    bound = LatencyMargin(ratio=1.0 + FALL / 2)
    bound = bound.after(predicted_s=0.01, measured_s=0.01)
    assert bound.ratio == LOWEST
    assert LatencyMargin(ratio=1.5).after(predicted_s=0.01, measured_s=0.01).ratio == pytest.approx(
        1.5 - FALL
    )


def test_it_is_bounded_when_predictions_are_hopeless() -> None:
    bound = LatencyMargin()
    for _ in range(100):
        bound = bound.after(predicted_s=0.001, measured_s=1.0)
    assert bound.ratio == HIGHEST


@pytest.mark.parametrize(("scatter", "at_most"), [(0.03, 1 / 250), (0.1, 1 / 800), (0.2, 1 / 1500)])
def test_it_is_exceeded_by_few_steps_when_times_scatter(scatter: float, at_most: float) -> None:
    chance = random.Random(3)
    bound, exceeded, settled, steps = LatencyMargin(), 0, 10_000, 110_000
    for number in range(steps):
        seen = chance.lognormvariate(0.0, scatter)
        exceeded += number >= settled and seen > bound.ratio
        bound = bound.after(predicted_s=1.0, measured_s=seen)
    assert 1 / 10_000 < exceeded / (steps - settled) < at_most


def test_the_floor_rises_and_not_the_ratio_when_a_quick_step_waited_for_the_host() -> None:
    bound = LatencyMargin(ratio=1.1)
    bound = bound.after(predicted_s=0.008, measured_s=0.02)
    assert (bound.ratio, bound.floor_s) == (1.1, pytest.approx(0.0088 + FLOOR_RISE_S))
    for _ in range(10):
        bound = bound.after(predicted_s=0.008, measured_s=0.02)
    assert (bound.ratio, bound.floor_s) == (pytest.approx(1.1, abs=0.001), pytest.approx(0.02, rel=0.01))
    assert bound.bound_s(0.008) == pytest.approx(0.02, rel=0.01)
    assert bound.bound_s(0.03) == pytest.approx(0.033, rel=0.01)


def test_the_floor_is_forgotten_within_seconds_when_no_step_is_fused() -> None:
    bound = LatencyMargin(ratio=1.1, floor_s=0.02)
    for _ in range(1000):  # eight seconds of steps of 8 ms
        bound = bound.without_a_step()
    assert 0.01 < bound.floor_s < 0.016
    for _ in range(10_000):
        bound = bound.without_a_step()
    assert bound == LatencyMargin(ratio=1.1)
