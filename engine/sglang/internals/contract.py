"""The names and signatures of SGLang that this package stands on, and the versions they were tested in."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pkgutil import resolve_name

from pdmuxd.engine.core.errors import EngineError

TESTED_VERSIONS = ("0.5.23",)


@dataclass(frozen=True, slots=True)
class Needed:
    """A callable of SGLang, and the parameters that it is called with (besides self)."""

    name: str
    parameters: tuple[str, ...] = ()


_SCHEDULER = "sglang.srt.managers.scheduler:Scheduler"
_BATCH = "sglang.srt.managers.schedule_batch:ScheduleBatch"
_RUNNER = "sglang.srt.model_executor.model_runner:ModelRunner"
_STREAMER = "sglang.srt.managers.scheduler_components.output_streamer"
_PDMUX = "sglang.srt.multiplex.pdmux_context"

NEEDED = (
    Needed(f"{_SCHEDULER}.ingest_requests"),
    Needed(f"{_SCHEDULER}.get_next_batch_to_run", ("running_batch", "last_batch")),
    Needed(f"{_SCHEDULER}.get_new_batch_prefill", ("running_batch",)),
    Needed(f"{_SCHEDULER}.update_running_batch", ("batch",)),
    Needed(f"{_SCHEDULER}.run_batch", ("batch",)),
    Needed(f"{_SCHEDULER}.process_batch_result", ("batch", "result")),
    Needed(f"{_SCHEDULER}.on_idle"),
    Needed(f"{_SCHEDULER}.is_fully_idle"),
    Needed(f"{_SCHEDULER}.pause_generation", ("recv_req",)),
    Needed(f"{_SCHEDULER}._collect_inflight_batches"),
    Needed(f"{_SCHEDULER}._add_request_to_queue", ("req",)),
    Needed(f"{_SCHEDULER}._release_aborted_request", ("req",)),
    Needed(f"{_SCHEDULER}._apply_war_barrier"),
    Needed(f"{_SCHEDULER}.launch_batch_sample_if_needed", ("batch_result", "cur_batch")),
    Needed(f"{_BATCH}.merge_batch", ("other",)),
    Needed(f"{_BATCH}.filter_batch", ("reqs_to_exclude",)),
    Needed(f"{_BATCH}.copy"),
    Needed(f"{_RUNNER}.update_decode_attn_backend", ("stream_idx",)),
    Needed(f"{_RUNNER}.init_cuda_graphs"),
    Needed("sglang.srt.model_executor.runner.prefill_cuda_graph_runner:PrefillCudaGraphRunner.capture"),
    Needed("sglang.srt.model_executor.cuda_graph_config:PhaseConfig", ("backend", "full_prefill_max_req")),
    Needed(f"{_PDMUX}:initialize_stream_groups", ("gpu_id", "config")),
    Needed(f"{_PDMUX}:set_current_stream_idx", ("idx",)),
    Needed("sglang.srt.multiplex.multiplexing_mixin:SchedulerMultiplexMixin.event_loop_pdmux"),
    Needed("sglang.srt.managers.tokenizer_manager:TokenizerManager.sigterm_watchdog"),
    Needed("sglang.srt.distributed.parallel_state:pdmux_prefill_tp_group"),
    Needed("sglang.srt.runtime_context:ParallelContext.override"),
    Needed("sglang.srt.layers.linear:LinearBase"),
    Needed("sglang.srt.layers.quantization.unquant:UnquantizedLinearMethod.apply", ("layer", "x")),
    Needed(
        "sglang.srt.layers.logits_processor:LogitsProcessor._compute_lm_head", ("hidden_states", "lm_head")
    ),
    Needed(
        "sglang.srt.model_executor.runner.decode_cuda_graph_runner:DecodeCudaGraphRunner._capture_one_stream",
        ("stream_idx",),
    ),
    Needed(
        "sglang.srt.model_executor.runner.base_cuda_graph_runner:get_batch_sizes_to_capture",
        ("model_runner",),
    ),
    Needed("sglang.kernels.ops.memory.small_copy:try_small_copy", ("dsts", "srcs")),
    Needed("sglang.srt.mem_cache.common:release_kv_cache", ("req", "tree_cache", "checkpoint")),
    Needed("sglang.srt.managers.schedule_batch:Req.init_next_round_input", ("tree_cache",)),
    Needed("sglang.srt.managers.schedule_batch:Req.update_finish_state"),
    Needed("sglang.srt.managers.utils:GenerationBatchResult.copy_to_cpu", ("return_logprob",)),
    Needed(f"{_STREAMER}:SchedulerOutputStreamer.stream_output", ("reqs", "return_logprob")),
)


def check_version() -> str:
    """The installed version. Raises: EngineError if it was not tested with this plugin."""
    version = metadata.version("sglang")
    if version not in TESTED_VERSIONS:
        raise EngineError(f"SGLang {version} was not tested; tested are {', '.join(TESTED_VERSIONS)}")
    return version


def broken() -> Iterator[str]:
    """What is missing or has other parameters than this package calls it with."""
    for needed in NEEDED:
        try:
            found = resolve_name(needed.name)
        except (ImportError, AttributeError) as error:
            yield f"{needed.name}: {error}"
            continue
        has = inspect.signature(found).parameters
        missing = [parameter for parameter in needed.parameters if parameter not in has]
        if missing:
            yield f"{needed.name}: no parameter {', '.join(missing)}"
