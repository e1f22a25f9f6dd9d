"""The model and the GPU that a scheduler process serves, in the core's terms."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from pdmuxd.engine.core.partitions import PartitionTable, SmRules
from pdmuxd.engine.core.roofline import FLASH_ATTENTION_TILE_ROWS
from pdmuxd.engine.core.shapes import DeviceShape, TensorParallel
from pdmuxd.engine.core.types import LEAST_SLICE_TOKENS, EngineLimits
from pdmuxd.engine.sglang.api.symbols import installed_version
from pdmuxd.engine.sglang.api.types.model import AttentionBackend, ModelRunner
from pdmuxd.engine.sglang.api.types.scheduler import Scheduler
from pdmuxd.engine.sglang.assumed_device import ASSUMED_OVERHEADS, assumed_device
from pdmuxd.engine.sglang.engine_info import EngineInfo
from pdmuxd.engine.sglang.gauges import GpuReading, ReadGpu
from pdmuxd.engine.sglang.internals.probes import has_state_slots
from pdmuxd.engine.sglang.model_config import model_shape
from pdmuxd.engine.sglang.partition_tables import sm_rules_of
from pdmuxd.engine.sglang.streams.cpu import TOTAL_SMS

_TILE_ROWS = {"FlashAttentionBackend": FLASH_ATTENTION_TILE_ROWS}
"""By the class of the attention backend; for other classes it is not known."""
CPU_SLICE_TOKENS = 128
"""SGLang's attention on a CPU computes all that a slice reads anew for each slice: in slices of 32 tokens
a prompt held the scheduler for 30 s."""
_PLAIN_KV = ("auto", "bfloat16", "bf16", "float16")


def sm_rules(gpu: int) -> SmRules:
    """What the driver allows on this device; the stand-in's on a CPU."""
    if not torch.cuda.is_available():
        return sm_rules_of(TOTAL_SMS, capability=9)
    properties = torch.cuda.get_device_properties(gpu)
    return sm_rules_of(properties.multi_processor_count, capability=properties.major)


def engine_info(
    scheduler: Scheduler,
    table: PartitionTable,
    *,
    unsplit: str = "",
    can_slice: bool = False,
    has_partition_kernels: bool = True,
) -> EngineInfo:
    """Everything fixed about a scheduler that is ready to serve."""
    config = scheduler.model_config.hf_config
    runner = scheduler.tp_worker.model_runner
    captured = tuple(sorted(getattr(runner.decode_cuda_graph_runner, "capture_bs", ()) or ()))
    fused = fused_graph_tokens(runner)
    name = str(scheduler.server_args.served_model_name or scheduler.server_args.model_path)
    prefill_tokens = scheduler.max_prefill_tokens
    return EngineInfo(
        pid=os.getpid(),
        model_name=name,
        model=model_shape(
            scheduler.model_config.hf_text_config,
            name,
            quantized=getattr(config, "quantization_config", None),
            quantization=scheduler.model_config.quantization,
            kv_type=str(scheduler.server_args.kv_cache_dtype),
        ),
        model_hash=_model_hash(config),
        device=_device_shape(runner, table.rules),
        overheads=replace(ASSUMED_OVERHEADS, fused_graph_tokens=max(fused, default=0)),
        tensor_parallel=TensorParallel(gpus=scheduler.tp_size),
        table=table,
        limits=EngineLimits(
            max_prefill_tokens=prefill_tokens,
            max_whole_tokens=prefill_tokens if torch.cuda.is_available() else None,  # until it was measured
            max_decode_bs=captured[-1] if captured else scheduler.max_running_requests,
            least_slice_tokens=_least_slice_tokens() if can_slice else None,
        ),
        kv_capacity_tokens=scheduler.max_total_num_tokens,
        vocab_size=scheduler.model_config.vocab_size,
        max_context_tokens=scheduler.model_config.context_len,
        captured_decode_bs=captured,
        captured_fused_tokens=fused,
        driver=_driver(),
        sglang_version=installed_version(),
        variant=_variant(scheduler, has_partition_kernels=has_partition_kernels),
        can_measure=not has_state_slots(scheduler),
        unsplit=unsplit,
        fused_tile_rows=_tile_rows(runner.attn_backend),
    )


def _least_slice_tokens() -> int:
    """The least tokens of a slice: on a CPU as few as a tiny model's prompts have."""
    return LEAST_SLICE_TOKENS if torch.cuda.is_available() else CPU_SLICE_TOKENS


def _variant(scheduler: Scheduler, *, has_partition_kernels: bool) -> str:
    """What the shapes do not tell, in words; empty for weights and KV of the model's own type."""
    told = []
    if quantization := scheduler.model_config.quantization:
        told.append(f"weights in {quantization}")
    if (kv_type := scheduler.server_args.kv_cache_dtype) not in _PLAIN_KV:
        told.append(f"KV cache in {kv_type}")
    if scheduler.enable_lora:
        told.append("adapters of tenants")
    if not has_partition_kernels:
        told.append("the whole GPU's kernels on partitions")
    return ", ".join(told)


def _tile_rows(attention: AttentionBackend) -> int:
    """The tile height of a backend, or of the one that it gives prompts to. Its class says what really runs,
    whatever was asked for."""
    prefill = getattr(attention, "prefill_backend", attention)
    return _TILE_ROWS.get(type(prefill).__name__, 0)


def fused_graph_tokens(runner: ModelRunner) -> tuple[int, ...]:
    """The sizes for which SGLang captured graphs of prompt tokens, growing."""
    return tuple(sorted(getattr(runner.prefill_cuda_graph_runner, "capture_num_tokens", ()) or ()))


def _model_hash(config: Any) -> str:
    """A hash of the configuration, without the fields that say where it came from."""
    fields = {k: v for k, v in config.to_dict().items() if k not in ("_name_or_path", "transformers_version")}
    return hashlib.sha256(json.dumps(fields, sort_keys=True, default=str).encode()).hexdigest()


def _device_shape(runner: ModelRunner, rules: SmRules) -> DeviceShape:
    name = "CPU stand-in of an NVIDIA H200"
    if torch.cuda.is_available():
        name = torch.cuda.get_device_name(runner.gpu_id)
    return assumed_device(name, rules)


def _driver() -> str:
    try:
        return Path("/proc/driver/nvidia/version").read_text(encoding="utf-8").partition("\n")[0].strip()
    except OSError:
        return ""


def gpu_reader(scheduler: Scheduler) -> ReadGpu | None:
    """Reads the clock and power of the process's GPU; None where there is no GPU, or no way to ask it."""
    if not torch.cuda.is_available():
        return None
    try:
        import pynvml
    except ImportError:
        return None
    gpu = scheduler.tp_worker.model_runner.gpu_id

    def read() -> GpuReading:
        try:
            return GpuReading(
                clock_mhz=int(torch.cuda.clock_rate(gpu)),
                power_w=torch.cuda.power_draw(gpu) / 1000.0,
            )
        except pynvml.NVMLError as error:
            raise RuntimeError(f"the driver says: {error}") from None

    return read
