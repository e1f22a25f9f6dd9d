"""First times, before anyone is served: each prefill stream runs prefills of all sizes.

A kernel is loaded when it is first launched, and memory is taken from the driver when a batch first needs
it. Either waits until the device is idle, and so does every token that decodes meanwhile: on an H200 with
Llama-8B 25 of the first 139 prefills stopped decode for a step. Which kernels a matrix product takes depends
on its rows and on the stream's SMs, so each stream runs every size that is likely to choose others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from pdmuxd.engine.sglang.internals.probes import ProbeBatches

Lengths = tuple[tuple[int, int], ...]
"""(new, reused) tokens per request."""

MOST_TOKENS = 8192
"""Of a batch that takes a stream's memory: as many as `auto` puts into one."""
_STEPS = ((64, 2048), (128, 4096), (256, MOST_TOKENS))
"""Tokens from one size to the next, up to so many. Ahead of a multiple, as prompts mostly are."""
_REUSED = tuple((new, reused) for new in (16, 64, 256, 1024, 4096) for reused in (1024, 8192, 32768))
_MOST_REQUESTS = 16
"""First tokens of so many requests in one batch."""
_AHEAD = 8
"""Batches on the device whose tensors are kept."""
_PINNED_BYTES, _PINNED_BLOCKS = tuple(2**power for power in range(9, 20)), 8

Launch = Callable[[Any, int, Any], Any]
"""Launches so many layers of a batch on a stream; the event behind them."""


def sizes() -> Iterator[int]:
    """Tokens of the prefills that run a single layer."""
    last = 0
    for step, most in _STEPS:
        while last < most:
            last += step
            yield last - 1


class Warming:
    """Of one scheduler, whose prefix cache is empty."""

    def __init__(self, batches: ProbeBatches, *, layers: int, launch: Launch) -> None:
        self._batches = batches
        self._layers = layers
        self._launch = launch
        self._on_gpu = torch.cuda.is_available()

    def take_pinned_memory(self) -> None:
        """Host memory that copies to the device start from; it is kept for the next who wants so much."""
        if self._on_gpu:
            lengths = [size for size in _PINNED_BYTES for _ in range(_PINNED_BLOCKS)]
            blocks = [torch.empty(size, dtype=torch.uint8, pin_memory=True) for size in lengths]
            del blocks

    def run(self, stream: Any, wait: Callable[[Any], None]) -> None:
        """All sizes on one stream. The largest is first: what later ones take is part of its memory."""
        kept: list[tuple[Any, Any]] = []
        for lengths, layers in self._plan():
            if not self._batches.fits(lengths):
                continue
            batch = self._batches.split_prefill(lengths)
            kept.append((batch, self._launch(batch, layers, stream)))
            if len(kept) > _AHEAD:
                wait(kept.pop(0)[1])
        for _, end in kept:
            wait(end)

    def _plan(self) -> Iterator[tuple[Lengths, int]]:
        """Lengths and layers; a CPU has one memory and no kernels to load."""
        if not self._on_gpu:
            yield ((64, 0),), self._layers
            return
        yield ((MOST_TOKENS, 0),), self._layers
        for requests in range(1, _MOST_REQUESTS + 1):
            yield ((16, 0),) * requests, self._layers
        for tokens in sizes():
            yield ((tokens, 0),), 1
        for reused in _REUSED:
            yield (reused,), 1
