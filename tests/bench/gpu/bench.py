"""Works a list of runs off: starts each server once, and writes each result as soon as it is there."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Coroutine, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(1, str(Path(__file__).parents[2] / "support"))

from client import send_all
from model_folder import SHAPES, write_model_folder
from runs import Run, done_in
from score import record, summary
from server import ArmError, ServerError, free_port, running
from table import line
from workload import Cell
from workload import build as build_requests

T = TypeVar("T")

FIRST_START_S = 100.0
"""What a server's start takes at most on a machine that has started none, Python's caches being cold (one
H200, Llama-8B, SGLang 0.5.23, 2026-11-21)."""
START_S = {"llama-8b": 72.0, "codellama-34b": 100.0, "tiny": 40.0}
"""A later start with its warm-up, by model; Llama-8B as measured (61 to 66 s, 8 s), the others estimated."""
MARGIN_S = 4.0
"""Of a run, beside its arrivals and its drain: prompts are written, the cache is emptied."""


class Bench:
    """One sitting: results of one call are known to come from one machine at one time."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._begin_s = time.monotonic()
        self._end_s = self._begin_s + options.budget_s
        self._traces = json.loads(options.traces.read_text()) if options.traces.exists() else {}
        self._sitting = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self._gpu = gpu_name()
        self._started = 0
        self.left = 0
        self.failed: list[str] = []

    async def work(self, runs: Sequence[Run]) -> None:
        """Do in this order what is not done."""
        done = done_in(self._options.results)
        wanted = [run for run in runs if run.is_anchor or not run.is_in(done)]
        broken: set[tuple[str, int, str]] = set()
        for server, group in groupby(wanted, key=lambda run: run.server):
            of_server = list(group)
            if server in broken or not self._has_time(self._start_s(server[0]) + self._run_s):
                self.left += len(of_server)
                continue
            try:
                await self._serve(of_server)
            except (ServerError, TimeoutError) as error:
                broken.add(server)
                self._fail(server[2], error)
                self.left += len(of_server)

    @property
    def _run_s(self) -> float:
        return float(self._options.duration_s + self._options.drain_s + MARGIN_S)

    def _start_s(self, model: str) -> float:
        return START_S[model] + (0.0 if self._started or self._options.cpu else FIRST_START_S - 66.0)

    def _has_time(self, seconds: float) -> bool:
        return time.monotonic() + seconds < self._end_s

    async def _serve(self, runs: list[Run]) -> None:
        options, first, port = self._options, runs[0], free_port()
        model = write_model_folder(first.model, options.work / first.model, **options.config)
        async with contextlib.AsyncExitStack() as stack:
            link, address = None, None
            if first.arm.policy is not None:
                from link import listening  # stock arms run where pdmuxd is not installed

                # A socket's path has at most 107 bytes.
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="pdm"))
                address = f"ipc://{folder}/engine"
                link = await stack.enter_async_context(listening(address))
            command = first.arm.command(
                model=model,
                port=port,
                link=address,
                tp_size=first.tp_size,
                cpu=options.cpu,
                extra=options.extra,
            )
            self._say(f"{first.model} {first.arm.server}: {' '.join(command)}")
            limit_s = min(options.start_s, max(10.0, self._end_s - time.monotonic() - self._run_s))
            base_url = await stack.enter_async_context(
                running(
                    first.arm,
                    command=command,
                    environment=first.arm.environment(cpu=options.cpu, tp_size=first.tp_size),
                    port=port,
                    log=options.log_dir / f"{first.model}-{first.arm.server}.log",
                    start_s=limit_s,
                )
            )
            self._started += 1
            await self._warm_up(first, base_url, link)
            for number, run in enumerate(runs):
                if not self._has_time(self._run_s):
                    self.left += len(runs) - number
                    return
                try:
                    await self._measure(run, base_url, link)
                except ArmError as error:
                    self._fail(run.arm.name, error)
                    self.left += 1

    def _fail(self, what: str, error: Exception) -> None:
        self.failed.append(what)
        self._say(f"  FAILED {what}: {error}")

    def _say(self, text: str) -> None:
        print(f"[{time.monotonic() - self._begin_s:5.0f} s] {text}", flush=True)

    async def _warm_up(self, run: Run, base_url: str, link: Any) -> None:
        """Let kernels be chosen and graphs be replayed once, for short and long prompts alike."""
        for cell in (Cell(workload="decode", rate=8.0), Cell(workload="prefill", rate=2048.0)):
            requests = build_requests(cell, self._traces, seed=0, duration_s=2.0)
            await send_all(
                base_url,
                requests,
                vocab=int(SHAPES[run.model]["vocab_size"]),
                tenants=link is not None,
                drain_s=8.0,
                name="warm",
            )

    async def _measure(self, run: Run, base_url: str, link: Any) -> None:
        options = self._options
        requests = build_requests(
            run.cell,
            self._traces,
            seed=run.seed,
            duration_s=options.duration_s,
            leave_ratio=options.leave_ratio,
        )
        if link is not None:
            await link.set(
                policy=run.arm.policy,
                tbt_ms=run.judged_ms[0],
                predictors=predictors(options.predictors, run.model),
            )
            link.reset()
        seen = await send_all(
            base_url,
            requests,
            vocab=int(SHAPES[run.model]["vocab_size"]),
            tenants=link is not None,
            drain_s=options.drain_s,
            name=f"{run.arm.name}-{run.cell}-{run.seed}-{run.tbt_ms}",
        )
        if all(one.outcome == "error" for one in seen):
            raise ServerError(f"every request failed, the first with {seen[0].error}")
        result = {"key": run.key, "sitting": self._sitting, "gpu": self._gpu}
        if run.build is not None:
            result["build"] = run.build
        result |= record(seen)
        if link is not None:
            result["engine"] = link.report()
        # In one piece: several processes may append to one file.
        with options.results.open("ab", buffering=0) as file:
            file.write(json.dumps(result, separators=(",", ":")).encode() + b"\n")
        for tbt_ms in run.judged_ms:
            self._say("  " + line(run.key, tbt_ms, summary(result, tbt_ms=tbt_ms)))
        for error in result["errors"][:2]:
            self._say(f"    error: {error}")


def predictors(files: Mapping[str, Path], model: str) -> Any:
    """Of a model's profile, or what measure.py wrote beside it; None without a file for the model."""
    if model not in files:
        return None
    import msgspec

    from pdmuxd.engine.link.predictors import Predictors
    from pdmuxd.engine.profiling.document import from_json

    data = files[model].read_bytes()
    try:
        return msgspec.json.decode(data, type=Predictors)
    except msgspec.ValidationError:
        return from_json(data, str(files[model])).predictors(1)


def gpu_name() -> str:
    """Name and driver of the first GPU; `none` where there is no nvidia-smi."""
    if shutil.which("nvidia-smi") is None:
        return "none"
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout
    return said.partition("\n")[0].strip() or "none"


def run_until_told(work: Coroutine[Any, Any, T]) -> T | None:
    """Run it; a SIGTERM ends it with the servers that it started, and there is no result."""

    async def told() -> T | None:
        task = asyncio.ensure_future(work)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        try:
            return await task
        except asyncio.CancelledError:
            print("told to stop", flush=True)
            return None

    return asyncio.run(told())
