"""The highest point of a grid that still passes. Pure.

Rates stand on a geometric grid through 1 request a second, so that the answer does not depend on where
the search began, and two policies that hold the same rate get the same number.
"""

from __future__ import annotations

import math
from collections.abc import Callable

FIRST_STEP = 8
"""Of the bracketing, in grid points; it doubles until the boundary lies between two probes."""


def rate_at(point: int, resolution: float) -> float:
    """The rate of a grid point; neighbours are a factor of 1 + `resolution` apart."""
    return (1.0 + resolution) ** point


def point_of(rate_rps: float, resolution: float) -> int:
    """The grid point nearest to a rate."""
    return round(math.log(rate_rps) / math.log1p(resolution))


def highest_passing(
    passes: Callable[[int], bool], *, start: int, lowest: int, highest: int, first_step: int = FIRST_STEP
) -> int | None:
    """The point from `lowest` to `highest` that passes and whose successor does not; None if none passes.

    Brackets from `start` with doubling steps, then bisects. If passing is not monotone, it is one such
    point among several.
    """
    start = min(max(start, lowest), highest)
    step = first_step
    if passes(start):
        low, high = start, highest + 1
        while low < highest:
            probe = min(low + step, highest)
            if not passes(probe):
                high = probe
                break
            low, step = probe, 2 * step
    else:
        low, high = lowest - 1, start
        while high > lowest:
            probe = max(high - step, lowest)
            if passes(probe):
                low = probe
                break
            high, step = probe, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        if passes(middle):
            low = middle
        else:
            high = middle
    return low if low >= lowest else None
