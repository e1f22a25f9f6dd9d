"""The kinds of solo predictor: what each is made of, and which designs it may have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from pdmuxd.engine.link.messages import Hello
from pdmuxd.engine.profiling import designs
from pdmuxd.engine.profiling.designs import Design
from pdmuxd.engine.profiling.points import Point
from pdmuxd.engine.profiling.regression import Floats

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
    """Sizes of the graphs that it replays. Each may have a time of its own, whatever line the others lie
    on."""
    has_own_sizes: bool = False
    """Whether sizes may have a time of their own where no graph is replayed, too."""
    own_samples: int = 1
    """Of such a size: how many a campaign takes at least."""
    shared_terms: int = 3
    """Beside own sizes."""
    prefers_tables: bool = False
    """Whether no line is asked where most sizes of graphs were measured: it may bend at any of them."""
    floors: tuple[bool, ...] = (False,)
    max_context_choices: tuple[bool, ...] = (False,)
    """Whether a batch may wait for its longest context."""


PREFILL = Family(
    name="prefill",
    rows=designs.prefill_rows,
    coefficients=designs.prefill_of,
    knots=designs.PREFILL_KNOTS,
    size_of=lambda point: point.prefill_shape.new_tokens,
    tiles=designs.TILES,
    floors=(False, True),
)
DECODE = Family(
    name="decode",
    rows=designs.decode_rows,
    coefficients=designs.decode_of,
    knots=designs.DECODE_KNOTS,
    size_of=lambda point: len(point.decode),
    captured=lambda hello: hello.captured_decode_bs,
    has_own_sizes=True,
    own_samples=designs.OWN_SAMPLES,
)
FUSED = Family(
    name="fused",
    rows=designs.fused_rows,
    coefficients=designs.fused_of,
    knots=designs.FUSED_KNOTS,
    size_of=lambda point: point.prefill_shape.new_tokens + len(point.decode),
    captured=lambda hello: hello.captured_fused_tokens,
    shared_terms=7,
    tiles=designs.TILES,
    floors=(False, True),
    max_context_choices=(False, True),
    prefers_tables=True,
)
