"""Non-negative linear regression of relative errors that single outliers cannot move."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy  # loads scipy.optimize when it is first used: a daemon starts without it
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

CUT_SCALES = 4.0
"""A sample further off than so many robust standard deviations is an outlier."""
CUT_FLOOR = 0.03
"""But a sample nearer than this is never one: exact samples do not scatter at all."""
TABLE_CUT_FLOOR = 0.12
"""The same where most sizes have a time of their own: there, too, hardly anything is left to scatter."""
PRIOR_SAMPLES = 2.0
"""The weight of a whole prior, in samples: enough to settle what the samples leave open, too little to
contradict them."""
FLOOR_WIDTH = 1.1
"""Samples within this of the shortest are taken to lie on the floor at first."""
MIN_ON_FLOOR = 3
_ROUNDS = 2
_ABSOLUTE_ROUNDS = 15
_SMALLEST_RESIDUAL = 1e-3
"""Far below any scatter of measurements."""
_FLOOR_ROUNDS = 6
_MAD_TO_SIGMA = 1.4826


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """What is expected where nothing was measured: rows like a sample's, with little weight."""

    design: Floats
    seconds: Floats

    def above(self, seconds: float) -> Prior:
        """Subtract what is expected to take less."""
        kept = self.seconds > seconds
        return Prior(design=self.design[kept], seconds=self.seconds[kept])


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """A fit of `max(floor, design @ coefficients)` to seconds."""

    coefficients: Floats
    floor_s: float
    """Nothing takes less; 0 without a floor."""
    residuals: Floats
    """Per sample, relative: 1 - predicted / measured."""
    is_inlier: Bools
    left_out_residuals: Floats
    """What the residual of each sample would be had it been left out."""


def fit_above_floor(
    design: Floats,
    seconds: Floats,
    prior: Prior | None = None,
    confirmed: Bools | None = None,
    *,
    known_floor_s: float | None = None,
) -> Regression | None:
    """Fit as `fit` does, with a time that nothing undercuts; it is fitted unless it is known. None if the
    samples show no floor.

    Which samples lie on the floor and what the others cost is found in turns, until the two agree.
    """
    floor_s = float(np.percentile(seconds, 5.0)) if known_floor_s is None else known_floor_s
    is_above = seconds > FLOOR_WIDTH * floor_s
    found: Regression | None = None
    for _ in range(_FLOOR_ROUNDS):
        if is_above.sum() < 1.5 * design.shape[1]:
            return None
        if known_floor_s is None:
            if (~is_above).sum() < MIN_ON_FLOOR:
                return None
            floor_s = float(np.median(seconds[~is_above]))
        above = None if prior is None else prior.above(FLOOR_WIDTH * floor_s)
        sure = None if confirmed is None else confirmed[is_above]
        found = fit(design[is_above], seconds[is_above], above, sure)
        now_above = design @ found.coefficients > floor_s
        if (now_above == is_above).all():
            break
        is_above = now_above
    if found is None:
        return None
    predicted = np.maximum(floor_s, design @ found.coefficients)
    residuals: Floats = 1.0 - predicted / seconds
    left_out = residuals.copy()
    if len(found.left_out_residuals) == int(is_above.sum()):
        left_out[is_above] = found.left_out_residuals
    return Regression(
        coefficients=found.coefficients,
        floor_s=floor_s,
        residuals=residuals,
        is_inlier=inliers_of(residuals, confirmed),
        left_out_residuals=left_out,
    )


def fit(
    design: Floats,
    seconds: Floats,
    prior: Prior | None = None,
    confirmed: Bools | None = None,
    *,
    cut_floor: float = CUT_FLOOR,
) -> Regression:
    """Least squares of relative errors over the inliers, with no coefficient below zero.

    Outliers are found first, by the least sum of absolute errors, which a few of them cannot move. `design`
    has a row per sample; seconds are positive. `prior` counts where samples say little. What is `confirmed`
    was measured twice and is never an outlier.
    """
    measured = design / seconds[:, None]
    prior_rows = prior.design / prior.seconds[:, None] if prior is not None else measured[:0]
    scale = np.abs(np.vstack([measured, prior_rows])).max(axis=0)
    scale = np.maximum(scale, np.finfo(np.float64).tiny)
    rows, prior_rows = measured / scale, prior_rows / scale
    solution = _least_absolute(rows, prior_rows)
    for _ in range(_ROUNDS):
        is_inlier = inliers_of(1.0 - rows @ solution, confirmed, cut_floor)
        weight = np.sqrt(_prior_weight(prior_rows))
        system = np.vstack([rows[is_inlier], weight * prior_rows])
        wanted = np.concatenate([np.ones(int(is_inlier.sum())), np.full(len(prior_rows), weight)])
        solution, _ = scipy.optimize.nnls(system, wanted)
    residuals = 1.0 - rows @ solution
    return Regression(
        coefficients=solution / scale,
        floor_s=0.0,
        residuals=residuals,
        is_inlier=is_inlier,
        left_out_residuals=residuals / (1.0 - _leverage(rows, solution, is_inlier)),
    )


def _prior_weight(prior_rows: Floats) -> float:
    """The prior weight of one of its rows."""
    return PRIOR_SAMPLES / max(1, len(prior_rows))


def inliers_of(residuals: Floats, confirmed: Bools | None = None, cut_floor: float = CUT_FLOOR) -> Bools:
    """Which residuals are no further off than the scatter of the others explains; confirmed ones always."""
    sigma = _MAD_TO_SIGMA * float(np.median(np.abs(residuals)))
    kept: Bools = np.abs(residuals) <= max(CUT_SCALES * sigma, cut_floor)
    return kept if confirmed is None else kept | confirmed


def leverage_of(inverse: Floats, rows: Floats) -> Floats:
    """How far each row is from what was measured: the variance of its prediction, as a multiple of the
    noise's."""
    result: Floats = np.einsum("ij,jk,ik->i", rows, inverse, rows)
    return result


def _least_absolute(rows: Floats, prior_rows: Floats) -> Floats:
    """The least sum of absolute residuals, by least squares whose weights are 1 / residual, in turns."""
    system = np.vstack([rows, prior_rows])
    base = np.concatenate([np.ones(len(rows)), np.full(len(prior_rows), _prior_weight(prior_rows))])
    weights = np.sqrt(base)
    solution: Floats = np.zeros(rows.shape[1])
    for _ in range(_ABSOLUTE_ROUNDS):
        solution, _ = scipy.optimize.nnls(system * weights[:, None], weights)
        residuals = np.abs(1.0 - system @ solution)
        weights = np.sqrt(base / np.maximum(residuals, _SMALLEST_RESIDUAL))
    return solution


def _leverage(rows: Floats, solution: Floats, is_inlier: Bools) -> Floats:
    """Diagonal of the hat matrix over the terms in use; below 1, so that a division by its rest is safe."""
    used = rows[:, solution > 0.0]
    inliers = used[is_inlier]
    inverse: Floats = np.linalg.pinv(inliers.T @ inliers).astype(np.float64)
    leverage = leverage_of(inverse, used)
    leverage[~is_inlier] = 0.0
    result: Floats = np.minimum(leverage, 0.95)
    return result
