"""Trust in predictions: lost after about ten wrong steps in a row, won back after some forty right ones."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pdmuxd.engine.core.estimates.misprediction_breaker import (
    CLOSE_AT,
    OPEN_AT,
    WRONG_RATIO,
    MispredictionBreaker,
)

RIGHT, WRONG = (1.0, 1.0), (1.0, 10.0)


def after(breaker: MispredictionBreaker, *steps: tuple[float, float]) -> MispredictionBreaker:
    for predicted_s, measured_s in steps:
        breaker = breaker.after(predicted_s=predicted_s, measured_s=measured_s)
    return breaker


def steps_until(breaker: MispredictionBreaker, step: tuple[float, float], *, is_open: bool) -> int:
    for count in range(1, 200):
        breaker = after(breaker, step)
        if breaker.is_open == is_open:
            return count
    raise AssertionError(breaker)


def test_predictions_are_trusted_when_nothing_was_measured() -> None:
    assert MispredictionBreaker() == MispredictionBreaker(wrong_share=0.0, is_open=False)


def test_it_opens_when_half_of_the_latest_steps_were_wrong() -> None:
    # A share of 1 - 0.95^n of wrong steps is above 0.5 from n = 14 on.
    assert steps_until(MispredictionBreaker(), WRONG, is_open=True) == 14


def test_it_closes_later_than_it_opened_when_steps_are_right_again() -> None:
    opened = after(MispredictionBreaker(), *[WRONG] * 14)
    # 1 - 0.95^14 = 0.512 falls to 0.1 with 0.95^n: after 32 right steps.
    assert steps_until(opened, RIGHT, is_open=False) == 32


def test_it_stays_as_it_is_when_the_share_is_between_the_two_limits() -> None:
    middle = (OPEN_AT + CLOSE_AT) / 2
    for step in (RIGHT, WRONG):
        assert after(MispredictionBreaker(wrong_share=middle, is_open=True), step).is_open
        assert not after(MispredictionBreaker(wrong_share=middle, is_open=False), step).is_open


@given(st.floats(0.0, 1.0))
def test_the_limit_is_that_of_its_state_when_a_step_was_right(share: float) -> None:
    for is_open, limit in ((True, CLOSE_AT), (False, OPEN_AT)):
        assume(abs(0.95 * share - limit) > 1e-12)  # rounding
        found = after(MispredictionBreaker(wrong_share=share, is_open=is_open), RIGHT)
        assert found.is_open == (0.95 * share > limit)


def test_a_step_is_wrong_only_when_it_took_more_than_the_ratio() -> None:
    assert after(MispredictionBreaker(), (1.0, WRONG_RATIO)).wrong_share == 0.0
    assert after(MispredictionBreaker(), (1.0, WRONG_RATIO * 1.001)).wrong_share == pytest.approx(0.05)
    assert after(MispredictionBreaker(), (2.0, WRONG_RATIO * 1.001)).wrong_share == 0.0


def test_no_value_is_made_when_nothing_changes() -> None:
    breaker = MispredictionBreaker()
    assert after(breaker, RIGHT) is breaker


@given(st.lists(st.sampled_from([RIGHT, WRONG]), max_size=200))
def test_it_changes_only_at_its_limits_when_anything_happens(steps: list[tuple[float, float]]) -> None:
    states = [MispredictionBreaker()]
    for step in steps:
        states.append(after(states[-1], step))
    for before, now in pairwise(states):
        assert 0.0 <= now.wrong_share <= 1.0
        if now.is_open != before.is_open:
            assert now.wrong_share > OPEN_AT if now.is_open else now.wrong_share <= CLOSE_AT
