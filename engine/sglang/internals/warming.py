"""First times, before anyone is served: each prefill stream runs prefills of all sizes.

A kernel is loaded when it is first launched, and memory is taken from the driver when a batch first needs
it. Either waits until the device is idle, and so does every token that decodes meanwhile: on an H200 with
Llama-8B 25 of the first 139 prefills stopped decode for a step. Which kernel a matrix product takes depends
on its rows and on the stream's SMs, in steps that nobody tells: so the products of all numbers of rows are
asked which kernels they take, and each stream runs one of each.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from sglang.srt.layers.linear import LinearBase

from pdmuxd.engine.core.errors import EngineError
from pdmuxd.engine.core.policies.auto import BATCH_TOKENS
from pdmuxd.engine.sglang.internals.probes import ProbeBatches
from pdmuxd.engine.sglang.streams.base import DeviceStreams
from pdmuxd.engine.sglang.streams.kernels import Kernels

_log = logging.getLogger(__name__)

Lengths = tuple[tuple[int, int], ...]
"""(new, reused) tokens per request."""

SMALL_COPY = "sglang.kernels.ops.memory.small_copy.try_small_copy"
"""Copies several small tensors with one kernel."""
_ROWS_STEP = 8
"""Between the numbers of rows of matrix products that are looked at."""
_TOKENS = ((256, 2048), (1024, BATCH_TOKENS))
"""Of prefills: from one number to the next, up to so many."""
_REUSED = tuple((new, reused) for new in (16, 64, 256, 1024, 4096) for reused in (1024, 8192, 32768))
_MOST_REQUESTS = 16
"""First tokens of so many requests in one batch."""
_AHEAD = 8
"""Batches on the device whose tensors are kept."""
_PINNED_BYTES, _PINNED_BLOCKS = tuple(2**power for power in range(9, 20)), 8

Launch = Callable[[Any, int, Any], Any]
"""Launches so many layers of a batch on a stream; the event behind them."""


def copy_without_compiling(original: Callable[..., bool], dsts: Sequence[Any], srcs: Sequence[Any]) -> bool:
    """Around SMALL_COPY, whose kernel is compiled anew, 0.12 s while serving, for each pattern of addresses
    that are no multiples of 16 bytes: False for these, and SGLang copies them with several kernels."""
    if any(tensor.data_ptr() % 16 for tensor in (*dsts, *srcs)):
        return False
    return original(dsts, srcs)


class Warming:
    """Of one scheduler, whose prefix cache is empty."""

    def __init__(
        self, batches: ProbeBatches, streams: DeviceStreams, *, model: Any, layers: int, launch: Launch
    ) -> None:
        self._batches = batches
        self._streams = streams
        self._layers = layers
        self._launch = launch
        self._products = list(_products(model))
        self._on_gpu = torch.cuda.is_available()

    def take_pinned_memory(self) -> None:
        """Host memory that copies to the device start from; it is kept for the next who wants so much."""
        if self._on_gpu:
            lengths = [size for size in _PINNED_BYTES for _ in range(_PINNED_BLOCKS)]
            blocks = [torch.empty(size, dtype=torch.uint8, pin_memory=True) for size in lengths]
            del blocks

    def run(self, stream: Any) -> None:
        """All sizes on one stream. The largest is first: what later ones take is part of its memory."""
        kept: list[tuple[Any, Any]] = []
        for lengths, layers in self._prefills():
            try:
                batch = self._batches.split_prefill(lengths)
            except EngineError:
                continue  # more than the pools hold
            kept.append((batch, self._launch(batch, layers, stream)))
            if len(kept) > _AHEAD:
                self._streams.wait(kept.pop(0)[1])
        if self._on_gpu:
            self._multiply(stream)
        self._streams.wait(self._streams.mark(stream))

    def _prefills(self) -> Iterator[tuple[Lengths, int]]:
        """Lengths and layers; a CPU has one memory and no kernels to load."""
        if not self._on_gpu:
            yield ((64, 0),), self._layers
            return
        yield ((BATCH_TOKENS, 0),), self._layers
        for requests in range(1, _MOST_REQUESTS + 1):
            yield ((16, 0),) * requests, self._layers
        for tokens in _up_to(_TOKENS):
            yield ((tokens - 1, 0),), 1
        for reused in _REUSED:
            yield (reused,), 1

    def _multiply(self, stream: Any) -> None:
        """Every kernel once that some number of rows takes."""
        kernels = Kernels(int(stream.cuda_stream))
        with self._streams.on(stream):
            for layer, width, dtype in self._products:
                rows = torch.zeros((BATCH_TOKENS, width), dtype=dtype, device="cuda")
                layer.quant_method.apply(layer, rows)
                for count in range(_ROWS_STEP, BATCH_TOKENS + 1, _ROWS_STEP):
                    multiply = partial(layer.quant_method.apply, layer, rows[:count])
                    if kernels.are_new(multiply):
                        multiply()
        _log.info("pdmuxd: loaded %d kernels of matrix products", kernels.count)


def _products(model: Any) -> Iterator[tuple[Any, int, Any]]:
    """A layer of each shape of weights, with the columns and the type of what it multiplies."""
    seen: set[tuple[Any, ...]] = set()
    for module in model.modules():
        weight = getattr(module, "weight", None)
        if isinstance(module, LinearBase) and weight is not None and weight.is_floating_point():
            width = getattr(module, "input_size_per_partition", module.input_size)
            key = (*weight.shape, weight.dtype, width)
            if key not in seen:
                seen.add(key)
                yield module, width, module.params_dtype


def _up_to(steps: Sequence[tuple[int, int]]) -> Iterator[int]:
    last = 0
    for step, most in steps:
        yield from range(last + step, most + 1, step)
        last = most
