"""The one quantile that is told of anything measured: the nearest rank."""

from __future__ import annotations

import math
from collections.abc import Iterable

_ROUNDING = 1e-9
"""A product of share and count may be off by less than this: 0.07 of 100 is 7.000000000000001."""


def nearest_rank(values: Iterable[float], share: float) -> float | None:
    """The smallest of the values that at least `share` of them do not exceed; None of nothing.

    It is always a value that was measured. Of fewer than 100 values the p99 is the largest.
    """
    ordered = sorted(values)
    return ordered[max(1, math.ceil(share * len(ordered) - _ROUNDING)) - 1] if ordered else None
