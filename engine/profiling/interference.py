"""How much two streams slow each other beyond sharing bandwidth: what the emulated device is told."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from pdmuxd.engine.profiling.regression import Floats

HIGHEST = 1.0
"""Of each: what the emulated device accepts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interference:
    """Slowdowns beyond 1, typical ones."""

    decode_ratio: float = 0.0
    """Of decode beside any prefill."""
    contention_ratio: float = 0.0
    """Of decode, per share of the bandwidth that prefill moves."""
    prefill_contention_ratio: float | None = None
    """Of prefill, per share of the bandwidth that decode moves; None if no pair tells."""


def fit_interference(
    shares: Floats, busy: Floats, decode_slowdowns: Floats, prefill_slowdowns: Floats
) -> Interference:
    """Least squares of what the sharing of bandwidth does not explain.

    `shares` has a row (prefill's, decode's) for each pair, `busy` the share of its decode steps that is on
    the device: only then does either slow the other. Of a prefill that was not measured the slowdown is NaN.
    """
    overcommit = np.maximum(1.0, shares.sum(axis=1))
    on_device = (decode_slowdowns - 1.0) / busy + 1.0
    terms = np.column_stack([np.ones(len(shares)), shares[:, 0]])
    (fixed, per_share), _ = nnls(terms, np.maximum(0.0, on_device / overcommit - 1.0))
    known = np.isfinite(prefill_slowdowns)
    prefill = None
    if known.any():
        decode_share, excess = (shares[:, 1] * busy)[known], prefill_slowdowns[known] - 1.0
        prefill = _within(float(decode_share @ excess / max(1e-9, float(decode_share @ decode_share))))
    return Interference(
        decode_ratio=_within(float(fixed)),
        contention_ratio=_within(float(per_share)),
        prefill_contention_ratio=prefill,
    )


def _within(ratio: float) -> float:
    return min(HIGHEST, max(0.0, ratio))
