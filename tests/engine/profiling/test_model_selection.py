"""Which of several designs a predictor is given, on samples whose law is known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pdmuxd.engine.profiling.designs import DECODE, FUSED, PREFILL, Design, Family
from pdmuxd.engine.profiling.measurement import Point
from pdmuxd.engine.profiling.model_selection import (
    Tried,
    best_of,
    fit_design,
    fit_max_context,
    is_told_once,
    predict,
)

SIZES = (16, 32, 64, 100, 128, 200, 256, 300, 512, 700, 1024, 1500, 2048, 2500, 3000, 4096)
PLAIN, BENT = Design(), Design(knots=(512,))


def prefills() -> list[Point]:
    return [
        Point(mode="prefill", prefill_sms=64, decode_sms=0, prefill=((new, reused),))
        for new in SIZES
        for reused in (0, 4000)
    ]


def tried(family: Family[object], points: list[Point], seconds: np.ndarray, *designs: Design) -> list[Tried]:
    found = []
    for design in designs:
        rows = family.rows(points, design)
        regression = fit_design(rows, seconds, design, None, np.zeros(len(points), dtype=bool))
        assert regression is not None
        score = float(np.abs(regression.left_out_residuals).mean()) + 1e-6
        found.append(Tried(design=design, rows=rows, prior=None, regression=regression, score=score))
    return found


def best(law: Callable[[int], float], *designs: Design, noise: float = 0.01) -> tuple[Design, np.ndarray]:
    points = prefills()
    scatter = np.exp(np.random.default_rng(5).normal(0.0, noise, len(points)))
    seconds = np.array([law(point.prefill_shape.new_tokens) for point in points]) * scatter
    chosen, errors = best_of(
        tried(PREFILL, points, seconds, *designs), seconds, np.zeros(len(points), dtype=bool)
    )
    return chosen.design, errors


def test_the_simpler_design_is_taken_when_it_predicts_as_well() -> None:
    design, errors = best(lambda new: 0.002 + 4e-5 * new, PLAIN, BENT)
    assert design == PLAIN
    assert len(errors) == 2 * len(SIZES), "every sample was held out once"
    assert np.percentile(errors, 90) < 0.03


def test_the_bent_design_is_taken_when_the_law_bends() -> None:
    law = lambda new: 0.002 + 1e-5 * min(new, 512) + 6e-5 * max(0, new - 512)  # noqa: E731
    assert best(law, PLAIN, BENT)[0] == BENT


def test_a_design_whose_fit_is_far_worse_is_not_even_held_out() -> None:
    points = prefills()
    seconds = np.array([0.002 + 4e-5 * point.prefill_shape.new_tokens for point in points])
    plain, bent = tried(PREFILL, points, seconds, PLAIN, BENT)
    hopeless = bent._replace(score=100.0 * plain.score, rows=bent.rows * np.nan)
    assert best_of([plain, hopeless], seconds, np.zeros(len(points), dtype=bool))[0] is plain


def decode(bs: int, context: int) -> Point:
    return Point(mode="decode", prefill_sms=0, decode_sms=64, decode=(context,) * bs)


def test_a_sample_that_alone_tells_of_its_size_is_never_held_out() -> None:
    points = [decode(4, 100), decode(4, 900), decode(8, 100), decode(16, 100), decode(16, 900)]
    design = Design(own_bs=(4, 8, 16))
    rows = DECODE.rows(points, design)
    assert is_told_once(rows, design).tolist() == [False, False, True, False, False]
    seconds = np.array([0.010, 0.011, 0.030, 0.012, 0.013])
    _, errors = best_of(tried(DECODE, points, seconds, design), seconds, np.zeros(len(points), dtype=bool))
    assert np.isnan(errors).tolist() == [False, False, True, False, False]


def test_sizes_with_a_time_of_their_own_are_taken_when_one_takes_less_than_a_smaller_one() -> None:
    points = [decode(bs, context) for bs in (1, 2, 4, 8, 12, 16, 20, 24) for context in (100, 1000, 4000)]
    of_size = {1: 5, 2: 6, 4: 7, 8: 8, 12: 20, 16: 9, 20: 22, 24: 10}
    seconds = np.array([1e-3 * of_size[len(p.decode)] + 1e-8 * sum(p.decode) for p in points])
    designs = (PLAIN, Design(own_bs=tuple(of_size)))
    chosen, errors = best_of(
        tried(DECODE, points, seconds, *designs), seconds, np.zeros(len(points), dtype=bool)
    )
    assert chosen.design == designs[1]
    assert errors.max() < 0.05


def fused_points() -> list[Point]:
    return [
        Point(mode="fused", prefill_sms=132, decode_sms=132, prefill=((new, 0),), decode=contexts)
        for new in (64, 200, 512, 1024)
        for contexts in ((500,), (20_000,), (60_000,), (500,) * 64, (4000,) * 64, (8000,) * 64)
    ]


def test_a_batch_waits_for_its_longest_context_where_that_outlasts_the_others() -> None:
    points = fused_points()
    design = Design(has_max_context=True)
    rows = FUSED.rows(points, design)
    each, longest = 2e-8, 3e-7

    def law(point: Point) -> float:
        work = 0.005 + 2e-5 * (point.prefill_shape.new_tokens + len(point.decode))
        return work + max(each * sum(point.decode), longest * max(point.decode))

    seconds = np.array([law(point) for point in points])
    found = fit_max_context(rows, seconds)
    assert predict(rows, found, design) == pytest.approx(seconds, rel=0.02)
    assert found.coefficients[-1] == pytest.approx(longest, rel=0.1)


def test_nothing_is_predicted_below_a_floor() -> None:
    rows = np.array([[1.0], [10.0]])
    design = Design(has_floor=True)
    found = fit_design(
        np.array([[n] for n in (1, 1.1, 1.2, 2, 20, 30, 40, 50)]),
        np.array([5.0, 5.0, 5.0, 5.0, 20.0, 30.0, 40.0, 50.0]),
        design,
        None,
        np.zeros(8, dtype=bool),
    )
    assert found is not None
    assert predict(rows, found, design) == pytest.approx([5.0, 10.0])
