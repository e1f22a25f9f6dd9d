"""The columns of the regression for each predictor, and the way back from coefficients to predictors of the
core.

MuxWise's equations with the additions of the core's predictors. Slopes are non-negative, so more work is
never predicted to be faster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np

from pdmuxd.engine.core.latency import (
    Curve,
    DecodeCoefficients,
    FusedCoefficients,
    PrefillCoefficients,
    batch_max_context_tokens,
    on_curve,
    padded_bs,
)
from pdmuxd.engine.core.shapes import Experts
from pdmuxd.engine.core.types import PrefillShape
from pdmuxd.engine.link.messages import Hello
from pdmuxd.engine.profiling.measurement import Point
from pdmuxd.engine.profiling.regression import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """How a predictor is built: where its line bends, how tokens are counted, whether it has a floor."""

    knots: tuple[int, ...] = ()
    has_floor: bool = False
    tile_tokens: int = 1
    captured_bs: tuple[int, ...] = ()
    own_bs: tuple[int, ...] = ()
    """Batch sizes, or tokens of fused batches, that have a time of their own beside the line; in between, a
    straight line from one to the next."""
    has_max_context: bool = False
    """Whether the longest context, in the last column, may outlast what all contexts take. Not together with
    a floor: batches whose attention is not split run as whole graphs, which the host launches at once."""
    experts: Experts | None = None
    """Of the model, if decode's line bends as the number of experts grows whose weights a batch reads."""


PREFILL_KNOTS = (128, 256, 512, 1024, 2048, 4096)
FUSED_KNOTS = PREFILL_KNOTS[:-1]
"""The largest chunks that are measured have 4096 tokens, so a bend there could not be told from a straight
line."""
DECODE_KNOTS = (8, 16, 32, 64, 72, 128, 136, 192)
"""Matrix products take 64 or 128 rows at a time: on few SMs one row more costs a whole wave."""
CONTEXT_COLUMNS = slice(0, 4)
"""The columns of `fused_rows` for what all contexts take when all SMs share them."""
_REQUESTS = 5
"""The column of `fused_rows` for the requests that decode."""
EXPERTS_BS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024)
"""Batch sizes between which the number of touched experts is taken for a straight line, the captured ones
aside."""
OWN_SAMPLES = 2
"""So many samples of a batch size are needed to judge a time of its own: a single one would always fit."""
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


def own_sizes(
    sizes: Sequence[int], captured_bs: Sequence[int], at_least: int = OWN_SAMPLES
) -> tuple[int, ...]:
    """The padded sizes with at least so many samples. Sizes beyond the largest graph have no time of their
    own."""
    largest = max(captured_bs, default=max(sizes, default=0))
    counts = Counter(padded_bs(size, captured_bs) for size in sizes if size <= largest)
    return tuple(sorted(size for size, count in counts.items() if count >= at_least))


def decode_rows(points: Sequence[Point], design: Design) -> Floats:
    """Reused tokens, fixed, a column per segment of the line of (padded) requests, one per own size, and the
    touched experts if they count."""
    shapes = [point.decode_shape for point in points]
    sums = [[float(s.reused_tokens), 1.0] for s in shapes]
    sizes = [padded_bs(s.bs, design.captured_bs) for s in shapes]
    rows = np.hstack([np.array(sums), _segments(sizes, design.knots), _own(sizes, design.own_bs)])
    if design.experts is None:
        return rows
    touched = _touched(design.experts, design)
    return np.hstack([rows, np.array([[on_curve(touched, size)] for size in sizes])])


def decode_of(coefficients: Floats, _floor_s: float, design: Design) -> DecodeCoefficients:
    """The predictor that the coefficients of `decode_rows` are of.

    It falls where a larger batch was measured to take less: libraries choose another kernel for it. One H200
    (Llama-8B, 20 SMs, 2026-11-21) decodes 128 requests in 25 ms and 112 in 33 ms.
    """
    slopes = len(design.knots) + 1
    slope, curve = _line(coefficients[2 : 2 + slopes], design.knots)
    if design.own_bs:
        curve = _own_curve(coefficients[3:], design.own_bs)
    if design.experts is not None:
        touched = _touched(design.experts, design)
        each_s = float(coefficients[-1])
        sizes = sorted({size for size, _ in (*curve, *touched)})
        curve = tuple((size, on_curve(curve, size) + each_s * on_curve(touched, size)) for size in sizes)
    return DecodeCoefficients(
        per_reused_s=float(coefficients[0]),
        per_request_s=slope,
        fixed_s=float(coefficients[1]),
        curve=curve,
    )


def _touched(experts: Experts, design: Design) -> Curve:
    """How many experts' weights a batch of each size reads."""
    sizes = sorted({0, *EXPERTS_BS, *design.captured_bs, *design.knots})
    return tuple((float(size), experts.touched(size)) for size in sizes)


def fused_rows(points: Sequence[Point], design: Design) -> Floats:
    """Decode's reused tokens, a prefill of all tokens of the batch with decode's requests behind its sums, a
    column per own size, and the longest context if it counts. Where graphs were captured, tokens are those of
    the graph that a batch replays."""
    sums, tokens, max_contexts = [], [], []
    for point in points:
        prefill, decode = point.prefill_shape, point.decode_shape
        sums.append([float(decode.reused_tokens), *_prefill_sums(prefill), float(decode.bs)])
        tokens.append(_replayed(prefill.new_tokens + decode.bs, design))
        max_contexts.append([batch_max_context_tokens(prefill, decode)])
    rows = np.hstack([np.array(sums), _segments(tokens, design.knots), _own(tokens, design.own_bs)])
    return np.hstack([rows, np.array(max_contexts)]) if design.has_max_context else rows


def fused_of(coefficients: Floats, floor_s: float, design: Design) -> FusedCoefficients:
    """The predictor that the coefficients of `fused_rows` are of."""
    end = 7 + len(design.knots)
    prefill = prefill_of(np.delete(coefficients[1:end], _REQUESTS - 1), floor_s, design)
    if design.own_bs:
        prefill = replace(prefill, curve=_own_curve(coefficients[end:], design.own_bs))
    return FusedCoefficients(
        prefill=prefill,
        per_reused_s=float(coefficients[0]),
        per_max_context_s=float(coefficients[-1]) if design.has_max_context else 0.0,
        captured=design.captured_bs,
        per_request_s=float(coefficients[_REQUESTS]),
    )


def _replayed(tokens: int, design: Design) -> int:
    if design.captured_bs:
        return padded_bs(tokens, design.captured_bs)
    return -(-tokens // design.tile_tokens) * design.tile_tokens


def own_columns(rows: Floats, design: Design) -> Floats:
    """The columns of the sizes that have a time of their own: the last ones, before that of the longest
    context or of experts."""
    end = rows.shape[1] - design.has_max_context - (design.experts is not None)
    return rows[:, end - len(design.own_bs) : end]


def _own_curve(seconds: Floats, own: Sequence[int]) -> Curve:
    return tuple((float(size), float(one)) for size, one in zip(own, seconds[: len(own)], strict=True))


def _own(sizes: Sequence[float], own: Sequence[int]) -> Floats:
    """The share of each own size in each size: the same interpolation as `on_curve` makes."""
    if not own:
        return np.empty((len(sizes), 0))
    return np.column_stack([np.interp(sizes, own, one) for one in np.eye(len(own))])


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


_CoefficientsT = TypeVar("_CoefficientsT", covariant=True)
"""PrefillCoefficients, DecodeCoefficients or FusedCoefficients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family(Generic[_CoefficientsT]):
    """A kind of predictor: its columns, its coefficients, and the designs to choose from."""

    name: str
    rows: Callable[[Sequence[Point], Design], Floats]
    coefficients: Callable[[Floats, float, Design], _CoefficientsT]
    knots: tuple[int, ...]
    size_of: Callable[[Point], int]
    """What the knots are over."""
    tiles: tuple[int, ...] = (1,)
    captured: Callable[[Hello], tuple[int, ...]] = lambda _hello: ()
    """Sizes of the graphs that it replays. Each may have a time of its own, off the line of the other sizes.
    """
    has_own_sizes: bool = False
    """Whether sizes may have a time of their own where no graph is replayed, too."""
    own_samples: int = 1
    """For such a size a campaign takes at least so many samples."""
    shared_terms: int = 3
    """Beside own sizes."""
    prefers_tables: bool = False
    """Whether lines are not tried where most sizes of graphs were measured: a line would have to bend at each
    of them."""
    floors: tuple[bool, ...] = (False,)
    max_context_choices: tuple[bool, ...] = (False,)
    """Whether a batch may wait for its longest context."""
    knows_experts: bool = False
    """Whether its line has a column of the experts that a batch touches, if the model has any."""


PREFILL = Family(
    name="prefill",
    rows=prefill_rows,
    coefficients=prefill_of,
    knots=PREFILL_KNOTS,
    size_of=lambda point: point.prefill_shape.new_tokens,
    tiles=TILES,
    floors=(False, True),
)
DECODE = Family(
    name="decode",
    rows=decode_rows,
    coefficients=decode_of,
    knots=DECODE_KNOTS,
    size_of=lambda point: len(point.decode),
    captured=lambda hello: hello.captured_decode_bs,
    has_own_sizes=True,
    own_samples=OWN_SAMPLES,
    knows_experts=True,
)
FUSED = Family(
    name="fused",
    rows=fused_rows,
    coefficients=fused_of,
    knots=FUSED_KNOTS,
    size_of=lambda point: point.prefill_shape.new_tokens + len(point.decode),
    captured=lambda hello: hello.captured_fused_tokens,
    shared_terms=8,
    tiles=TILES,
    floors=(False, True),
    max_context_choices=(False, True),
    prefers_tables=True,
)
