"""Fits of batches that wait for their longest context where it outlasts what all contexts take together.

The longer of two is not linear, but it is linear once it is known which of the two is the longer.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pdmuxd.engine.profiling.designs import CONTEXT_COLUMNS, Design
from pdmuxd.engine.profiling.regression import (
    CUT_FLOOR,
    PRIOR_SAMPLES,
    Bools,
    Floats,
    Prior,
    Regression,
    fit,
)

_ROUNDS = 8
_MAX_CONTEXT = -1
_STARTS = (0.0, 4.0, 8.0, 16.0)
"""What a token of the longest context may take, in tokens of all contexts; 0: it is taken to add to them.
How the search ends depends on how it starts; on one H200 it is 8 to 13 (2026-11-22)."""


def fit_max_context(
    rows: Floats,
    seconds: Floats,
    prior: Prior | None = None,
    confirmed: Bools | None = None,
    *,
    cut_floor: float = CUT_FLOOR,
) -> Regression:
    """As `fit`: which samples wait for their longest context and what all cost, in turns, until they agree.

    Of several starts that which ends nearest to the samples and to the belief.
    """
    added = fit(rows, seconds, prior, confirmed, cut_floor=cut_floor)
    ends = [
        _agreed(rows, seconds, prior, confirmed, cut_floor=cut_floor, start=_started(added, ratio))
        for ratio in _STARTS
    ]
    return min(ends, key=lambda found: _distance(found, prior))


def _distance(found: Regression, prior: Prior | None) -> float:
    """The sum of absolute errors, a belief weighed as fits weigh it."""
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
    """Each row without the one of the two that takes less."""
    chosen = rows.copy()
    chosen[waits, CONTEXT_COLUMNS] = 0.0
    chosen[~waits, _MAX_CONTEXT] = 0.0
    return chosen
