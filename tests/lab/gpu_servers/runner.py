"""The package's runner for the laboratory: starts servers ahead, and keeps what a plan asks to be kept.

Requests are those of cells and recorded traces, models the shapes of `model_folder.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from typing import Any

from gpu_plans.between_steps import profile_run
from gpu_servers.ahead import GatedServer, Servers
from gpu_servers.options import RunOptions
from gpu_servers.shapes import shape_model
from gpu_servers.stall_trace import watch_client
from pdmuxd.daemon.bench import runner
from pdmuxd.daemon.bench.load.client import Seen
from pdmuxd.daemon.bench.load.workload import Cell, Request, build
from pdmuxd.daemon.bench.results import Run
from pdmuxd.daemon.bench.runner import OURS_START_S, UNKNOWN_START_S
from pdmuxd.daemon.bench.servers.link import Link
from pdmuxd.daemon.bench.servers.one_server import OneServer

START_S = {"llama-8b": 72.0, "codellama-34b": 100.0, "tiny": 40.0}
"""A later start with its warm-up, by model; Llama-8B as measured (61 to 66 s, 8 s), the others estimated."""
AHEAD_START_S = 40.0
"""What is left of a start after its imports, with the warm-up; an estimate."""
IMPORTS_S = 60.0
"""How long before it is wanted a server is started ahead: its two processes import one after the other, for
27 and 23 s (one H200's host, SGLang 0.5.23, 2026-11-21). One that is ready sooner waits."""


def later_start_s(run: Run) -> float:
    """What a start is expected to take that is not the machine's first."""
    return START_S.get(run.model, UNKNOWN_START_S) + (OURS_START_S if run.arm.is_ours else 0.0)


class Runner(runner.Runner):
    """One session of a plan."""

    def __init__(self, options: RunOptions) -> None:
        super().__init__(
            options,
            model_of=lambda name: shape_model(name, options.work, options.config),
            requests_of=self._of_cells,
        )
        self._lab = options
        self._traces = json.loads(options.traces.read_text()) if options.traces.exists() else {}
        self._servers = Servers(options, self._model_of)
        self._was_ahead = self._is_gated = False
        self._link: Link | None = None
        if options.stalls is not None:
            watch_client(options.stalls)

    def _of_cells(self, cell: Cell, seed: int) -> list[Request]:
        given = {"duration_s": self._lab.duration_s, "leave_ratio": self._lab.leave_ratio}
        return build(cell, self._traces, seed=seed, **given)

    async def work(self, runs: Sequence[Run]) -> None:
        """Do in this order what is not done."""
        try:
            await super().work(runs)
        finally:
            await self._servers.forget()

    async def _group(self, runs: list[Run], following: list[Run] | None) -> None:
        self._was_ahead = self._servers.is_ahead
        await super()._group(runs, following)

    def _is_worth_another_try(self, server: tuple[str, int, str]) -> bool:
        if super()._is_worth_another_try(server):
            return True
        if self._was_ahead:
            self._servers.no_more_ahead()
        return self._was_ahead

    def _start_s(self, run: Run) -> float:
        return AHEAD_START_S if self._servers.is_ahead else super()._start_s(run)

    def _later_start_s(self, run: Run) -> float:
        return later_start_s(run)

    async def _take(self, run: Run) -> tuple[contextlib.AsyncExitStack, OneServer]:
        stack, server = await self._servers.take(run)
        self._is_gated = isinstance(server, GatedServer)
        return stack, server

    def _note_start(self, run: Run, took_s: float) -> None:
        if self._is_gated:
            self._say("  it was started ahead")
        else:
            super()._note_start(run, took_s)

    async def _before_run(self, runs: list[Run], following: list[Run] | None) -> None:
        if following is not None and self._is_worth_it(following[0], behind=runs):
            await self._servers.start_ahead(following[0])

    def _is_worth_it(self, run: Run, *, behind: list[Run]) -> bool:
        """To start its server beside the run that begins now, the first of those that it is behind."""
        is_due = self._run_s(*behind[1:]) < IMPORTS_S and not self._servers.is_ahead
        has_time = self._has_time(self._run_s(*behind, run) + AHEAD_START_S)
        return is_due and has_time and run.server not in self._broken

    async def _send(self, run: Run, requests: list[Request], base_url: str, name: str) -> list[Seen]:
        profiling = asyncio.create_task(profile_run(base_url, self._lab))
        seen = await super()._send(run, requests, base_url, name)
        await profiling
        return seen

    async def _measure(self, run: Run, base_url: str, link: Link | None) -> None:
        self._link = link
        await super()._measure(run, base_url, link)

    def _keep(self, result: dict[str, Any]) -> None:
        if self._link is not None:
            self._link.keep_records(self._lab.records, "-".join(map(str, result["key"][1:])))
        if self._lab.profile is None:
            super()._keep(result)
