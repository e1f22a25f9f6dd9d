"""The guard's first values: how much slower decode is beside prefill, bounded for every cell of the grid.

A few hundred pairs cannot visit thousands of cells. So the slowdown is fitted as a function of the grid's own
axes (`slowdown.py`), and a cell's bound is the fit at its worst corner, widened by what held-out pairs were
slower than it. Source of the grid: MuxWise section 3.3.2.
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
from pdmuxd.engine.profiling import slowdown
from pdmuxd.engine.profiling.colocation import Pair
from pdmuxd.engine.profiling.interference import Interference, interference_of
from pdmuxd.engine.profiling.points import Point
from pdmuxd.engine.profiling.regression import Floats, fit

MIN_PAIRS = 12
COVERAGE = 99.0
"""Percentile of the held-out excess over the fit that every bound is widened by; of what is beyond, some
is stalls, and the rest raises its cell when serving meets it."""
FOLDS = 6
ROUNDED = 3
"""Digits of a bound: finer than any measurement."""
_FEW_PAIRS_MARGIN = 0.04


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardFit:
    """Bounds, and how they did on pairs that the fit had not seen."""

    default_ratio: float
    cells: dict[GuardCell, float]
    interference: Interference
    exceeded_ratio: float
    """Share of held-out pairs that were slower than their bound."""
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
    """Bounds for all cells that the engine can reach, and for those beyond.

    Pairs slower than MAX_RATIO are stalls, not contention, and are left out.
    Raises: ProfileError for too few pairs.
    """
    kept = [pair for pair in pairs if pair.slowdown <= MAX_RATIO]
    if len(kept) < MIN_PAIRS:
        raise ProfileError(f"the guard: {len(kept)} pairs; at least {MIN_PAIRS} are needed")
    rows = np.vstack([_row(pair.point) for pair in kept])
    slowdowns = np.array([pair.slowdown for pair in kept])
    held_out = _held_out(rows, slowdowns)
    widening = _widening(slowdowns / held_out)
    coefficients = _fit(rows, slowdowns)
    highest = float(np.percentile(slowdowns, COVERAGE)) * widening
    cells = _cells(
        lambda corners: np.minimum(corners @ coefficients * widening, highest),
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
        exceeded_ratio=float((slowdowns > bounds).mean()),
        overestimate_ratio=float((bounds / np.maximum(1.0, slowdowns) - 1.0).mean()),
        pairs=len(kept),
    )


def _row(point: Point) -> Floats:
    split = (point.prefill_sms, point.decode_sms)
    return slowdown.rows(split, [point.prefill_shape], [point.decode_shape])


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


def _widening(excess: Floats) -> float:
    """What bounds are multiplied by; with few pairs the highest excess is not yet the highest there is."""
    margin = _FEW_PAIRS_MARGIN * min(1.0, 200.0 / len(excess))
    return max(1.0, float(np.percentile(excess, COVERAGE)) + margin)


def _cells(
    bounds_of: Callable[[Floats], Floats],
    roofline: RooflineModel,
    splits: Sequence[tuple[int, int]],
    *,
    kv_capacity_tokens: int,
    max_bs: int,
) -> dict[GuardCell, float]:
    """The worst corner of each cell that fits into the KV pool; `bounds_of` is from rows to bounds.

    No bound is above the highest slowdown that was seen, widened: a line is no guide out there.
    """
    longest = min(roofline.model.max_context_tokens, kv_capacity_tokens)
    prefills = _prefill_corners(longest)
    decodes = _decode_corners(longest, kv_capacity_tokens, max_bs)
    cells: dict[GuardCell, float] = {}
    for split in splits:
        bounds = bounds_of(slowdown.rows(split, prefills, decodes))
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
