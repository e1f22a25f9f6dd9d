"""The bound of fused steps: a quantile found by unequal steps."""

from __future__ import annotations

import random

import pytest

from pdmuxd.engine.core.overrun import EXCEEDED_RATIO, HIGHEST, LOWEST, STEP, Overrun


def test_it_rises_by_a_step_at_most_when_a_step_took_longer() -> None:
    bound = Overrun(ratio=1.0)
    assert bound.after(predicted_s=0.01, measured_s=0.0105).ratio == pytest.approx(1.05)
    assert bound.after(predicted_s=0.01, measured_s=0.1).ratio == pytest.approx(1.0 + STEP)


def test_it_falls_slowly_and_never_below_the_prediction_when_steps_keep_to_it() -> None:
    bound = Overrun(ratio=1.0005)
    bound = bound.after(predicted_s=0.01, measured_s=0.01)
    assert bound.ratio == LOWEST
    assert Overrun(ratio=1.5).after(predicted_s=0.01, measured_s=0.01).ratio == pytest.approx(
        1.5 - STEP * EXCEEDED_RATIO
    )


def test_it_is_bounded_when_predictions_are_hopeless() -> None:
    bound = Overrun()
    for _ in range(100):
        bound = bound.after(predicted_s=0.001, measured_s=1.0)
    assert bound.ratio == HIGHEST


def test_it_is_exceeded_about_as_often_as_allowed_when_times_scatter() -> None:
    chance = random.Random(3)
    bound, exceeded, steps = Overrun(), 0, 20_000
    for _ in range(steps):
        seen = chance.lognormvariate(0.0, 0.1)
        exceeded += seen > bound.ratio
        bound = bound.after(predicted_s=1.0, measured_s=seen)
    assert 0.5 * EXCEEDED_RATIO < exceeded / steps < 2.5 * EXCEEDED_RATIO
