"""A mean over seeds and how far it can be trusted."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

# Two-sided 95% quantiles of Student's t distribution for 1 to 30 degrees of freedom.
T_95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
Z_95 = 1.960


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
    t = T_95[count - 2] if count - 2 < len(T_95) else Z_95
    return Estimate(mean=mean, half_width_95=t * math.sqrt(variance / count))
