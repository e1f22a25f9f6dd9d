"""For `late_behind.py --timed`: what the calls of a turn of SGLang's scheduler take of its main thread.

Each second a line of JSON: the time, and for each call how often it was made, its seconds by the clock and
its seconds of the processor, so far; beside it the calls that were long, one by one, and how often PyTorch
took memory from the driver, which waits for the device, and had to give other memory back for it (`taken`).
A call within another counts in both. A call costs 1 microsecond more.
Beside it, what an arm leaves out: `no-insert` the prefix cache's insertion of prompts whose answer begins,
`no-log` SGLang's line of log for each step, `no-gauge` asking the driver for clock and power.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

SRT = "sglang.srt.managers"
CALLS = (
    ("pdmuxd.engine.loop.loop", "EngineLoop.launch"),
    ("pdmuxd.engine.sglang.internals.scheduler", "SchedulerPort.take_input"),
    ("pdmuxd.engine.sglang.reporting", "Reporter.exchange"),
    ("pdmuxd.engine.sglang.internals.decode", "SchedulerDecode.settle"),
    ("pdmuxd.engine.loop.results", "Results.notice"),
    ("pdmuxd.engine.loop.results", "Results.collect"),
    ("pdmuxd.engine.loop.planner", "Planner.plan"),
    ("pdmuxd.engine.loop.launches", "Launches.carry_out"),
    ("pdmuxd.engine.loop.results", "Results.read"),
    ("pdmuxd.engine.sglang.internals.decode", "SchedulerDecode.wait"),
    ("pdmuxd.engine.sglang.internals.decode", "SchedulerDecode.read"),
    ("pdmuxd.engine.sglang.internals.layerwise", "SchedulerPrefill.form_prefill"),
    ("pdmuxd.engine.sglang.internals.layerwise", "SchedulerPrefill.launch_layers"),
    ("pdmuxd.engine.sglang.internals.layerwise", "SchedulerPrefill.finish_prefill"),
    (f"{SRT}.scheduler", "Scheduler.get_next_batch_to_run"),
    (f"{SRT}.scheduler", "Scheduler.update_running_batch"),
    (f"{SRT}.scheduler", "Scheduler.run_batch"),
    (f"{SRT}.schedule_batch", "ScheduleBatch.prepare_for_extend"),
    (f"{SRT}.schedule_batch", "ScheduleBatch.prepare_for_decode"),
    (f"{SRT}.schedule_batch", "ScheduleBatch.mix_with_running"),
    (f"{SRT}.schedule_batch", "ScheduleBatch.merge_batch"),
    (f"{SRT}.schedule_batch", "ScheduleBatch.filter_batch"),
    (f"{SRT}.schedule_batch", "ScheduleBatch.copy"),
    (f"{SRT}.schedule_batch", "Req.init_next_round_input"),
    (f"{SRT}.schedule_policy", "PrefillAdder.add_one_req"),
    ("sglang.srt.model_executor.forward_batch_info", "ForwardBatch.init_new"),
    ("sglang.srt.model_executor.model_runner", "ModelRunner.forward"),
    ("sglang.srt.model_executor.model_runner", "ModelRunner.sample"),
    (f"{SRT}.scheduler_components.batch_result_processor", "checkpoint_kv_cache"),
    (f"{SRT}.scheduler_components.batch_result_processor", "release_kv_cache"),
    ("sglang.srt.mem_cache.unified_radix_cache", "UnifiedRadixCache.insert"),
    ("sglang.srt.mem_cache.unified_radix_cache", "UnifiedRadixCache.path_device_indices"),
    ("sglang.srt.mem_cache.unified_radix_cache", "UnifiedRadixCache.evict"),
    ("sglang.srt.mem_cache.unified_radix_cache", "UnifiedRadixCache.evictable_size"),
    ("sglang.srt.mem_cache.memory_pool", "ReqToTokenPool.write"),
    (f"{SRT}.scheduler_components.metrics_reporter", "SchedulerMetricsReporter.report_prefill_stats"),
    (f"{SRT}.scheduler_components.metrics_reporter", "SchedulerMetricsReporter.report_decode_stats"),
    ("pdmuxd.engine.sglang.internals.direct_tokens", "DirectStreamer.stream_output"),
)

WATCHED = (
    *(("torch", name) for name in ("tensor", "empty", "cat", "zeros", "full", "arange", "stack")),
    *(("torch", f"Tensor.{name}") for name in ("to", "cpu", "cuda", "copy_", "tolist", "item", "pin_memory")),
    *(("torch", f"Tensor.{name}") for name in ("__getitem__", "__setitem__", "clone", "contiguous", "add_")),
    *(("torch.cuda", f"Event.{name}") for name in ("record", "query", "synchronize")),
    ("torch.cuda", "CUDAGraph.replay"),
    ("torch.cuda", "Stream.wait_stream"),
)
_SO_FAR: dict[str, list[float]] = {}
"""By call: how often, seconds by the clock, seconds of the processor."""
SERVES = "serves"
"""The mark from which on calls are wrapped: a start captures graphs and compiles kernels with them."""
LONG_S = 0.008
_LONG: list[list[Any]] = []
"""Calls longer than that, of WATCHED half as long: when each ended, its name, and its milliseconds by the
clock and of the processor."""


def _watched(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """Of a call that is made so often that only the long ones are written down."""
    clock = time.perf_counter

    def watched(*args: Any, **named: Any) -> Any:
        begin_s = clock()
        try:
            return call(*args, **named)
        finally:
            took_s = clock() - begin_s
            if took_s > LONG_S / 2:
                _LONG.append([time.time(), name, round(1e3 * took_s, 2), None])

    return watched


def _timed(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    so_far = _SO_FAR.setdefault(name, [0, 0.0, 0.0])
    clock, computed = time.perf_counter, time.thread_time

    @functools.wraps(call)
    def timed(*args: Any, **named: Any) -> Any:
        computed_s, begin_s = computed(), clock()
        try:
            return call(*args, **named)
        finally:
            took_s, own_s = clock() - begin_s, computed() - computed_s
            so_far[0] += 1
            so_far[1] += took_s
            so_far[2] += own_s
            if took_s > LONG_S:
                _LONG.append([time.time(), name, round(1e3 * took_s, 2), round(1e3 * own_s, 2)])

    return timed


def _owner(module: str, path: str) -> tuple[Any, str]:
    owner: Any = importlib.import_module(module)
    *outer, name = path.split(".")
    for part in outer:
        owner = getattr(owner, part)
    return owner, name


def _left_out(folder: Path) -> Callable[[], None]:
    """Calls that an arm can do without; the function looks for the marks."""
    marks = {"no-insert": False, "no-log": False, "no-gauge": False}
    results, name = _owner(f"{SRT}.scheduler_components.batch_result_processor", "checkpoint_kv_cache")
    insert = getattr(results, name)

    def inserted(request: Any, cache: Any) -> None:
        if marks["no-insert"]:
            request.prefix_len = request.extend_end
        else:
            insert(request, cache)

    setattr(results, name, inserted)
    reporter, name = _owner(
        f"{SRT}.scheduler_components.metrics_reporter", "SchedulerMetricsReporter.report_prefill_stats"
    )
    report = getattr(reporter, name)
    setattr(reporter, name, lambda *a, **k: None if marks["no-log"] else report(*a, **k))

    cuda, _ = _owner("torch.cuda", "clock_rate")
    for name in ("clock_rate", "power_draw"):
        ask = getattr(cuda, name)
        setattr(cuda, name, lambda gpu, ask=ask: 0 if marks["no-gauge"] else ask(gpu))

    def look() -> None:
        for mark in marks:
            marks[mark] = (folder / mark).exists()

    return look


def _wrapped(
    paths: Sequence[tuple[str, str]], wrap: Callable[[str, Callable[..., Any]], Callable[..., Any]]
) -> Iterator[str]:
    """Wrap each; tell those that cannot be."""
    for module, path in paths:
        try:
            owner, name = _owner(module, path)
            kind = owner.__dict__.get(name)
            if isinstance(kind, classmethod):
                setattr(owner, name, classmethod(wrap(path, kind.__func__)))
            else:
                setattr(owner, name, wrap(path, getattr(owner, name)))
        except (ImportError, AttributeError, TypeError) as error:
            yield f"{module} {path}: {error}"


def run(folder: Path) -> None:
    """Wrap the calls once SGLang's scheduler serves; write down what they took until the process ends."""
    while not (folder / SERVES).exists():
        time.sleep(1.0)
    if b"sglang::scheduler" not in Path("/proc/self/cmdline").read_bytes():
        return
    look = _left_out(folder)
    missing = [*_wrapped(CALLS, _timed), *_wrapped(WATCHED, _watched)]
    with (folder / f"{os.getpid()}.timed").open("a", buffering=1) as out:
        out.write(json.dumps({"missing": missing}) + "\n")
        while True:
            with contextlib.suppress(OSError):
                look()
            out.write(
                json.dumps(
                    {
                        "at": time.monotonic(),
                        "calls": _SO_FAR,
                        "main": _main(),
                        "long": _LONG[:],
                        "taken": _taken(),
                    }
                )
                + "\n"
            )
            _LONG.clear()
            time.sleep(1.0)


def _taken() -> list[int]:
    cuda, _ = _owner("torch.cuda", "memory_stats")
    told = cuda.memory_stats() if cuda.is_available() else {}
    return [told.get("num_device_alloc", 0), told.get("num_alloc_retries", 0)]


def _main() -> list[float]:
    """Seconds that the main thread computed, and waited for a core, so far."""
    ran, waited = Path(f"/proc/self/task/{os.getpid()}/schedstat").read_text().split()[:2]
    return [int(ran) / 1e9, int(waited) / 1e9]
