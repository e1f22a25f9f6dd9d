"""Which design of a predictor: the simplest that predicts held-out samples as well as any.

A batch may have to wait for its longest context where that outlasts what all contexts take together. The
longer of two is not linear, but it is linear once it is known which of the two is the longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pdmuxd.engine.profiling.designs import CONTEXT_COLUMNS, Design, own_columns
from pdmuxd.engine.profiling.regression import (
    CUT_FLOOR,
    PRIOR_SAMPLES,
    TABLE_CUT_FLOOR,
    Bools,
    Floats,
    Prior,
    Regression,
    fit,
    fit_above_floor,
)

_ROUNDS = 8
_MAX_CONTEXT = -1
_STARTS = (0.0, 4.0, 8.0, 16.0)
"""First guesses of what a token of the longest context takes, relative to a token of all contexts; 0: the two
add up. How the search ends depends on where it starts; on one H200 it ends at 8 to 13 (2026-11-22)."""


def fit_max_context(
    rows: Floats,
    seconds: Floats,
    prior: Prior | None = None,
    confirmed: Bools | None = None,
    *,
    cut_floor: float = CUT_FLOOR,
) -> Regression:
    """Fit as `fit` does, for batches that may wait for their longest context. Which samples wait, and what
    everything costs, is found in turns until the two agree.

    Of several starts, the one whose result is nearest to the samples and to the prior counts.
    """
    added = fit(rows, seconds, prior, confirmed, cut_floor=cut_floor)
    ends = [
        _agreed(rows, seconds, prior, confirmed, cut_floor=cut_floor, start=_started(added, ratio))
        for ratio in _STARTS
    ]
    return min(ends, key=lambda found: _distance(found, prior))


def _distance(found: Regression, prior: Prior | None) -> float:
    """The sum of absolute errors, with the prior weighted as in a fit."""
    distance = float(np.abs(found.residuals).sum())
    if prior is not None:
        expected = _chosen(prior.design, _waits(prior.design, found)) @ found.coefficients
        distance += PRIOR_SAMPLES * float(np.abs(1.0 - expected / prior.seconds).mean())
    return distance


def _started(added: Regression, ratio: float) -> Regression:
    if not ratio:
        return added
    of = added.coefficients.copy()
    of[_MAX_CONTEXT] = ratio * of[CONTEXT_COLUMNS][0]
    return replace(added, coefficients=of)


def _agreed(
    rows: Floats,
    seconds: Floats,
    prior: Prior | None,
    confirmed: Bools | None,
    *,
    cut_floor: float,
    start: Regression,
) -> Regression:
    found, waits = start, None
    for _ in range(_ROUNDS):
        before, waits = waits, _waits(rows, found)
        if before is not None and (waits == before).all():
            break
        expected = _expected(prior, found)
        found = fit(_chosen(rows, waits), seconds, expected, confirmed, cut_floor=cut_floor)
    return found


def predict(rows: Floats, found: Regression, design: Design) -> Floats:
    """Seconds of each row."""
    if design.has_max_context:
        rows = _chosen(rows, _waits(rows, found))
    seconds: Floats = np.maximum(found.floor_s, rows @ found.coefficients)
    return seconds


def _expected(prior: Prior | None, found: Regression) -> Prior | None:
    if prior is None:
        return None
    rows = _chosen(prior.design, _waits(prior.design, found))
    return Prior(design=rows, seconds=prior.seconds)


def _waits(rows: Floats, found: Regression) -> Bools:
    of = found.coefficients
    waits: Bools = rows[:, _MAX_CONTEXT] * of[_MAX_CONTEXT] > rows[:, CONTEXT_COLUMNS] @ of[CONTEXT_COLUMNS]
    return waits


def _chosen(rows: Floats, waits: Bools) -> Floats:
    """Each row without the one of the two terms that takes less."""
    chosen = rows.copy()
    chosen[waits, CONTEXT_COLUMNS] = 0.0
    chosen[~waits, _MAX_CONTEXT] = 0.0
    return chosen


FOLDS = 5
PROMISING = 2.0
"""A design with a score of at most so many times the best one is tried on held-out samples."""
MIN_JUDGED = 6
"""Held-out samples that two designs must share to be compared."""
WORTHWHILE = 0.9
"""A more complicated design is taken only if its error is at most this share of the simpler one's."""


class Tried(NamedTuple):
    """A design, fitted to all samples."""

    design: Design
    rows: Floats
    prior: Prior | None
    regression: Regression
    score: float


def best_of(
    tried: Sequence[Tried], seconds: Floats, confirmed: Bools, floor_s: float | None = None
) -> tuple[Tried, Floats]:
    """The simplest design that predicts held-out samples as well as any other, and its errors there.

    If a size has a single sample, that sample is not held out, and its error is NaN: nothing else could
    predict it.

    The error on the samples that a design was fitted to favours designs with many terms. But fitting all
    designs to all folds takes too long. So for each number of terms only the design with the best score goes
    on, and only if that score is good.
    """
    good = PROMISING * min(one.score for one in tried)
    promising: dict[tuple[int, int, bool, bool], Tried] = {}
    for one in tried:
        of = one.design
        terms = (len(of.knots), len(of.own_bs), of.has_floor, of.has_max_context)
        if one.score <= good and (terms not in promising or one.score < WORTHWHILE * promising[terms].score):
            promising[terms] = one
    best, of_best = tried[0], np.empty(0)
    for one in promising.values():
        errors = _held_out(one.rows, seconds, one.design, one.prior, confirmed, floor_s)
        at_most = 1.0 if _tells_more(one.design, best.design) else WORTHWHILE
        if not of_best.size or _is_better(errors, of_best, at_most):
            best, of_best = one, errors
    return best, of_best


def _tells_more(design: Design, other: Design) -> bool:
    """Whether a design has times for sizes that the other one interpolates. If such a size was measured once,
    held-out samples cannot show the gain."""
    return bool(other.own_bs) and set(design.own_bs) > set(other.own_bs)


def _is_better(errors: Floats, of_best: Floats, at_most: float) -> bool:
    """Judged by the samples that were held out of both: whether its error is at most that share of the
    other's."""
    judged = ~np.isnan(errors) & ~np.isnan(of_best)
    if judged.sum() < MIN_JUDGED:
        return False
    p90, best_p90 = (np.percentile(np.abs(each[judged]), 90.0) for each in (errors, of_best))
    return bool(p90 < at_most * best_p90)


def fit_design(
    rows: Floats,
    seconds: Floats,
    design: Design,
    prior: Prior | None,
    confirmed: Bools,
    floor_s: float | None = None,
) -> Regression | None:
    """None if the samples do not show the floor that the design has."""
    cut_floor = TABLE_CUT_FLOOR if design.own_bs or design.experts is not None else CUT_FLOOR
    if design.has_max_context:
        return fit_max_context(rows, seconds, prior, confirmed, cut_floor=cut_floor)
    if design.has_floor:
        return fit_above_floor(rows, seconds, prior, confirmed, known_floor_s=floor_s)
    return fit(rows, seconds, prior, confirmed, cut_floor=cut_floor)


def _held_out(
    rows: Floats,
    seconds: Floats,
    design: Design,
    prior: Prior | None,
    confirmed: Bools,
    floor_s: float | None,
) -> Floats:
    """Each sample's relative error, predicted by a fit to the other folds; NaN if it was never held out."""
    errors = np.full_like(seconds, np.nan)
    fold_of = _folds(rows, design)
    for fold in range(FOLDS):
        is_out = fold_of == fold
        if is_out.any():
            kept, kept_s = rows[~is_out], seconds[~is_out]
            sure = confirmed[~is_out]
            found = fit_design(kept, kept_s, design, prior, sure, floor_s) or fit(kept, kept_s, prior, sure)
            predicted = predict(rows[is_out], found, design)
            errors[is_out] = predicted / seconds[is_out] - 1.0
    return errors


def _folds(rows: Floats, design: Design) -> NDArray[np.int64]:
    """Which fold each sample is held out with, -1: none. Never all of a size that has a time of its own."""
    turn = np.arange(len(rows))
    if not design.own_bs:
        return turn % FOLDS
    own = own_columns(rows, design)
    fold_of = np.empty_like(turn)
    fold_of[np.lexsort(own.T)] = turn % FOLDS
    fold_of[is_told_once(rows, design)] = -1
    return fold_of


def is_told_once(rows: Floats, design: Design) -> Bools:
    """Which samples are the only ones of a size that has a time of its own."""
    is_own = own_columns(rows, design) == 1.0
    return np.asarray(is_own[:, is_own.sum(axis=0) == 1].any(axis=1), dtype=np.bool_)
