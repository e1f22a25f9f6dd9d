"""CUDA graphs of decode: one per captured batch size; a batch in between is padded up to the next."""

from __future__ import annotations

from pdmuxd.engine.core.types import DecodeShape

STEP_BS = 8
"""Above 8, graphs are captured for every eighth batch size; below, for powers of two (SGLang's defaults)."""


def captured_bs(bs: int) -> int:
    """The batch size of the graph that a batch of `bs` replays."""
    if bs <= STEP_BS:
        return 1 << max(0, bs - 1).bit_length()
    return -(-bs // STEP_BS) * STEP_BS


def padded(shape: DecodeShape) -> DecodeShape:
    """The work that the graph really does: padding adds rows to the linear operators, but reads no KV."""
    return DecodeShape(bs=captured_bs(shape.bs), reused_tokens=shape.reused_tokens)
