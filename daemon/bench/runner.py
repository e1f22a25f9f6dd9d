"""Works a list of runs off: starts each server once, and writes each result as soon as it is there."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby, zip_longest
from typing import Any, TypeVar

from pdmuxd.daemon.bench.load.client import Seen, is_idle, send_all
from pdmuxd.daemon.bench.load.score import line, record, summary
from pdmuxd.daemon.bench.load.workload import Cell, Request
from pdmuxd.daemon.bench.load.workload import build as build_requests
from pdmuxd.daemon.bench.options import RunOptions
from pdmuxd.daemon.bench.results import Run, append_result, done_in
from pdmuxd.daemon.bench.servers.link import Link
from pdmuxd.daemon.bench.servers.nvidia import gpu_name
from pdmuxd.daemon.bench.servers.one_server import ModelOf, OneServer, one_server
from pdmuxd.daemon.bench.servers.predicting import predictors
from pdmuxd.daemon.bench.servers.server import ArmError, ServerError
from pdmuxd.daemon.supervisor.diagnosis import parts_of_start

T = TypeVar("T")

COLD_S = 36.0
"""By which the first start on a machine takes longer, Python's caches being cold (one H200, Llama-8B, SGLang
0.5.23, 2026-11-21)."""
UNKNOWN_START_S = 120.0
"""Of a model that was not started yet: reading weights takes longer than making them up."""
OURS_START_S = 35.0
"""By which a server of ours takes longer than SGLang's: 53 s on one H200 (2026-11-23), of which about 18 have
been taken out since; not measured again. The first on a machine also times products."""
EMULATOR_START_S = 10.0
MARGIN_S = 4.0
"""Of a run, beside its arrivals and its drain: prompts are written, the cache is emptied."""
STEPS_ALONE_S, STEPS_ALONE_WITHIN_S = 10.0, 30.0
"""A few requests that decode alone have had all of their tokens: what is expected, and when they are cut."""


def run_s(run: Run, options: RunOptions) -> float:
    """What a run takes, without a start. One of requests that decode alone is over when they are."""
    if run.cell.workload == "decode":
        return STEPS_ALONE_S
    return float(options.duration_s + options.drain_s + MARGIN_S)


def answers(seen: Sequence[Seen]) -> None:
    """Raises: ServerError if none of the requests had a token."""
    if not any(one.tokens for one in seen):
        raise ServerError(f"no request had a token, the first: {seen[0].error or seen[0].outcome}")


RequestsOf = Callable[[Cell, int], list[Request]]
"""The requests of a cell with a seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doing:
    """What is done at the moment, and what is expected to follow."""

    what: str
    began_s: float = 0.0
    takes_s: float = 0.0
    behind_s: float = 0.0
    done: int = 0
    runs: int = 0

    def left_s(self, now_s: float) -> float:
        return max(0.0, self.began_s + self.takes_s - now_s) + self.behind_s


class Runner:
    """One session: results of one call are known to come from one machine at one time."""

    def __init__(
        self,
        options: RunOptions,
        *,
        model_of: ModelOf,
        requests_of: RequestsOf,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self._options = options
        self._requests_of = requests_of
        self._tell = say or (lambda text: print(text, flush=True))
        self.doing = Doing(what="starting")
        self._model_of = cache(model_of)
        self._begin_s = time.monotonic()
        self._end_s = self._begin_s + options.budget_s
        self._session = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self._gpu = gpu_name()
        self._took_s: dict[str, float] = {}
        """Of the last start with its warm-up, by model."""
        self._broken: set[tuple[str, int, str]] = set()
        self._served: set[tuple[str, int, str]] = set()
        """Those that have done a run since they were started last."""
        self._behind: list[list[Run]] = []
        self._runs = self._done = 0
        self.left = 0
        self.failed: list[str] = []

    async def work(self, runs: Sequence[Run]) -> None:
        done = done_in(self._options.results)
        wanted = [run for run in runs if run.is_anchor or not run.is_in(done)]
        self._tell_predictors(wanted)
        groups = [list(group) for _, group in groupby(wanted, key=lambda run: run.server)]
        self._runs, self._done = len(runs), len(runs) - len(wanted)
        for number, (runs_of_server, following) in enumerate(zip_longest(groups, groups[1:])):
            self._behind = groups[number + 1 :]
            await self._group(runs_of_server, following)

    def _tell_predictors(self, runs: Sequence[Run]) -> None:
        for model in dict.fromkeys(run.model for run in runs if run.arm.is_ours):
            told = self._options.predictors.get(model, "the roofline, for lack of a profile: --predictors")
            self._say(f"policies predict {model} with {told}")

    async def _group(self, runs: list[Run], following: list[Run] | None) -> None:
        """The runs of one server, if it can be started and there is time for one of them."""
        if not runs:
            return
        server = runs[0].server
        if server in self._broken or not self._has_time(self._start_s(runs[0]) + self._run_s(runs[0])):
            self.left += len(runs)
            return
        self._served.discard(server)
        try:
            await self._serve(runs, following)
        except (ServerError, TimeoutError) as error:
            if self._is_worth_another_try(server):
                self._say(f"  {server[2]} failed; once more: {error}")
                self._served.discard(server)
                done = done_in(self._options.results)
                await self._group([run for run in runs if not run.is_in(done)], following)
                return
            self._broken.add(server)
            self._fail(server[2], error)
            self.left += len(runs)

    def _is_worth_another_try(self, server: tuple[str, int, str]) -> bool:
        """A server that did a run since its start may do more when it is started anew."""
        return server in self._served

    def _run_s(self, *runs: Run) -> float:
        return sum(run_s(run, self._options) for run in runs)

    def _start_s(self, run: Run) -> float:
        """Seconds that the last start of this model took, if there was one."""
        if run.arm.server == "emulator":
            return EMULATOR_START_S
        if run.model in self._took_s:
            return self._took_s[run.model]
        return self._later_start_s(run) + (0.0 if self._took_s or self._options.cpu else COLD_S)

    def _later_start_s(self, run: Run) -> float:
        """What a start is expected to take that is not the machine's first."""
        return UNKNOWN_START_S + (OURS_START_S if run.arm.is_ours else 0.0)

    def _begin(self, what: str, takes_s: float, behind: Sequence[Run]) -> None:
        """Note what is done now, and what is left behind it."""
        later_s = sum(self._start_s(group[0]) + self._run_s(*group) for group in self._behind)
        self.doing = Doing(
            what=what,
            began_s=time.monotonic(),
            takes_s=takes_s,
            behind_s=self._run_s(*behind) + later_s,
            done=self._done,
            runs=self._runs,
        )

    def _has_time(self, seconds: float) -> bool:
        return time.monotonic() + seconds < self._end_s

    async def _serve(self, runs: list[Run], following: list[Run] | None) -> None:
        began_s = time.monotonic()
        self._begin(f"{runs[0].arm.server} starts", self._start_s(runs[0]), runs)
        stack, server = await self._take(runs[0])
        async with stack:
            self._say(f"{runs[0].model} {runs[0].arm.server}")
            limit_s = max(10.0, self._end_s - time.monotonic() - self._run_s(runs[0]))
            took_s = await server.serve(within_s=min(self._options.start_s, limit_s))
            parts = parts_of_start(server.log.read_text(errors="replace"))
            self._say(f"  serves after {took_s:.0f} s" + (f", its engine after {parts}" if parts else ""))
            await self._warm_up(runs[0], server.base_url, server.link)
            self._note_start(runs[0], time.monotonic() - began_s)
            for number, run in enumerate(runs):
                if not self._has_time(self._run_s(run)):
                    self.left += len(runs) - number
                    return
                await self._before_run(runs[number:], following)
                self._begin(
                    f"{run.arm.name} {run.cell} seed {run.seed}", self._run_s(run), runs[number + 1 :]
                )
                try:
                    await self._measure(run, server.base_url, server.link)
                    self._done += 1
                except ArmError as error:
                    self._fail(run.arm.name, error)
                    self.left += 1

    async def _take(self, run: Run) -> tuple[contextlib.AsyncExitStack, OneServer]:
        """The server of a run; the caller closes the stack."""
        stack = contextlib.AsyncExitStack()
        return stack, await stack.enter_async_context(one_server(run, self._options, self._model_of))

    def _note_start(self, run: Run, took_s: float) -> None:
        """Plan later starts with what this one took."""
        self._took_s[run.model] = took_s

    async def _before_run(self, runs: list[Run], following: list[Run] | None) -> None:
        """Called before the first of these runs of a server; `following` are the next server's."""

    def _fail(self, what: str, error: Exception) -> None:
        self.failed.append(what)
        self._say(f"  FAILED {what}: {error}")

    def _say(self, text: str) -> None:
        self._tell(f"[{time.monotonic() - self._begin_s:5.0f} s] {text}")

    async def _warm_up(self, run: Run, base_url: str, link: Link | None) -> None:
        """Let kernels be chosen and graphs be replayed once, for short and long prompts alike."""
        model = self._model_of(run.model)
        longest = min(2048, model.context_tokens // 2)
        for cell in (Cell(workload="decode", rate=8.0), Cell(workload="prefill", rate=longest)):
            requests = build_requests(cell, {}, seed=0, duration_s=2.0)
            seen = await send_all(
                base_url,
                requests,
                vocab=model.vocab,
                tenants=link is not None,
                drain_s=8.0,
                name="warm",
            )
            answers(seen)

    async def _measure(self, run: Run, base_url: str, link: Link | None) -> None:
        options = self._options
        requests = self._requests_of(run.cell, run.seed)
        if not requests:
            raise ArmError(f"{run.cell}: no request arrives within {options.duration_s:g} s")
        if link is not None:
            await link.set(
                policy=str(run.arm.policy),
                tbt_ms=run.judged_ms[0],
                predictors=predictors(options.predictors, run.model),
                ttft=requests[0].ttft,
            )
            link.reset()
        name = f"{run.arm.name}-{run.cell}-{run.seed}-{run.tbt_ms}"
        seen = await self._send(run, requests, base_url, name)
        answers(seen)
        result: dict[str, Any] = {"key": run.key, "session": self._session, "gpu": self._gpu}
        if run.build is not None:
            result["build"] = run.build
        result |= record(seen)
        if link is not None:
            result["engine"] = link.report()
        self._keep(result)
        self._served.add(run.server)
        for tbt_ms in run.judged_ms:
            self._say("  " + line(run.key, tbt_ms, summary(result, tbt_ms=tbt_ms)))
        for error in result["errors"][:2]:
            self._say(f"    error: {error}")
        if not await is_idle(base_url):
            raise ServerError("it still works on what was aborted after the run")

    async def _send(self, run: Run, requests: list[Request], base_url: str, name: str) -> list[Seen]:
        alone = run.cell.workload == "decode"
        return await send_all(
            base_url,
            requests,
            vocab=self._model_of(run.model).vocab,
            tenants=run.arm.policy is not None,
            drain_s=STEPS_ALONE_WITHIN_S if alone else self._options.drain_s,
            name=name,
        )

    def _keep(self, result: dict[str, Any]) -> None:
        append_result(self._options.results, result)


def run_until_told(work: Coroutine[Any, Any, T]) -> T | None:
    """Run it; a SIGTERM or Ctrl-C ends it with the servers that it started, and there is no result."""

    async def told() -> T | None:
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            # Once: a second Ctrl-C must not keep servers from being ended.
            loop.add_signal_handler(number, lambda: None if task.cancelling() else task.cancel())
        try:
            return await task
        except asyncio.CancelledError:
            print("told to stop", file=sys.stderr, flush=True)
            return None

    return asyncio.run(told())
