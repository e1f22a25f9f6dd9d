"""The hooks: SGLang makes our streams, runs our loop, knows of the prefill that the loop has in flight, and
stops without delay.

If SGLang fails to apply a hook it only logs that; `_verify` stops the server instead.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from typing import Any

import torch

from pdmuxd.engine.core.errors import EngineError
from pdmuxd.engine.core.partitions import PartitionTable
from pdmuxd.engine.link.procfs import started_s
from pdmuxd.engine.link.socket import EngineEnd
from pdmuxd.engine.loop.loop import EngineLoop
from pdmuxd.engine.loop.policy_runtime import PolicyRuntime
from pdmuxd.engine.loop.streams import StreamGroup
from pdmuxd.engine.sglang.api.symbols import attention, deep_gemm, flashinfer, sglang, target
from pdmuxd.engine.sglang.api.types.model import DecodeGraphs, ModelRunner
from pdmuxd.engine.sglang.api.types.process import FreezeRequest
from pdmuxd.engine.sglang.api.types.requests import Batch, Request
from pdmuxd.engine.sglang.api.types.scheduler import Scheduler
from pdmuxd.engine.sglang.environment import PluginEnvironment
from pdmuxd.engine.sglang.gauges import GpuGauges
from pdmuxd.engine.sglang.internals import (
    deep_gemm_kernels,
    deep_gemm_sms,
    describe,
    direct_tokens,
    expert_bits,
    insertion,
    invalid_rows,
    meeting_point,
    partition_kernels,
    role_buffers,
    stopping,
    tagging,
    taking_in,
    warming,
    whole_graphs,
)
from pdmuxd.engine.sglang.internals.garbage import ProcessGarbage, thresholds_stay
from pdmuxd.engine.sglang.internals.images import WholePrompts, why_whole
from pdmuxd.engine.sglang.internals.invalid_rows import InvalidRows
from pdmuxd.engine.sglang.internals.measuring import EngineMeasurer
from pdmuxd.engine.sglang.internals.scheduler import SchedulerPort
from pdmuxd.engine.sglang.internals.splitting import Splitting, launch_layers
from pdmuxd.engine.sglang.launch.mode import splits_marlin
from pdmuxd.engine.sglang.partition_tables import make_table
from pdmuxd.engine.sglang.policies import SglangPolicies
from pdmuxd.engine.sglang.reporting import Reporter
from pdmuxd.engine.sglang.requests import Ledger
from pdmuxd.engine.sglang.start_phases import StartPhases
from pdmuxd.engine.sglang.streams.base import LaunchStreams
from pdmuxd.engine.sglang.streams.cpu import CpuStreams
from pdmuxd.engine.sglang.streams.partition_kernels import PartitionKernels

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Process:
    """What this process has made so far."""

    environment: PluginEnvironment
    phases: StartPhases
    garbage: ProcessGarbage
    table: PartitionTable | None = None
    streams: LaunchStreams | None = None
    kernels: PartitionKernels | None = None
    splitting: Splitting | None = None
    loop: EngineLoop | None = None
    ledger: Ledger | None = None
    invalid_rows: InvalidRows = field(default_factory=InvalidRows)
    whole: WholePrompts = field(default_factory=WholePrompts)


Hook = tuple[Callable[..., Any], object]
"""What SGLang calls, and when: one of `HookType`."""


def register_hooks(environment: PluginEnvironment) -> None:
    """Tell SGLang what to call.

    Raises: SettingsError, PolicyError; EngineError if SGLang is not as expected.
    """
    meeting_point.keep_on_loopback(os.environ)
    phases = StartPhases(launcher_s=environment.launched_s, process_s=started_s(os.getpid()))
    process = _Process(environment=environment, phases=phases, garbage=ProcessGarbage(environment.link))
    when = sglang().HookType
    hooks: dict[str, Hook] = {
        target("streams", "initialize_stream_groups"): (
            lambda gpu_id, config: _make_streams(process, gpu_id),  # noqa: ARG005 - SGLang's signature
            when.REPLACE,
        ),
        target("MultiplexMixin", "event_loop_pdmux"): (
            lambda scheduler: _run(process, scheduler, tuple(hooks)),
            when.REPLACE,
        ),
        target("Scheduler", "is_fully_idle"): (
            lambda original, *a, **k: original(*a, **k) and not _is_busy(process),
            when.AROUND,
        ),
        target("Scheduler", "_collect_inflight_batches"): (
            lambda batches, *_a, **_k: [*batches, *_prefills(process)],
            when.AFTER,
        ),
        target("Scheduler", "_release_aborted_request"): (
            lambda original, scheduler, request: _released(process, original, scheduler, request),
            when.AROUND,
        ),
        target("Scheduler", "pause_generation"): (
            lambda original, *a, **k: _drained(process, original, *a, **k),
            when.AROUND,
        ),
        target("ModelRunner", "init_cuda_graphs"): (
            lambda runner, *_a, **_k: _before_capture(process, runner),
            when.BEFORE,
        ),
        target("ModelRunner", "forward_split_prefill"): (
            lambda *given, **named: launch_layers(process.splitting, *given, **named),
            when.REPLACE,
        ),
        target("ModelRunner", "_preprocess_logits"): (process.invalid_rows.find, when.AROUND),
        target("SamplingInfo", "update_regex_vocab_mask"): (invalid_rows.restrict, when.AROUND),
        target("Scheduler", "handle_generate_request"): (taking_in.take, when.AROUND),
        target("Scheduler", "_add_request_to_queue"): (
            partial(taking_in.queue, whole=process.whole),
            when.AROUND,
        ),
        target("GrammarBackend", "_init_value_dispatch"): (invalid_rows.refuse_empty, when.AROUND),
        target("TokenizerManager", "sigterm_watchdog"): (stopping.end_without_delay, when.AROUND),
        target("TokenizerManager", "generate_request"): (tagging.tag, when.BEFORE),
        target("TokenizerManager", "freeze_gc"): (process.garbage.http_frozen, when.AROUND),
        target("DetokenizerManager", "handle_freeze_gc_req"): (
            process.garbage.detokenizer_frozen,
            when.AFTER,
        ),
        target("Scheduler", "handle_freeze_gc"): (
            lambda _, _scheduler, request: _frozen(process, request),
            when.AFTER,
        ),
        target("checkpoint_kv_cache"): (insertion.checkpoint, when.AROUND),
        target("try_small_copy"): (warming.decline_small_copy, when.REPLACE),
    }
    if torch.cuda.is_available():
        hooks[target("DecodeGraphs", "_capture_one_stream")] = (_capturing(process), when.AROUND)
        hooks |= _kernel_hooks(process) if environment.partition_kernels else {}
    if environment.whole_graphs:
        hooks[target("PrefillGraphs", "capture")] = (whole_graphs.capture_unsplit, when.AROUND)
    for name, (hook, kind) in hooks.items():
        sglang().Hooks.register(name, hook, kind)


def _kernel_hooks(process: _Process) -> dict[str, Hook]:
    """Hooks on what is launched on partitions; elsewhere they change nothing."""
    attention()  # it is there, and takes what it is given

    def around(launch: Callable[..., Any]) -> Hook:
        def hook(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            kernels = process.kernels
            if kernels is None:
                return original(*args, **kwargs)
            return launch(kernels, original, *args, **kwargs)

        return hook, sglang().HookType.AROUND

    return {
        target("UnquantizedLinear", "apply"): around(partition_kernels.launch_product),
        target("LogitsProcessor", "_compute_lm_head"): around(partition_kernels.launch_head),
        target("flash_attn_with_kvcache"): around(partition_kernels.launch_attention),
    }


def _capturing(process: _Process) -> Callable[..., None]:
    """Wraps the capture of one group's decode graphs."""

    def capture(original: Callable[..., None], graphs: DecodeGraphs, stream_idx: int | None = None) -> None:
        groups = process.streams.groups if process.streams is not None else ()
        if stream_idx is not None and stream_idx < len(groups):
            member = f"{stream_idx + 1}/{len(groups)} ({groups[stream_idx].decode_sms} SMs)"
            process.phases.begin("capturing decode graphs", member)
        if process.kernels is None or process.streams is None:
            original(graphs, stream_idx)
        else:
            partition_kernels.capture_partition(
                process.kernels, process.streams, original, graphs, stream_idx
            )

    return capture


def _before_capture(process: _Process, runner: ModelRunner) -> None:
    """Ahead of all graphs, behind the model."""
    expert_bits.keep_apart()
    if process.environment.whole_graphs:
        whole_graphs.choose_whole_graphs(runner)
    if process.kernels is not None and process.streams is not None:
        process.phases.begin("choosing kernels")
        partition_kernels.choose_kernels(
            process.kernels, process.streams, runner, process.environment.kernels_file
        )
        process.kernels.attention = partition_kernels.tell_attention(process.kernels, process.streams, runner)
        _tell_deep_gemm(process, process.kernels, process.streams.groups, runner)
    process.phases.begin("capturing graphs")


def _tell_deep_gemm(
    process: _Process, kernels: PartitionKernels, groups: Sequence[StreamGroup], runner: ModelRunner
) -> None:
    shapes = deep_gemm_sms.fp8_shapes(runner.model)
    is_hopper = torch.cuda.is_available() and torch.cuda.get_device_capability()[0] == 9
    if not shapes or not is_hopper or "deep_gemm" not in sys.modules:  # SGLang imports what it may use
        return
    process.phases.begin("compiling kernels")
    library = deep_gemm()
    sms = deep_gemm_kernels.compile_ahead(
        [*deep_gemm_kernels.works(groups, shapes, kernels.total_sms)],
        version=library.__version__,
        gpu=runner.gpu_id,
        free_bytes=torch.cuda.mem_get_info()[0],
    )
    deep_gemm_sms.tell(kernels, library, shapes, sms)


def _make_streams(process: _Process, gpu: int) -> None:
    """Replaces SGLang's own; its decode graphs and attention backends are made per group of these."""
    process.phases.begin("making streams")
    table = make_table(describe.sm_rules(gpu), process.environment)
    if process.environment.partition_kernels and torch.cuda.is_available():
        process.kernels = partition_kernels.make_kernels(table.rules.total_sms)
    streams = _streams(table, gpu, process.kernels)
    if torch.cuda.is_available() and find_spec("flashinfer") is not None:
        role_buffers.keep_apart(flashinfer().utils, role_buffers.prefill_is_current(streams))
    process.table, process.streams = table, streams
    sglang_streams = sglang().streams
    sglang_streams.STREAM_GROUPS = [(group.prefill, group.decode) for group in streams.groups]
    sglang_streams.SM_COUNTS = [(group.prefill_sms, group.decode_sms) for group in streams.groups]
    sglang_streams.set_current_stream_idx(0)
    process.phases.begin("loading the model")


def _streams(table: PartitionTable, gpu: int, kernels: PartitionKernels | None) -> LaunchStreams:
    if not torch.cuda.is_available():
        return CpuStreams(table)
    from pdmuxd.engine.sglang.streams.cuda import CudaStreams

    return CudaStreams(table, gpu, kernels)


def _run(process: _Process, scheduler: Scheduler, targets: tuple[str, ...]) -> None:
    """SGLang's event loop is this one."""
    _verify(targets)
    if process.table is None or process.streams is None:
        raise EngineError("SGLang did not ask the plugin for streams; start it with --enable-pdmux")
    with torch.inference_mode():
        loop = process.loop = _build(process, process.table, process.streams, scheduler)
        process.phases.end()
        _log.info(
            "pdmuxd: policy %s on partitions %s",
            loop.policy_runtime.policy.name,
            sglang().streams.SM_COUNTS,
        )
        loop.run()


def _build(
    process: _Process, table: PartitionTable, streams: LaunchStreams, scheduler: Scheduler
) -> EngineLoop:
    environment = process.environment
    process.phases.begin("making the loop")
    direct = None
    if environment.link is not None and sglang().get_parallel().tp_rank == 0:
        direct = direct_tokens.install(scheduler, environment.link)
    port = SchedulerPort(scheduler, streams, process.invalid_rows)
    process.phases.begin("trying a split")
    process.splitting = Splitting(scheduler, port, streams, splits_marlin=splits_marlin(os.environ))
    engine_info = describe.engine_info(
        scheduler,
        table,
        unsplit=process.splitting.prepare(),
        can_slice=process.splitting.can_slice,
        has_partition_kernels=environment.partition_kernels,
    )
    link = None
    if environment.link is not None and port.state.is_first_rank:
        link = EngineEnd(environment.link)
        link.send(engine_info.hello(version=metadata.version("pdmuxd"), settings_version=0))
    read_gpu = describe.gpu_reader(scheduler) if link is not None else None
    gauges = GpuGauges(read_gpu)
    gauges.start()
    process.phases.begin("warming up products")
    warming.load_products(scheduler.tp_worker.model_runner.model, streams)
    can_split = not engine_info.unsplit
    measurer = None
    if engine_info.can_measure:
        measurer = EngineMeasurer(scheduler, port, streams, table, read_gpu, can_split=can_split)
        measurer.warm_up(partial(process.phases.begin, "warming up prefill"))
        if measurer.activations is not None:
            engine_info = engine_info.holding(measurer.activations)
    if can_split and engine_info.limits.max_whole_tokens is not None:
        _log.info(
            "pdmuxd: prompts of more than %d new tokens are prefilled in chunks, for the sake of memory",
            engine_info.limits.max_whole_tokens,
        )
    whole = process.whole
    whole.why, whole.most_tokens = why_whole(scheduler), engine_info.limits.max_whole_tokens
    if whole.why:
        _log.info("pdmuxd: prompts with images are prefilled whole, with nothing beside them: %s", whole.why)
    reporter = Reporter(link, measurer, gauges, poll=None if direct is None else direct.poll)
    ledger = process.ledger = Ledger(port.reused_tokens, reporter.send_request, whole.has)
    return EngineLoop(
        port=port,
        streams=streams,
        policy_runtime=PolicyRuntime(SglangPolicies(engine_info), environment.policy),
        ledger=ledger,
        reporter=reporter,
        collected_s=process.garbage.collected_s,
    )


def _verify(targets: tuple[str, ...]) -> None:
    missing = [target for target in targets if target not in sglang().Hooks._patched]
    if missing:
        raise EngineError(f"SGLang did not apply the hook on {missing[0]}; see its log")


def _is_busy(process: _Process) -> bool:
    return process.loop is not None and process.loop.is_busy


def _released(
    process: _Process, original: Callable[..., object], scheduler: Scheduler, request: Request
) -> None:
    """Tell the ledger: a request that is aborted in the turn in which it arrived is in no queue that the loop
    looks at."""
    original(scheduler, request)
    if process.loop is not None and process.ledger is not None:
        process.ledger.released(request, process.loop.now_s())


def _prefills(process: _Process) -> list[Batch]:
    """SGLang aborts requests in the batches it knows to be in flight."""
    return [] if process.loop is None else [batch.batch for batch in process.loop.prefill.members()]


def _frozen(process: _Process, request: FreezeRequest) -> None:
    """This scheduler has served its first request, and keeps what it has made."""
    loop, rank = process.loop, sglang().get_parallel().tp_rank
    process.garbage.hold(
        f"scheduler-{rank}" if rank else "scheduler",
        is_idle=lambda: loop is None or loop.is_idle,
        keeps_thresholds=thresholds_stay(request),
    )


def _drained(process: _Process, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if process.loop is not None:
        process.loop.drain()
    return original(*args, **kwargs)
