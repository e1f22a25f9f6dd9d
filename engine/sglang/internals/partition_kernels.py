"""Products and attention of SGLang's models, launched with the kernels that suit a partition.

Before the decode graphs are captured, each candidate (`streams/gemm.py`) is timed for every partition, weight
shape and number of rows; captured decode graphs and layer-wise prefill then run with the fastest.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from sglang.srt.layers.linear import LinearBase
from sglang.srt.layers.quantization.unquant import UnquantizedLinearMethod
from sglang.srt.model_executor.runner.base_cuda_graph_runner import get_batch_sizes_to_capture
from sglang.srt.runtime_context import get_parallel

from pdmuxd.engine.loop.streams import StreamGroup
from pdmuxd.engine.sglang.streams.base import LaunchStreams
from pdmuxd.engine.sglang.streams.gemm import (
    Gemm,
    GemmInForce,
    GemmUnsupportedError,
    Shape,
    candidates,
    missing,
)
from pdmuxd.engine.sglang.streams.partition_kernels import PartitionKernels, keep_choices, read_choices

PRODUCT = "sglang.srt.layers.quantization.unquant.UnquantizedLinearMethod.apply"
"""Multiplies by a layer's weights."""
HEAD = "sglang.srt.layers.logits_processor.LogitsProcessor._compute_lm_head"
"""Multiplies by the head's."""
ATTENTION = "sglang.srt.layers.attention.flashattention_backend.flash_attn_with_kvcache"
"""FlashAttention of decode, and of prefill."""
CAPTURE = (
    "sglang.srt.model_executor.runner.decode_cuda_graph_runner.DecodeCudaGraphRunner._capture_one_stream"
)
"""Captures the decode graphs of one partition."""

PREFILL_ROWS = (128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192)
DECODE_ROWS = (8, 16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256)
_LAYERS = 4
"""With weights of their own, so that none is found in the L2 cache."""
_REPLAYS = 3

_log = logging.getLogger(__name__)


def make_kernels(total_sms: int) -> PartitionKernels | None:
    """None, and one line in the log, where this PyTorch cannot be told of a partition's SMs."""
    try:
        return PartitionKernels(GemmInForce(total_sms), total_sms)
    except GemmUnsupportedError as error:
        _log.warning("pdmuxd: kernels are chosen for all SMs on partitions, too: %s", error)
        return None


def launch_product(
    kernels: PartitionKernels,
    original: Callable[..., Any],
    method: Any,
    layer: Any,
    x: Any,
    *rest: Any,
    **named: Any,
) -> Any:
    """Around PRODUCT."""
    if kernels.sms is None:
        return original(method, layer, x, *rest, **named)
    outputs, inputs = layer.weight.shape
    before = kernels.put(kernels.fastest((outputs, inputs), x.numel() // inputs))
    try:
        return original(method, layer, x, *rest, **named)
    finally:
        kernels.put(before)


def launch_head(
    kernels: PartitionKernels,
    original: Callable[..., Any],
    processor: Any,
    x: Any,
    head: Any,
    *rest: Any,
    **named: Any,
) -> Any:
    """Around HEAD."""
    weight = getattr(head, "weight", None)
    if kernels.sms is None or weight is None:
        return original(processor, x, head, *rest, **named)
    outputs, inputs = weight.shape
    before = kernels.put(kernels.fastest((outputs, inputs), x.shape[0]))
    try:
        return original(processor, x, head, *rest, **named)
    finally:
        kernels.put(before)


def launch_attention(
    kernels: PartitionKernels, original: Callable[..., Any], *given: Any, **named: Any
) -> Any:
    """Around ATTENTION: its heuristics and its grid count the partition's SMs."""
    if kernels.attention and kernels.sms is not None:
        named["sm_margin"] = kernels.sm_margin
    return original(*given, **named)


def capture_partition(
    kernels: PartitionKernels,
    streams: LaunchStreams,
    original: Callable[..., Any],
    runner: Any,
    index: Any = None,
) -> Any:
    """Around CAPTURE."""
    sms = kernels.total_sms if index is None else streams.groups[index].decode_sms
    with kernels.on(sms):
        return original(runner, index)


def tell_attention(kernels: PartitionKernels, streams: LaunchStreams, runner: Any) -> bool:
    """The decode backends' tile schedules must count the SMs that ATTENTION is told of: a schedule for more
    would put parts of a context together that nobody computed. Whether attention is of that kind."""
    backends = getattr(runner, "decode_attn_backend_group", None) or []
    if not backends or any(
        type(backend).__name__ != "FlashAttentionBackend" or backend.fa_impl_ver != 3 for backend in backends
    ):
        return False
    for group, backend in zip(streams.groups, backends, strict=True):
        schedule = backend._get_scheduler_metadata
        if schedule is not None and 0 < group.decode_sms < kernels.total_sms:
            margin = kernels.total_sms - group.decode_sms
            backend._get_scheduler_metadata = partial(schedule, sm_margin=margin)
    return True


def choose_kernels(kernels: PartitionKernels, streams: LaunchStreams, runner: Any, file: Path | None) -> None:
    """Time what was not timed before. Raises: nothing; what cannot be timed runs as PyTorch has it."""
    device = describe_device()
    if file is not None:
        kernels.choices = read_choices(file, device)
    known = kernels.choices.count()
    began_s = time.perf_counter()
    try:
        captured = get_batch_sizes_to_capture(runner)[0]
        _Timing(kernels, runner.model).run(streams.groups, max(captured))
    except (RuntimeError, AttributeError, TypeError, ValueError) as error:
        _log.warning("pdmuxd: some products on partitions run with kernels chosen for all SMs: %s", error)
    found = kernels.choices.count() - known
    took_s = time.perf_counter() - began_s
    _log.info("pdmuxd: kernels of products on partitions: %d known, %d timed in %.1f s", known, found, took_s)
    if file is not None and found and get_parallel().tp_rank == 0:
        keep_choices(file, device, kernels.choices)


def describe_device() -> dict[str, str]:
    """What a choice depends on, besides the partition, the weights and the rows."""
    return {
        "gpu": torch.cuda.get_device_name(),
        "cuda": str(torch.version.cuda),
        "pytorch": str(torch.__version__),
        "driver": _driver_version(),
    }


def _driver_version() -> str:
    try:
        import pynvml

        pynvml.nvmlInit()
        try:
            return str(pynvml.nvmlSystemGetDriverVersion())
        finally:
            pynvml.nvmlShutdown()
    except Exception as error:
        return f"unknown ({type(error).__name__})"


class _Timing:
    """Of one model's products."""

    def __init__(self, kernels: PartitionKernels, model: Any) -> None:
        self._kernels = kernels
        self._products, self._head = products_of(model)

    def run(self, groups: Sequence[StreamGroup], max_decode_rows: int) -> None:
        sides: list[tuple[int, Any, tuple[int, ...]]] = []
        decode_rows = tuple(rows for rows in DECODE_ROWS if rows <= max_decode_rows) or DECODE_ROWS[:1]
        for group in groups:
            if group.prefill_sms and group.decode_sms:
                sides.append((group.prefill_sms, group.prefill, PREFILL_ROWS))
                sides.append((group.decode_sms, group.decode, decode_rows))
        for sms, stream, all_rows in sides:
            points = list(missing(self._kernels.choices, [(sms, all_rows)], self._products))
            if not points:
                continue
            _log.info("pdmuxd: timing %d products on %d SMs", len(points), sms)
            for _, shape, rows in points:
                if shape == self._head and rows > DECODE_ROWS[-1]:
                    continue  # a row per request
                timed = {gemm: self._time_s(stream, gemm, shape, rows) for gemm in candidates(sms)}
                found = {gemm: took_s for gemm, took_s in timed.items() if took_s is not None}
                if found:
                    self._kernels.choices.keep(sms, shape, rows, min(found, key=found.__getitem__))

    def _time_s(self, stream: Any, gemm: Gemm, shape: Shape, rows: int) -> float | None:
        """Median of some replays of a graph; None for what cannot run on the partition."""
        weights = self._products[shape][:_LAYERS]
        before = self._kernels.put(gemm)
        try:
            with torch.cuda.stream(stream):
                x = torch.randn(rows, shape[1], dtype=weights[0].dtype, device=weights[0].device)
                # Memory that a graph takes is its own, and freed late.
                out = torch.empty(rows, shape[0], dtype=x.dtype, device=x.device)
                launch = partial(_multiply_all, x, weights, out)
                launch()
                stream.synchronize()
                graph = torch.cuda.CUDAGraph()
                graph.capture_begin(capture_error_mode="relaxed")
                try:
                    launch()
                finally:
                    graph.capture_end()
            took = [self._replay_s(graph, stream) for _ in range(_REPLAYS + 1)][1:]
        except RuntimeError as error:
            _log.warning("pdmuxd: %s with %d rows of %s on a partition: %s", gemm.name, rows, shape, error)
            return None
        finally:
            self._kernels.put(before)
        return statistics.median(took)

    @staticmethod
    def _replay_s(graph: Any, stream: Any) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(stream):
            start.record(stream)
            graph.replay()
            end.record(stream)
        end.synchronize()
        return float(start.elapsed_time(end)) / 1000.0


def _multiply_all(x: torch.Tensor, weights: Iterable[torch.Tensor], out: torch.Tensor) -> None:
    for weight in weights:
        torch.mm(x, weight.t(), out=out)


def products_of(model: Any) -> tuple[dict[Shape, list[torch.Tensor]], Shape | None]:
    """The weights that PRODUCT and HEAD multiply by, by their shape; and the shape of the head's."""
    found: dict[Shape, list[torch.Tensor]] = {}
    for module in model.modules():
        if isinstance(module, LinearBase) and isinstance(module.quant_method, UnquantizedLinearMethod):
            weight: Any = module.weight
            found.setdefault((weight.shape[0], weight.shape[1]), []).append(weight.data)
    head = getattr(getattr(model, "lm_head", None), "weight", None)
    if head is None or head.dtype not in (torch.bfloat16, torch.float16):
        return found, None
    shape = (head.shape[0], head.shape[1])
    found.setdefault(shape, []).append(head.data)
    return found, shape
