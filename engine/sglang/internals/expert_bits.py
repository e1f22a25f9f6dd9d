"""Where `triton_kernels` chooses experts (gpt-oss), the bits that say which lie equally far apart.

Its kernels are compiled for the distance between two words of a token's bits, which is the number of tokens
in steps of 32. So the first prompt of each such length waited a second for a compiler
(docs/measurements/h100.md).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence

import torch

from pdmuxd.engine.sglang.api.symbols import experts

ROOM_TOKENS = 65_536
"""A batch of fewer tokens takes the room of so many: 256 KiB for each 32 experts, while one layer chooses. A
longer one takes the next power of two."""


def keep_apart() -> bool:
    """Wrap what makes the bits' room, if the model's layers have brought it; says whether it is wrapped.

    Raises: EngineError if it is not as expected.
    """
    module = sys.modules.get("triton_kernels.topk")
    if module is None:
        return False
    make = experts().make_empty
    if not hasattr(make, "__wrapped__"):
        module.make_empty = _roomy(make)  # type: ignore[attr-defined]
    return True


def _roomy(make: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(make)
    def make_room(
        offset: int, shape: Sequence[int], dtype: torch.dtype, *given: object, **named: object
    ) -> object:
        if dtype is torch.uint32 and not named.get("all_gather"):
            words, tokens = shape
            shape = (words, max(ROOM_TOKENS, 1 << (tokens - 1).bit_length()))
        return make(offset, shape, dtype, *given, **named)

    return make_room
