"""Pairs for the guard: decode beside prefill, spread over each split."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from pdmuxd.engine.profiling import design_points
from pdmuxd.engine.profiling.points import Point
from pdmuxd.engine.profiling.regression import Floats
from pdmuxd.engine.profiling.target import Target

PAIRS = 320
_TRIED = 60
"""Pairs of the pool that are looked at for the next one."""


class PairChoice:
    """Which pair next."""

    def __init__(self, target: Target, *, max_point_s: float, chance: random.Random) -> None:
        self._target = target
        self._random = chance
        self._pools = {
            split: design_points.colocated_points(target, split, max_point_s) for split in target.splits
        }
        self._taken: dict[tuple[int, int], list[Floats]] = {split: [] for split in target.splits}

    @property
    def missing(self) -> int:
        """Pairs still to be measured."""
        return max(0, PAIRS - sum(len(timing) for timing in self._taken.values()))

    def next(self, overhead_s: float) -> Point | None:
        """From the split with the fewest pairs, the one furthest from those it has; None if all are taken."""
        splits = [split for split, pool in self._pools.items() if pool]
        if not splits or not self.missing:
            return None
        split = min(splits, key=lambda one: len(self._taken[one]))
        pool = self._pools[split]
        tried = self._random.sample(pool, min(_TRIED, len(pool)))
        point = max(tried, key=self._worth(self._taken[split], overhead_s))
        self.take(point)
        return point

    def take(self, point: Point) -> None:
        """Out of its pool, as good as measured."""
        split = (point.prefill_sms, point.decode_sms)
        if split in self._pools:
            self._taken[split].append(_place(point))
            if point in self._pools[split]:
                self._pools[split].remove(point)

    def cost_s(self) -> float:
        """Of a pair, on average."""
        costs = [
            design_points.cost_s(self._target, point) for pool in self._pools.values() for point in pool[::29]
        ]
        return float(np.mean(costs)) if costs else 0.0

    def _worth(self, timing: list[Floats], overhead_s: float) -> Callable[[Point], float]:
        def worth(point: Point) -> float:
            place = _place(point)
            near = min((float(np.abs(place - other).sum()) for other in timing), default=1.0)
            return float(near / (design_points.cost_s(self._target, point) + overhead_s) ** 0.5)

        return worth


def _place(point: Point) -> Floats:
    """Where a pair lies on the guard's grid, in powers of two."""
    prefill, decode = point.prefill_shape, point.decode_shape
    sizes = (prefill.new_tokens, prefill.reused_tokens + 512, decode.bs, decode.reused_tokens)
    return np.log2(np.array(sizes, dtype=np.float64))
