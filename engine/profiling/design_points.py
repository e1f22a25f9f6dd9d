"""Points worth measuring: the pool that a campaign picks from, and which colocated pair is next.

Sizes grow like a ladder, with odd ones in between: serving meets odd sizes, and devices are faster with round
ones.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from pdmuxd.engine.profiling.hardware import predict_s
from pdmuxd.engine.profiling.measurement import Point, Target
from pdmuxd.engine.profiling.regression import Floats

NEW_TOKENS = (
    16, 32, 64, 96, 128, 150, 192, 256, 300, 384, 440, 512, 600, 700, 768, 900, 1024,
    1200, 1536, 2048, 2500, 3072, 4096, 5000, 6144, 8192, 10000, 12288, 16384,
)  # fmt: skip
REUSED_TOKENS = (0, 512, 2048, 8192, 32768)
BATCHED = ((2, 0), (4, 0), (4, 2048))
"""(requests, reused tokens each) of prefill batches of several."""
DECODE_BS = (
    1,
    2,
    4,
    6,
    8,
    12,
    16,
    24,
    32,
    40,
    48,
    56,
    64,
    72,
    80,
    96,
    112,
    128,
    136,
    160,
    176,
    192,
    224,
    256,
)
CONTEXT_TOKENS = (64, 256, 1024, 4096, 16384)
CHUNK_TOKENS = (32, 64, 128, 200, 256, 384, 512, 700, 1024, 1500, 2048, 4096)

FUSED_BS = (1, 8, 32, 64, 128)
FUSED_CONTEXT = (512, 2048, 8192)

COLOCATED_NEW = (1024, 2048, 4096, 8192, 16384)
COLOCATED_REUSED = (0, 2048, 8192, 32768)
COLOCATED_BS = (1, 4, 16, 32, 64, 128, 256)
COLOCATED_CONTEXT = (256, 1024, 4096, 16384)
COLOCATED_STEPS = 2.5
"""A prefill must last for so many decode steps; otherwise no step has it beside it from start to end."""


def prefill_points(target: Target, sms: int, max_point_s: float) -> list[Point]:
    """Prefills alone that take at most `max_point_s`."""
    batches: list[tuple[tuple[int, int], ...]] = []
    for new in NEW_TOKENS:
        batches += [((new, reused),) for reused in REUSED_TOKENS]
        batches += [((new // count, reused),) * count for count, reused in BATCHED if new >= 64 * count]
    points = (Point(mode="prefill", prefill_sms=sms, decode_sms=0, prefill=batch) for batch in batches)
    return list(possible(points, target, max_point_s))


def decode_points(target: Target, sms: int, max_point_s: float) -> list[Point]:
    """Decode steps alone, with contexts that are equal and with contexts that are not."""
    points = (
        Point(mode="decode", prefill_sms=0, decode_sms=sms, decode=contexts)
        for bs in sorted({*DECODE_BS, *target.hello.captured_decode_bs})
        for context in CONTEXT_TOKENS
        for contexts in _contexts(bs, context)
    )
    return list(possible(points, target, max_point_s))


def fused_points(target: Target, sms: int, max_point_s: float) -> list[Point]:
    """Mixed batches: a chunk of one prompt, and a decode batch; with one request, every size of graph."""
    shapes = [
        (new, reused, bs, context)
        for new in CHUNK_TOKENS
        for reused in (0, 2048, 8192)
        for bs in FUSED_BS
        for context in FUSED_CONTEXT
    ]
    graphs = [(tokens - 1, 0, 1, 512) for tokens in target.hello.captured_fused_tokens if tokens > 1]
    points = (
        Point(
            mode="fused",
            prefill_sms=sms,
            decode_sms=sms,
            prefill=((new, reused),),
            decode=(context,) * bs,
        )
        for new, reused, bs, context in (*shapes, *graphs)
    )
    return list(possible(points, target, max_point_s))


def fused_of_size(target: Target, sms: int, tokens: int) -> list[Point]:
    """Mixed batches of just so many tokens, with decode batches and contexts of all kinds."""
    points = (
        Point(
            mode="fused",
            prefill_sms=sms,
            decode_sms=sms,
            prefill=((tokens - bs, 0),),
            decode=(context,) * bs,
        )
        for bs in FUSED_BS
        if bs < tokens
        for context in FUSED_CONTEXT
    )
    return list(possible(points, target, math.inf))


def colocated_points(target: Target, split: tuple[int, int], max_point_s: float) -> list[Point]:
    """Pairs over the guard's grid."""
    prefill_sms, decode_sms = split
    points = (
        Point(
            mode="colocated",
            prefill_sms=prefill_sms,
            decode_sms=decode_sms,
            prefill=((new, reused),),
            decode=(context,) * bs,
        )
        for new in COLOCATED_NEW
        for reused in COLOCATED_REUSED
        for bs in COLOCATED_BS
        for context in COLOCATED_CONTEXT
    )
    return [
        point
        for point in possible(points, target, max_point_s)
        if colocated_prefill_s(target, point) >= COLOCATED_STEPS * predict_s(target.prior, point)
    ]


def colocated_prefill_s(target: Target, point: Point) -> float:
    """How long the prefill of a pair is expected to take alone."""
    return target.prior.prefill_s(point.prefill_shape, point.prefill_sms)


def cost_s(target: Target, point: Point) -> float:
    """What running a point once is expected to take."""
    if point.mode == "colocated":
        return colocated_prefill_s(target, point)
    return predict_s(target.prior, point, target.hello.captured_decode_bs)


def _contexts(bs: int, context: int) -> Iterator[tuple[int, ...]]:
    """A batch of equal contexts; and for some sizes one of the same sum in which a single request has half of
    the tokens."""
    yield (context,) * bs
    if bs in (4, 16, 64):
        rest = max(1, context // 2)
        yield (context * bs - rest * (bs - 1), *(rest,) * (bs - 1))


def possible(points: Iterable[Point], target: Target, max_point_s: float) -> Iterator[Point]:
    """Points that the engine holds and that take at most so long."""
    longest = target.model.max_context_tokens
    for point in points:
        if point.prefill_shape.new_tokens > target.max_new_tokens or point.kv_tokens > target.kv_tokens:
            continue
        if len(point.decode) > target.hello.max_decode_bs or any(one >= longest for one in point.decode):
            continue
        if any(new + reused > longest for new, reused in point.prefill):
            continue
        if cost_s(target, point) <= max_point_s:
            yield point


PAIRS = 320
_TRIED = 60
"""Pairs of the pool that are looked at for the next one."""


class PairChoice:
    """Which pair next."""

    def __init__(self, target: Target, *, max_point_s: float, chance: random.Random) -> None:
        self._target = target
        self._random = chance
        self._pools = {split: colocated_points(target, split, max_point_s) for split in target.splits}
        self._taken: dict[tuple[int, int], list[Floats]] = {split: [] for split in target.splits}

    @property
    def missing(self) -> int:
        """Pairs still to be measured."""
        return max(0, PAIRS - sum(len(taken) for taken in self._taken.values()))

    def next(self, overhead_s: float) -> Point | None:
        """Take from the split with the fewest pairs, the one furthest from those it has; None if all are
        taken."""
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
        """The cost of a pair, on average."""
        costs = [cost_s(self._target, point) for pool in self._pools.values() for point in pool[::29]]
        return float(np.mean(costs)) if costs else 0.0

    def _worth(self, taken: list[Floats], overhead_s: float) -> Callable[[Point], float]:
        def worth(point: Point) -> float:
            place = _place(point)
            near = min((float(np.abs(place - other).sum()) for other in taken), default=1.0)
            return float(near / (cost_s(self._target, point) + overhead_s) ** 0.5)

        return worth


def _place(point: Point) -> Floats:
    """Where a pair lies on the guard's grid, in powers of two."""
    prefill, decode = point.prefill_shape, point.decode_shape
    sizes = (prefill.new_tokens, prefill.reused_tokens + 512, decode.bs, decode.reused_tokens)
    return np.log2(np.array(sizes, dtype=np.float64))
