"""A mean over seeds and how far it can be trusted."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
from scipy.special import stdtrit

QUANTILE = 0.975
"""Of Student's t: 95% of the distribution lie between minus this quantile and plus it."""


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A mean and the half-width of its 95% confidence interval; None with a single value."""

    mean: float
    half_width_95: float | None


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and interval of independent values, at least one."""
    count = len(values)
    mean = math.fsum(values) / count
    if count < 2:
        return Estimate(mean=mean, half_width_95=None)
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    t = float(stdtrit(count - 1, QUANTILE))
    return Estimate(mean=mean, half_width_95=t * math.sqrt(variance / count))
