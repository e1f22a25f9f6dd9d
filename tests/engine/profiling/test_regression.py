"""Fits to numbers whose law is written in the test."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdmuxd.engine.profiling.regression import (
    CUT_FLOOR,
    Prior,
    fit,
    fit_above_floor,
    inliers_of,
    leverage_of,
)

SIZES = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0])
LINE = np.column_stack([np.ones_like(SIZES), SIZES])
"""Rows of a law with a fixed part and a slope."""


@settings(max_examples=20)
@given(fixed=st.floats(0.001, 10.0), slope=st.floats(0.001, 10.0))
def test_a_law_is_found_when_samples_are_exact(fixed: float, slope: float) -> None:
    found = fit(LINE, fixed + slope * SIZES)
    assert found.coefficients == pytest.approx([fixed, slope], rel=1e-6)
    assert found.is_inlier.all()
    assert np.abs(found.residuals).max() < 1e-6


def test_no_coefficient_is_below_zero_when_more_work_took_less() -> None:
    found = fit(LINE, 10.0 - 0.05 * SIZES)
    assert found.coefficients[1] == 0.0
    assert 3.0 < found.coefficients[0] < 10.0


def test_one_wild_sample_moves_nothing_and_is_told() -> None:
    seconds = 2.0 + 0.5 * SIZES
    seconds[3] *= 5.0
    found = fit(LINE, seconds)
    assert found.coefficients == pytest.approx([2.0, 0.5], rel=1e-6)
    assert list(np.flatnonzero(~found.is_inlier)) == [3]


def test_a_confirmed_sample_counts_however_odd_it_is() -> None:
    seconds = 2.0 + 0.5 * SIZES
    seconds[-1] *= 1.5
    confirmed = np.arange(len(SIZES)) == len(SIZES) - 1
    assert fit(LINE, seconds, confirmed=confirmed).is_inlier.all()
    assert fit(LINE, seconds, confirmed=confirmed).coefficients[1] > fit(LINE, seconds).coefficients[1] + 0.01


def test_a_belief_settles_what_no_sample_shows_and_nothing_else() -> None:
    third = np.zeros_like(SIZES)
    rows = np.column_stack([LINE, third])
    seconds = 2.0 + 0.5 * SIZES
    believed = np.array([[1.0, 1.0, 10.0], [1.0, 2.0, 20.0]])
    belief = Prior(design=believed, seconds=np.array([2.5 + 30.0, 3.0 + 60.0]))
    assert fit(rows, seconds).coefficients[2] == 0.0
    assert fit(rows, seconds, belief).coefficients == pytest.approx([2.0, 0.5, 3.0], rel=1e-3)


def test_a_wrong_belief_does_not_outweigh_the_samples() -> None:
    seconds = 2.0 + 0.5 * SIZES
    belief = Prior(design=LINE, seconds=3.0 * seconds)
    found = fit(LINE, seconds, belief)
    assert LINE @ found.coefficients == pytest.approx(seconds, rel=0.3)


def test_what_a_belief_takes_below_the_floor_is_left_out() -> None:
    belief = Prior(design=LINE, seconds=SIZES).above(8.0)
    assert list(belief.seconds) == [16.0, 32.0, 64.0, 128.0]
    assert list(belief.design[:, 1]) == [16.0, 32.0, 64.0, 128.0]


def test_a_floor_is_found_when_small_samples_lie_on_it() -> None:
    sizes = np.concatenate([SIZES, SIZES * 1.5])
    rows = np.column_stack([np.ones_like(sizes), sizes])
    seconds = np.maximum(10.0, 1.0 + 0.5 * sizes)
    found = fit_above_floor(rows, seconds)
    assert found is not None
    assert found.floor_s == pytest.approx(10.0)
    assert found.coefficients == pytest.approx([1.0, 0.5], rel=1e-6)
    assert np.abs(found.residuals).max() < 1e-6, "of those on the floor, too"


def test_a_known_floor_is_taken_as_it_is() -> None:
    sizes = np.concatenate([SIZES, SIZES * 1.5])
    rows = np.column_stack([np.ones_like(sizes), sizes])
    found = fit_above_floor(rows, np.maximum(10.0, 1.0 + 0.5 * sizes), known_floor_s=9.0)
    assert found is not None
    assert found.floor_s == 9.0


@pytest.mark.parametrize("seconds", [1.0 + 0.5 * SIZES, np.full_like(SIZES, 10.0)], ids=["none", "all"])
def test_there_is_no_floor_when_too_few_samples_lie_on_it_or_above(seconds: np.ndarray) -> None:
    assert fit_above_floor(LINE, seconds) is None


def test_an_exact_fit_calls_nothing_an_outlier_that_is_near() -> None:
    residuals = np.array([0.0, 0.0, 0.0, 0.0, 0.9 * CUT_FLOOR, 1.1 * CUT_FLOOR])
    assert list(inliers_of(residuals)) == [True] * 5 + [False]
    assert inliers_of(residuals, cut_floor=2.0 * CUT_FLOOR).all()


def test_a_sample_that_alone_holds_a_coefficient_would_be_further_off_without_it() -> None:
    seconds = (2.0 + 0.5 * SIZES) * np.array([1.01, 0.99, 1.01, 0.99, 1.01, 0.99, 1.01, 0.99])
    found = fit(LINE, seconds)
    grows = np.abs(found.left_out_residuals) / np.abs(found.residuals)
    assert (grows >= 1.0).all()
    assert grows.argmax() in (0, 7), "the ends of the line hold it"


def test_what_lies_far_from_the_measured_is_less_certain() -> None:
    inverse = np.linalg.inv(LINE.T @ LINE)
    near, far = leverage_of(inverse, np.array([[1.0, 30.0], [1.0, 1000.0]]))
    assert 0.0 < near < far
