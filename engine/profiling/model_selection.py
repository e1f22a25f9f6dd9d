"""Which design of a predictor: the simplest that predicts held-out samples as well as any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pdmuxd.engine.profiling.designs import Design, own_columns
from pdmuxd.engine.profiling.max_context import fit_max_context, predict
from pdmuxd.engine.profiling.regression import (
    CUT_FLOOR,
    TABLE_CUT_FLOOR,
    Bools,
    Floats,
    Prior,
    Regression,
    fit,
    fit_above_floor,
)

FOLDS = 5
PROMISING = 2.0
"""Times the best score, what a design may have to be tried on held-out samples."""
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
    """The simplest of those that predict held-out samples as well as any, and its errors there.

    A sample that alone says what its size takes is not held out: nothing else could tell.

    What a fit says of samples that it was fitted to flatters designs with many terms; but fitting all designs
    to all folds takes too long, so only those go on that it speaks well of, one for each number of terms.
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
    return best, of_best[~np.isnan(of_best)]


def _tells_more(design: Design, other: Design) -> bool:
    """Of sizes that the other interpolates. That they were measured once shows in no sample held out."""
    return bool(other.own_bs) and set(design.own_bs) > set(other.own_bs)


def _is_better(errors: Floats, of_best: Floats, at_most: float) -> bool:
    """By the samples that were held out of both: its error is at most that share of the other's."""
    judged = ~np.isnan(errors) & ~np.isnan(of_best)
    if judged.sum() < MIN_JUDGED:
        return False
    p90, best_p90 = (np.percentile(each[judged], 90.0) for each in (errors, of_best))
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
    cut_floor = TABLE_CUT_FLOOR if design.own_bs else CUT_FLOOR
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
    """The relative error of each sample, predicted by a fit to the other folds; NaN if it was in all."""
    errors = np.full_like(seconds, np.nan)
    fold_of = _folds(rows, design)
    for fold in range(FOLDS):
        is_out = fold_of == fold
        if is_out.any():
            kept, kept_s = rows[~is_out], seconds[~is_out]
            sure = confirmed[~is_out]
            found = fit_design(kept, kept_s, design, prior, sure, floor_s) or fit(kept, kept_s, prior, sure)
            predicted = predict(rows[is_out], found, design)
            errors[is_out] = np.abs(predicted / seconds[is_out] - 1.0)
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
