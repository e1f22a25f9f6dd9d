"""What is slow the first time is done before anyone is served: kernels of matrix products, and prefills of
all sizes on each stream.

A kernel is loaded when it is first launched. That waits until the device is idle, and every decode step
waits with it: on an H200 with Llama-8B, 25 of the first 139 prefills stopped decode for a step. Which kernel
a matrix product takes depends on its number of rows, by rules that are not documented. So every number of
rows is asked which kernel it takes, and each kernel is run once; of prompts longer than a batch, some are
asked. Where only batches had been asked and most prompts were longer, decode stood still for a step in 12
turns beside 81 prefills of Qwen3-30B-A3B, and in 5 beside 26 of Llama-8B on two H200s (2026-11-28).

The memory that all this takes goes back to the driver: it would be kept for each stream, also for those that
serve nobody, and fill the GPU's (`activation_memory.py`).
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from pdmuxd.engine.core.errors import EngineError
from pdmuxd.engine.core.policies.auto import BATCH_TOKENS
from pdmuxd.engine.sglang.api.symbols import sglang
from pdmuxd.engine.sglang.api.types.device import Event, Stream, Tensor
from pdmuxd.engine.sglang.api.types.requests import Batch
from pdmuxd.engine.sglang.engine_info import Activations
from pdmuxd.engine.sglang.streams.base import LaunchStreams
from pdmuxd.engine.sglang.streams.kernels import Kernels

_log = logging.getLogger(__name__)

Lengths = tuple[tuple[int, int], ...]
"""(new, reused) tokens per request."""

_LARGEST: Lengths = ((BATCH_TOKENS, 0),)
_TOKENS = ((256, 2048), (1024, BATCH_TOKENS))
"""New tokens of the prefills: (step, largest) pairs, one after the other."""
_LONG_TOKENS = (12_288, 16_384, 24_576, 32_768)
"""And of single prompts that are longer than a batch, as far as memory holds them."""
_LESS = (1, 2, 4, 8)
"""Each size is smaller by one of these, by turns: compiled kernels are others where 16 divides a size, and
those of products where 8 does."""
_REUSED = tuple((new, reused) for new in (16, 64, 256, 1024, 4096) for reused in (1024, 8192, 32768))
_ROWS_STEP = 31
"""On a partition, only every so many rows are asked about: kernels change with whole tiles there, and with
what divides the number, so the step is odd."""
_FEW_ROWS = (1, 8, 16)
"""Tiles of products in FP8 may have 16 rows, which the step leaves out."""
_LONG_ROWS_STEP = 509
"""The same for more rows than a batch has: a prime number."""
_FREE_SHARE = 0.5
"""Of the free memory, for the rows of one product and what comes of them."""
_MOST_REQUESTS = 16
"""First tokens of so many requests in one prefill."""
_MOST_ANSWERS = 256
"""And in one fused batch."""
_AHEAD = 8
"""Batches on the device whose tensors are kept."""
_PINNED_BYTES, _PINNED_BLOCKS = tuple(2**power for power in range(9, 20)), 8

Make = Callable[[Lengths], Batch]
"""A prefill of these requests. Raises: EngineError for more than the pools hold."""
Launch = Callable[[Batch, int, Stream], Event]
"""Launches so many layers of a batch on a stream; the event behind them."""


def decline_small_copy(_dsts: Sequence[Tensor], _srcs: Sequence[Tensor]) -> bool:
    """Replaces SGLang's copy of several small tensors with one kernel. It is compiled anew, 0.12 s while
    serving, for each pattern of types, sizes and addresses. This declines, and SGLang copies with a kernel
    per type."""
    return False


def load_products(model: Any, streams: LaunchStreams) -> None:
    """Run every kernel once that a matrix product of the model takes with some number of rows.

    Once on all SMs and again on one split: splits share what was loaded (measured), but it is not known
    whether they share it with ordinary streams. Then, on each split, the kernels that it chooses and the
    others do not.
    """
    if not torch.cuda.is_available():
        return
    whole = streams.groups[0].prefill
    splits = [group.prefill for group in streams.groups if group.prefill_sms and group.decode_sms]
    try:
        kernels = Kernels(int(whole.cuda_stream))
        _log.info("pdmuxd: warming up the matrix products")
        with streams.on(whole):
            products = _products(model, torch.cuda.mem_get_info()[0])
            taken = [(product, product.load(kernels)) for product in products]
        torch.cuda.empty_cache()  # PyTorch would keep the rows for this stream, and as many for each other
        for split in splits:
            there = kernels.on(int(split.cuda_stream))
            with streams.on(split):
                for product, counts in taken:
                    if split is splits[0]:
                        product.run(counts)
                    product.load(there, step=_ROWS_STEP)
            torch.cuda.empty_cache()
    except (EngineError, RuntimeError) as error:  # a model's own kernels, with rows that it never had
        _log.warning("pdmuxd: the first prefills of each size may stop decode for a step: %s", error)
    else:
        _log.info("pdmuxd: loaded %d kernels of matrix products", kernels.count)
    for stream in (whole, *splits):
        streams.wait(streams.mark(stream))


class Warming:
    """Warms up one scheduler, whose prefix cache is empty."""

    def __init__(self, streams: LaunchStreams, *, layers: int, make: Make, launch: Launch) -> None:
        self._streams = streams
        self._layers = layers
        self._make = make
        self._launch = launch
        self._on_gpu = torch.cuda.is_available()
        self._free_bytes = torch.cuda.mem_get_info()[0] if self._on_gpu else 0
        self.activations: Activations | None = None
        """Of the largest prefill; None until it was run, and on a CPU."""
        self.kept_bytes_per_token = 0.0
        """What PyTorch keeps of it on a stream, the most of all streams."""

    def take_pinned_memory(self) -> None:
        """Take pinned host memory for copies to the device; it is kept for later copies of the same sizes."""
        if self._on_gpu:
            lengths = [size for size in _PINNED_BYTES for _ in range(_PINNED_BLOCKS)]
            blocks = [torch.empty(size, dtype=torch.uint8, pin_memory=True) for size in lengths]
            del blocks

    def run(self, stream: Stream) -> None:
        """Prefills of all sizes on one stream. The largest comes first: later ones fit into the memory that
        it took."""
        kept: list[tuple[Batch, Event]] = []
        before_bytes = torch.cuda.memory_reserved()
        for lengths, layers in self._prefills():
            try:
                batch = self._make(lengths)
            except EngineError:
                continue  # more than the pools hold
            launch = self._launch_largest if lengths == _LARGEST else self._launch
            kept.append((batch, launch(batch, layers, stream)))
            if len(kept) > _AHEAD:
                self._streams.wait(kept.pop(0)[1])
        self._streams.wait(self._streams.mark(stream))
        kept_bytes = torch.cuda.memory_reserved() - before_bytes
        self.kept_bytes_per_token = max(self.kept_bytes_per_token, kept_bytes / BATCH_TOKENS)

    @property
    def max_whole_tokens(self) -> int:
        """New tokens of a prompt that this GPU's memory holds; 0 until that is known, and on a CPU."""
        return self.activations.max_whole_tokens if self.activations else 0

    def run_long(self, stream: Stream, most_tokens: int) -> None:
        """Prompts longer than a batch, of at most so many tokens, on a stream that has run the others; it
        keeps nothing of any."""
        for tokens, less in zip(_LONG_TOKENS, _LESS, strict=True):
            if tokens <= most_tokens:
                with contextlib.suppress(EngineError):  # more than the pools hold
                    batch = self._make(((tokens - less, 0),))
                    self._streams.wait(self._launch(batch, 1, stream))
        torch.cuda.empty_cache()

    def _launch_largest(self, batch: Batch, layers: int, stream: Stream) -> Event:
        torch.cuda.reset_peak_memory_stats()
        before_bytes = torch.cuda.memory_allocated()
        end = self._launch(batch, layers, stream)
        taken_bytes = torch.cuda.max_memory_allocated() - before_bytes
        self.activations = Activations(
            free_bytes=self._free_bytes, bytes_per_token=taken_bytes / BATCH_TOKENS
        )
        return end

    def _prefills(self) -> Iterator[tuple[Lengths, int]]:
        """Lengths and layers; a CPU has one memory and no kernels to load."""
        if not self._on_gpu:
            yield ((64, 0),), self._layers
            return
        yield _LARGEST, self._layers
        for requests in range(1, _MOST_REQUESTS + 1):
            yield ((16, 0),) * requests, self._layers
        for tokens, less in zip(_up_to(_TOKENS), itertools.cycle(_LESS), strict=False):
            yield ((tokens - less, 0),), 1
        for reused in _REUSED:
            yield (reused,), 1


@dataclass(frozen=True, slots=True)
class _Product:
    """Rows times one layer's weights."""

    multiply: Callable[[Tensor], Tensor]
    width: int
    dtype: object
    most_rows: int

    def load(self, kernels: Kernels, step: int = 1) -> list[int]:
        """Run one number of rows per kernel, asking about every `step`th; returns those that were run."""
        rows = self._rows()
        # The memory of the largest product is taken here: capturing could not.
        self.multiply(rows)
        batch = min(BATCH_TOKENS, self.most_rows)
        asked = (
            *_FEW_ROWS,
            *range(step, batch + 1, step),
            *range(batch, self.most_rows + 1, _LONG_ROWS_STEP),
        )
        return kernels.load(lambda count: self.multiply(rows[:count]), asked)

    def run(self, counts: Sequence[int]) -> None:
        """Run these numbers of rows."""
        rows = self._rows()
        for count in counts:
            self.multiply(rows[:count])

    def _rows(self) -> Tensor:
        return torch.zeros((self.most_rows, self.width), dtype=self.dtype, device="cuda")


def _products(model: Any, free_bytes: int) -> Iterator[_Product]:
    """A layer of each shape of weights, with as many rows as a long prompt has where memory holds them, and
    the head, which has a row per request."""
    linear = sglang().Linear
    seen: set[tuple[object, ...]] = set()
    for module in model.modules():
        weight = getattr(module, "weight", None)
        if isinstance(module, linear) and weight is not None and weight.is_floating_point():
            width = getattr(module, "input_size_per_partition", module.input_size)
            key = (*weight.shape, weight.dtype, width)
            if key not in seen:
                seen.add(key)
                apply = partial(module.quant_method.apply, module)
                held = int(_FREE_SHARE * free_bytes / (2 * (width + module.output_size)))
                most_rows = max(BATCH_TOKENS, min(held, _LONG_TOKENS[-1]))
                yield _Product(apply, width, module.params_dtype, most_rows)
    head = getattr(getattr(model, "lm_head", None), "weight", None)
    if head is not None and head.dtype in (torch.bfloat16, torch.float16):
        yield _Product(lambda rows: torch.mm(rows, head.T), head.shape[1], head.dtype, _MOST_ANSWERS)


def _up_to(steps: Sequence[tuple[int, int]]) -> Iterator[int]:
    last = 0
    for step, most in steps:
        yield from range(last + step, most + 1, step)
        last = most
