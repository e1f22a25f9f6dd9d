"""How much of a product is timed before its fastest kernel is known.

Two thirds of the 25 s for which the device timed products at a first start (Llama-8B, worked out from the
times that were measured on one H200, 2026-11-23) were layers beyond what its L2 cache could hold, and
repetitions of ways that the first replay had shown to be slow. Neither changes which way is chosen.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

_SMALL_ROWS, _SMALL_LAYERS = 256, 4
"""Products of few rows take so little that one alone could not be told from the launch of a graph."""
_WEIGHT_BYTES = 100_000_000
"""Weights of their own in a graph, so that none is found in the L2 cache: twice that of an H200 (50 MB)."""
_REPLAYS = 3
_SLOWER = 1.1
"""A way whose first replay takes this much longer than the fastest so far is not replayed again."""


def layers_to_time(rows: int, weight_bytes: int) -> int:
    """How many layers' weights one graph multiplies by."""
    if rows <= _SMALL_ROWS:
        return _SMALL_LAYERS
    return min(_SMALL_LAYERS, math.ceil(_WEIGHT_BYTES / weight_bytes))


def typical_s(replay_s: Callable[[], float], *, best_s: float) -> float:
    """Median of some replays; of one alone if that is clearly slower than `best_s`."""
    first_s = replay_s()
    if first_s > _SLOWER * best_s:
        return first_s
    return statistics.median([first_s, *(replay_s() for _ in range(_REPLAYS - 1))])
