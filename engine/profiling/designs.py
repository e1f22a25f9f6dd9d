"""What a latency is taken to depend on, as columns of a regression, and back to predictors of the core.

MuxWise's equations with the additions of the core's predictors. Slopes are non-negative, so more work is
never predicted to be faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pdmuxd.engine.core.latency import (
    Curve,
    DecodeCoefficients,
    FusedCoefficients,
    PrefillCoefficients,
    padded_bs,
)
from pdmuxd.engine.core.types import PrefillShape
from pdmuxd.engine.profiling.points import Point
from pdmuxd.engine.profiling.regression import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """How a predictor is built: where its line bends, how tokens are counted, whether it has a floor."""

    knots: tuple[int, ...] = ()
    has_floor: bool = False
    tile_tokens: int = 1
    captured_bs: tuple[int, ...] = ()


PREFILL_KNOTS = (128, 256, 512, 1024, 2048, 4096)
DECODE_KNOTS = (8, 16, 32, 64, 72, 128, 136, 192)
"""Matrix products take 64 or 128 rows at a time: on few SMs one row more costs a whole wave."""
TILES = (1, 64, 128)


def prefill_rows(points: Sequence[Point], design: Design) -> Floats:
    """The sums of eq. 1, reused tokens, fixed, and a column per segment of the line of tokens."""
    shapes = [point.prefill_shape for point in points]
    sums = [_prefill_sums(shape) for shape in shapes]
    tokens = [-(-s.new_tokens // design.tile_tokens) * design.tile_tokens for s in shapes]
    return np.hstack([np.array(sums), _segments(tokens, design.knots)])


def _prefill_sums(shape: PrefillShape) -> list[float]:
    return [float(shape.sum_new_squared), float(shape.sum_new_times_reused), float(shape.reused_tokens), 1.0]


def prefill_of(coefficients: Floats, floor_s: float, design: Design) -> PrefillCoefficients:
    """The predictor that the coefficients of `prefill_rows` are of."""
    squared, cross, reused, fixed = (float(x) for x in coefficients[:4])
    slope, curve = _line(coefficients[4:], design.knots)
    return PrefillCoefficients(
        per_new_squared_s=squared,
        per_new_times_reused_s=cross,
        per_new_s=slope,
        fixed_s=fixed,
        curve=curve,
        tile_tokens=design.tile_tokens,
        per_reused_s=reused,
        floor_s=floor_s,
    )


def decode_rows(points: Sequence[Point], design: Design) -> Floats:
    """Reused tokens, fixed, and a column per segment of the line of (padded) requests."""
    shapes = [point.decode_shape for point in points]
    sums = [[float(s.reused_tokens), 1.0] for s in shapes]
    sizes = [padded_bs(s.bs, design.captured_bs) for s in shapes]
    return np.hstack([np.array(sums), _segments(sizes, design.knots)])


def decode_of(coefficients: Floats, _floor_s: float, design: Design) -> DecodeCoefficients:
    """The predictor that the coefficients of `decode_rows` are of."""
    slope, curve = _line(coefficients[2:], design.knots)
    return DecodeCoefficients(
        per_reused_s=float(coefficients[0]),
        per_request_s=slope,
        fixed_s=float(coefficients[1]),
        curve=curve,
    )


def fused_rows(points: Sequence[Point], design: Design) -> Floats:
    """Decode's reused tokens, and the columns of a prefill of all tokens of the batch."""
    sums, tokens = [], []
    for point in points:
        prefill, decode = point.prefill_shape, point.decode_shape
        sums.append([float(decode.reused_tokens), *_prefill_sums(prefill)])
        count = prefill.new_tokens + decode.bs
        tokens.append(-(-count // design.tile_tokens) * design.tile_tokens)
    return np.hstack([np.array(sums), _segments(tokens, design.knots)])


def fused_of(coefficients: Floats, floor_s: float, design: Design) -> FusedCoefficients:
    """The predictor that the coefficients of `fused_rows` are of."""
    return FusedCoefficients(
        prefill=prefill_of(coefficients[1:], floor_s, design), per_reused_s=float(coefficients[0])
    )


def _segments(sizes: Sequence[float], knots: Sequence[int]) -> Floats:
    """How much of each size lies in each segment; the last segment has no end."""
    ends = [0.0, *(float(knot) for knot in knots), np.inf]
    size = np.asarray(sizes, dtype=np.float64)[:, None]
    starts = np.asarray(ends[:-1])
    lengths = np.diff(ends)
    result: Floats = np.clip(size - starts, 0.0, lengths)
    return result


def _line(slopes: Floats, knots: Sequence[int]) -> tuple[float, Curve]:
    """The slope of the last segment, and what the others add to the line of that slope."""
    last = float(slopes[-1])
    ends = (0, *knots)
    curve, seconds = [(0.0, 0.0)], 0.0
    for slope, start, end in zip(slopes[:-1], ends[:-1], ends[1:], strict=True):
        seconds += (float(slope) - last) * (end - start)
        curve.append((float(end), seconds))
    return last, tuple(curve) if knots else ()
