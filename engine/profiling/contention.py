"""The guard's first values: how much slower decode is beside prefill, with a bound for every cell of the
grid.

A few hundred pairs cannot visit thousands of cells. So the slowdown is fitted as a function of the grid's own
axes (`rows`). A cell's bound is the fit at the cell's worst corner, multiplied by how far held-out pairs
exceeded the fit. Source of the grid: MuxWise section 3.3.2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from pdmuxd.engine.core.errors import ProfileError
from pdmuxd.engine.core.guard import MAX_RATIO, GuardCell, guard_cell
from pdmuxd.engine.core.roofline import RooflineModel
from pdmuxd.engine.core.types import DecodeShape, PrefillShape
from pdmuxd.engine.profiling.hardware import Interference, Pair, interference_of
from pdmuxd.engine.profiling.measurement import Point
from pdmuxd.engine.profiling.regression import Floats, fit

NEW_TOKENS = (512, 16384)
REUSED_TOKENS = (512, 33280)
CONTEXT_TOKENS = (64, 16384)
REQUESTS = (1, 256)
"""Within these limits a slowdown grows or falls with the logarithm of each size; beyond them it stays as it
is."""


# Each column of `rows` grows with what was seen to slow decode on one H200 (Llama-8B, 387 pairs, 2026-11-21),
# so that a cell's worst corner is known: a long prefill takes the power that decode's SMs would have had,
# decode suffers by the KV that each request reads, and reused tokens and large batches, which decode and
# prefill read themselves, make it less. All of it depends on how the SMs are split.
def rows(split: tuple[int, int], prefills: Sequence[PrefillShape], decodes: Sequence[DecodeShape]) -> Floats:
    """One row per prefill and decode, in the order of their product."""
    of_prefill = np.array([_of_prefill(shape) for shape in prefills])
    of_decode = np.array([_of_decode(shape) for shape in decodes])
    axes = np.hstack([np.repeat(of_prefill, len(decodes), axis=0), np.tile(of_decode, (len(prefills), 1))])
    prefill_share = split[0] / sum(split)
    decode_share = 1.0 - prefill_share
    base = np.array([1.0, prefill_share, decode_share, prefill_share * decode_share])
    result: Floats = np.hstack(
        [np.tile(base, (len(axes), 1)), axes * prefill_share, axes * decode_share],
    )
    return result


def _of_prefill(shape: PrefillShape) -> tuple[float, float]:
    low, high = REUSED_TOKENS
    return (
        _above(shape.new_tokens, NEW_TOKENS),
        float(np.log2(high / np.clip(shape.reused_tokens + low, low, high))),
    )


def _of_decode(shape: DecodeShape) -> tuple[float, float]:
    bs = max(1, shape.bs)
    return _above(shape.reused_tokens / bs, CONTEXT_TOKENS), float(
        np.log2(REQUESTS[1] / np.clip(bs, *REQUESTS))
    )


def _above(size: float, within: tuple[int, int]) -> float:
    return float(np.log2(np.clip(size, *within) / within[0]))


MIN_PAIRS = 12
COVERAGE = 99.0
"""Every bound is multiplied by this percentile of the held-out slowdowns over the fit, in terms of the
scatter on its split. Some of what is beyond is stalls; the rest raises its cell when serving meets it."""
SHARED_PAIRS = 20.0
"""The weight of the scatter on all splits in that on one, in pairs: on one H200 it is 0.024 with decode on 64
SMs and 0.045 on 24, with about 40 pairs each (2026-11-23)."""
FOLDS = 6
ROUNDED = 3
"""Digits of a bound: finer than any measurement."""
_FEW_PAIRS_MARGIN = 0.04
_SMALLEST_SCATTER = 1e-6
"""Exact pairs do not scatter at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardFit:
    """Bounds, and how they did on pairs that the fit had not seen."""

    default_ratio: float
    cells: dict[GuardCell, float]
    interference: Interference
    exceeded_ratio: float
    """Share of held-out pairs that were slower than their bound. Those left out as stalls count: no bound is
    that high."""
    overestimate_ratio: float
    """Mean of bound / slowdown - 1 over held-out pairs."""
    pairs: int


def fit_guard(
    pairs: Sequence[Pair],
    *,
    roofline: RooflineModel,
    splits: Sequence[tuple[int, int]],
    kv_capacity_tokens: int,
    max_decode_bs: int,
) -> GuardFit:
    """Bounds for all cells that the engine can reach, and one for all others.

    Pairs slower than MAX_RATIO are stalls, not contention, and are left out. Raises: ProfileError for too few
    pairs.
    """
    kept = [pair for pair in pairs if pair.slowdown <= MAX_RATIO]
    if len(kept) < MIN_PAIRS:
        raise ProfileError(f"the guard: {len(kept)} pairs; at least {MIN_PAIRS} are needed")
    rows = np.vstack([_row(pair.point) for pair in kept])
    slowdowns = np.array([pair.slowdown for pair in kept])
    held_out = _held_out(rows, slowdowns)
    sms_of = [pair.point.decode_sms for pair in kept]
    widening_on = _widening(slowdowns / held_out, sms_of)
    coefficients = _fit(rows, slowdowns)
    highest = float(np.percentile(slowdowns, COVERAGE)) * max(map(widening_on, sms_of))
    cells = _cells(
        lambda sms, corners: np.minimum(corners @ coefficients * widening_on(sms), highest),
        roofline,
        splits,
        kv_capacity_tokens=kv_capacity_tokens,
        max_bs=max_decode_bs,
    )
    default_ratio = _bound(max(cells.values(), default=highest))
    of_cells = np.array([cells.get(_cell(pair.point), default_ratio) for pair in kept])
    bounds = np.maximum(1.0, of_cells * held_out / (rows @ coefficients))
    return GuardFit(
        default_ratio=default_ratio,
        cells=cells,
        interference=interference_of(kept, roofline),
        exceeded_ratio=(len(pairs) - len(kept) + int((slowdowns > bounds).sum())) / len(pairs),
        overestimate_ratio=float((bounds / np.maximum(1.0, slowdowns) - 1.0).mean()),
        pairs=len(kept),
    )


def _row(point: Point) -> Floats:
    split = (point.prefill_sms, point.decode_sms)
    return rows(split, [point.prefill_shape], [point.decode_shape])


def _cell(point: Point) -> GuardCell:
    return guard_cell(point.decode_sms, point.prefill_shape, point.decode_shape)


def _fit(rows: Floats, slowdowns: Floats) -> Floats:
    return fit(rows, slowdowns).coefficients


def _held_out(rows: Floats, slowdowns: Floats) -> Floats:
    """The slowdown of each pair, predicted by a fit to the other folds."""
    predicted = np.empty_like(slowdowns)
    fold_of = np.arange(len(slowdowns)) % FOLDS
    for fold in range(FOLDS):
        is_out = fold_of == fold
        predicted[is_out] = rows[is_out] @ _fit(rows[~is_out], slowdowns[~is_out])
    return predicted


def _widening(excess: Floats, decode_sms: Sequence[int]) -> Callable[[int], float]:
    """What bounds are multiplied by, by decode's SMs. With few pairs a margin is added: the highest excess
    was probably not seen yet."""
    margin = _FEW_PAIRS_MARGIN * min(1.0, 200.0 / len(excess))
    squares, sms_of = np.log(excess) ** 2, np.array(decode_sms)
    of_all = max(float(squares.mean()), _SMALLEST_SCATTER**2)

    def scatter(sms: int) -> float:
        there = squares[sms_of == sms]
        together = float(there.sum()) + SHARED_PAIRS * of_all
        return float(np.sqrt(together / (len(there) + SHARED_PAIRS)))

    scatters = np.array([scatter(sms) for sms in decode_sms])
    times = float(np.percentile(np.log(excess) / scatters, COVERAGE))
    return lambda sms: max(1.0, float(np.exp(times * scatter(sms))) + margin)


def _cells(
    bounds_of: Callable[[int, Floats], Floats],
    roofline: RooflineModel,
    splits: Sequence[tuple[int, int]],
    *,
    kv_capacity_tokens: int,
    max_bs: int,
) -> dict[GuardCell, float]:
    """The bound at the worst corner of each cell that fits into the KV pool; `bounds_of` turns decode's
    SMs and rows into bounds.

    No bound exceeds the highest slowdown that was seen, times the widening: far from the measurements the
    fitted line says nothing.
    """
    longest = min(roofline.model.max_context_tokens, kv_capacity_tokens)
    prefills = _prefill_corners(longest)
    decodes = _decode_corners(longest, kv_capacity_tokens, max_bs)
    cells: dict[GuardCell, float] = {}
    for split in splits:
        bounds = bounds_of(split[1], rows(split, prefills, decodes))
        for (prefill, decode), bound in zip(product(prefills, decodes), bounds, strict=True):
            if prefill.reused_tokens + prefill.new_tokens + decode.reused_tokens > kv_capacity_tokens:
                continue
            cell = guard_cell(split[1], prefill, decode)
            cells[cell] = max(cells.get(cell, 1.0), _bound(float(bound)))
    return cells


def _bound(ratio: float) -> float:
    return min(MAX_RATIO, max(1.0, round(ratio, ROUNDED)))


def _token_edges(longest: int) -> list[int]:
    """Both ends of every token cell up to `longest`: 2K, 8K, 32K and so on."""
    edges, edge = [1], 2048
    while edge <= longest:
        edges += [edge - 1, edge]
        edge *= 4
    return [*edges, longest]


def _prefill_corners(longest: int) -> list[PrefillShape]:
    edges = _token_edges(longest)
    news = [new for new in edges if new > 1] + [256]
    return [PrefillShape.of([(new, r)]) for new in news for r in [0, *edges] if new + r <= longest]


def _decode_corners(longest: int, capacity: int, max_bs: int) -> list[DecodeShape]:
    sizes = sorted({bs for power in range(10) for bs in (1 << power, (2 << power) - 1) if bs <= max_bs})
    edges = _token_edges(capacity)
    return [
        DecodeShape(bs=bs, reused_tokens=reused)
        for bs in sizes
        for reused in edges
        if bs <= reused <= min(bs * longest, capacity)
    ]
