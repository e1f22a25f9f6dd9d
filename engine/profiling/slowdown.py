"""What the slowdown of decode beside a prefill is taken to depend on, as columns of a regression.

The grid's own axes, tokens and requests as logarithms. Each column grows with what was seen to slow decode on
one H200 (Llama-8B, 387 pairs, 2026-11-21), so that a cell's worst corner is known: a long prefill takes the
power that decode's SMs would have had, decode suffers by the KV that each request reads, and reused tokens
and large batches, which decode and prefill read themselves, make it less. All of it by how SMs are split.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pdmuxd.engine.core.types import DecodeShape, PrefillShape
from pdmuxd.engine.profiling.regression import Floats

NEW_TOKENS = (512, 16384)
REUSED_TOKENS = (512, 33280)
CONTEXT_TOKENS = (64, 16384)
REQUESTS = (1, 256)
"""Between what was measured a slowdown grows or falls with the logarithm of each; beyond it stays."""


def rows(split: tuple[int, int], prefills: Sequence[PrefillShape], decodes: Sequence[DecodeShape]) -> Floats:
    """One per prefill and decode, in the order of their product."""
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
