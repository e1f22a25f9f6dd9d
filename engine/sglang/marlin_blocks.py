"""How many blocks of Marlin's products may wait for each other, and on which splits they find room (0098).

The engine asks it of the layers that were loaded, and the launcher of a model's configuration, without SGLang
and PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TypeAlias

from pdmuxd.engine.core.shapes import ModelShape

Split: TypeAlias = tuple[int, int]
"""SMs for prefill and for decode."""
_WIDEST, _DEEPEST = 256, 64
"""Outputs of the widest tile of the kernel, and inputs of the least deep one (`gptq_marlin.cuh`)."""


def most_waiting(inputs: int, outputs: int, sms: int) -> int:
    """Blocks of one product that may wait for each other in a row, at most.

    There are as many blocks as the device has SMs. Each takes an equal part of the tiles, column by column,
    and a block waits for the later ones of its column.
    """
    return min(ceil(inputs / _DEEPEST), ceil(sms * _WIDEST / outputs) + 1)


def most_waiting_in(shape: ModelShape, *, tp_size: int, sms: int) -> int:
    """The same of the linear layers that a model of this shape usually has; a rank has its part of them."""
    heads, kv_heads = max(1, shape.heads // tp_size), max(1, shape.kv_heads // tp_size)
    intermediate = max(1, shape.intermediate // tp_size)
    layers = (
        (shape.hidden, (heads + 2 * kv_heads) * shape.head_dim),
        (heads * shape.head_dim, shape.hidden),
        (shape.hidden, 2 * intermediate),
        (intermediate, shape.hidden),
    )
    return max(most_waiting(inputs, outputs, sms) for inputs, outputs in layers)


def why_no_room(waiting: int, splits: Sequence[Split], total_sms: int) -> str:
    """Why so many blocks may find no room on the streams of these splits; empty if they surely do."""
    prefill_sms = min((split[0] for split in splits), default=total_sms)
    decode_sms = min((split[1] for split in splits), default=total_sms)
    # Blocks begin in order, and one fills an SM. If not all of a row find room, those that have it wait for
    # ever. The second limit is for a product of the other stream, left from an earlier partition.
    most = min(prefill_sms, decode_sms, (max(prefill_sms, decode_sms) + 1) // 2)
    if waiting <= most:
        return ""
    return f"{waiting} of Marlin's blocks may wait for each other, and {most} surely find room"


def with_room(waiting: int, splits: Sequence[Split]) -> tuple[tuple[Split, ...], tuple[Split, ...]]:
    """The splits on which so many blocks find room: if products of both streams do on prefill's side, and if
    they do on decode's."""
    one, both = waiting, 2 * waiting - 1
    return (
        tuple(split for split in splits if split[0] >= both and split[1] >= one),
        tuple(split for split in splits if split[0] >= one and split[1] >= both),
    )
