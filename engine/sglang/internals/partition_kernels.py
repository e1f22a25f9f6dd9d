"""Products and attention of SGLang's models, launched with the kernels that suit a partition.

Before the decode graphs are captured, each candidate (`streams/gemm.py`) is timed for every partition, weight
shape and number of rows; captured decode graphs and layer-wise prefill then run with the fastest.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import cast

import torch

from pdmuxd.engine.sglang.api.symbols import sglang
from pdmuxd.engine.sglang.api.types.device import Tensor
from pdmuxd.engine.sglang.api.types.model import (
    DecodeGraphs,
    FlashAttention,
    LoadedLinear,
    LogitsProcessor,
    ModelRunner,
    UnquantizedLinear,
)
from pdmuxd.engine.sglang.internals.kernel_timing import KernelTiming
from pdmuxd.engine.sglang.streams.base import LaunchStreams
from pdmuxd.engine.sglang.streams.gemm import GemmInForce, GemmUnsupportedError
from pdmuxd.engine.sglang.streams.partition_kernels import PartitionKernels, keep_choices, read_choices

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
    original: Callable[..., Tensor],
    method: UnquantizedLinear,
    layer: LoadedLinear,
    x: Tensor,
    *rest: object,
    **named: object,
) -> Tensor:
    """Wraps the product with a layer's weights."""
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
    original: Callable[..., Tensor],
    processor: LogitsProcessor,
    x: Tensor,
    head: object,
    *rest: object,
    **named: object,
) -> Tensor:
    """Wraps the product with the head's weights."""
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
    kernels: PartitionKernels, original: Callable[..., Tensor], *given: object, **named: object
) -> Tensor:
    """Wraps FlashAttention's kernel, of decode and of prefill: what it works out from the number of SMs, its
    grid for one, then counts the partition's."""
    if kernels.attention and kernels.sms is not None:
        named["sm_margin"] = kernels.sm_margin
    return original(*given, **named)


def capture_partition(
    kernels: PartitionKernels,
    streams: LaunchStreams,
    original: Callable[[DecodeGraphs, int | None], None],
    graphs: DecodeGraphs,
    index: int | None = None,
) -> None:
    """Wraps the capture of the decode graphs of one partition."""
    sms = kernels.total_sms if index is None else streams.groups[index].decode_sms
    with kernels.on(sms):
        original(graphs, index)


def tell_attention(kernels: PartitionKernels, streams: LaunchStreams, runner: ModelRunner) -> bool:
    """Tell the decode backends how many SMs their partition has, if they are FlashAttention-3; returns
    whether they are.

    Their tile schedules must count as many SMs as the kernel is told of: a schedule for more would put
    together parts of a context that nobody computed.
    """
    given = runner.decode_attn_backend_group or ()
    if any(type(backend).__name__ != "FlashAttentionBackend" for backend in given):
        return False
    backends = cast(Sequence[FlashAttention], given)
    if not backends or any(backend.fa_impl_ver != 3 for backend in backends):
        return False
    for group, backend in zip(streams.groups, backends, strict=True):
        schedule = backend._get_scheduler_metadata
        if schedule is not None and 0 < group.decode_sms < kernels.total_sms:
            margin = kernels.total_sms - group.decode_sms
            backend._get_scheduler_metadata = partial(schedule, sm_margin=margin)
    return True


def choose_kernels(
    kernels: PartitionKernels, streams: LaunchStreams, runner: ModelRunner, file: Path | None
) -> None:
    """Time what was not timed before. Raises: nothing; what cannot be timed runs as PyTorch has it."""
    device = describe_device()
    if file is not None:
        kernels.choices = read_choices(file, device)
    known = kernels.choices.count()
    began_s = time.perf_counter()
    try:
        captured = sglang().batch_sizes_to_capture(runner)[0]
        KernelTiming(kernels, runner.model).run(streams.groups, max(captured))
    except (RuntimeError, AttributeError, TypeError, ValueError) as error:
        _log.warning("pdmuxd: some products on partitions run with kernels chosen for all SMs: %s", error)
    torch.cuda.empty_cache()  # each stream keeps what was taken on it
    found = kernels.choices.count() - known
    took_s = time.perf_counter() - began_s
    _log.info("pdmuxd: kernels of products on partitions: %d known, %d timed in %.1f s", known, found, took_s)
    if file is not None and found and sglang().get_parallel().tp_rank == 0:
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
