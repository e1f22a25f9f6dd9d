"""CUDA graphs of decode: one per captured batch size; a batch in between is padded up to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pdmuxd.engine.core.adaptive_batching import GRAPH_BATCHES, GRAPH_LENGTHS
from pdmuxd.engine.core.errors import EngineInvariantError
from pdmuxd.engine.core.types import DecodeShape, PrefillGraph, PrefillShape

STEP_BS = 8
"""Above 8, graphs are captured for every eighth batch size; below, for powers of two (SGLang's defaults)."""


def captured_bs(bs: int) -> int:
    """The batch size of the graph that a batch of `bs` replays."""
    if bs <= STEP_BS:
        return 1 << max(0, bs - 1).bit_length()
    return -(-bs // STEP_BS) * STEP_BS


def captured_sizes(max_bs: int) -> tuple[int, ...]:
    """All captured batch sizes up to `max_bs`."""
    return tuple(bs for bs in range(1, max_bs + 1) if captured_bs(bs) == bs)


def padded(shape: DecodeShape) -> DecodeShape:
    """The work that the graph really does: padding adds rows to the linear operators, but reads no KV."""
    return replace(shape, bs=captured_bs(shape.bs))


def padded_prefill(lengths: Sequence[tuple[int, int]], graph: PrefillGraph) -> PrefillShape | None:
    """The work of a captured prefill that runs (new, reused) `lengths`; None if they do not fit it.

    Every row computes the captured length; padding rows attend to themselves alone.
    Raises: EngineInvariantError if no such graph is captured.
    """
    if graph.length not in GRAPH_LENGTHS or graph.batch not in GRAPH_BATCHES:
        raise EngineInvariantError(f"no prefill graph of {graph.batch} x {graph.length} tokens is captured")
    if not lengths or len(lengths) > graph.batch or any(new > graph.length for new, _ in lengths):
        return None
    padding = graph.batch - len(lengths)
    return PrefillShape.of([(graph.length, r) for _, r in lengths] + [(graph.length, 0)] * padding)
