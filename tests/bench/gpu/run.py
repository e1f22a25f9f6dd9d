"""Measure arms against each other on one GPU; see `arms.py` for the arms, `workload.py` for the cells.

    PYTHONPATH=SITE python3 tests/bench/gpu/run.py --model llama-8b --arms stock,chunk-512,ours:auto \\
        --cells conv:24,mooncake:1.5 --tbt-ms 20,50 --seeds 1,2,3 --budget-s 560

Each result is appended to --results as soon as it is there, and what is in that file is not run again: call
again with the same arguments to go on. An arm's server is started once for all its cells. Arms without a
policy know no targets, so that one run of theirs is judged against each; the others run once per target.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(1, str(Path(__file__).parents[2] / "support"))

import arms as arms_module
from arms import Arm
from client import send_all
from model_folder import SHAPES, write_model_folder
from score import record, summary
from server import ArmError, ServerError, free_port, running
from table import line
from workload import Cell, build

_FIRST_START_S = 100.0
"""What a server's start takes at most on a machine that has started none, Python's caches being cold."""
_MARGIN_S = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One measurement."""

    arm: Arm
    cell: Cell
    seed: int
    tbt_ms: float | None

    def key(self, model: str) -> list[Any]:
        """Names it in the results."""
        return [model, self.arm.name, str(self.cell), self.seed, self.tbt_ms]


def plan(options: argparse.Namespace) -> list[Run]:
    """All runs, those of one server together, seed by seed."""
    return [
        Run(arm=arm, cell=cell, seed=seed, tbt_ms=tbt_ms)
        for server in dict.fromkeys(arm.server for arm in options.arms)
        for seed in options.seeds
        for cell in options.cells
        for arm in options.arms
        if arm.server == server
        for tbt_ms in (options.tbt_ms if arm.policy is not None else [None])
    ]


class Bench:
    """Works a plan off until it is done or time is up."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._end_s = time.monotonic() + options.budget_s
        self._traces = json.loads(options.traces.read_text()) if options.traces.exists() else {}
        self._start_s = _FIRST_START_S if not options.cpu else 60.0
        self._model = write_model_folder(options.model, options.work / options.model, **options.config)
        self._done = {json.dumps(key) for key in _keys(options.results)}
        self.left = 0
        self.failed: list[str] = []

    async def run(self) -> None:
        """Do what is not done."""
        wanted = [
            run for run in plan(self._options) if json.dumps(run.key(self._options.model)) not in self._done
        ]
        for server in dict.fromkeys(run.arm.server for run in wanted):
            runs = [run for run in wanted if run.arm.server == server]
            if not self._has_time(self._start_s + self._run_s):
                self.left += len(runs)
                continue
            try:
                await self._serve(runs)
            except (ServerError, TimeoutError) as error:
                self._fail(server, error)
                self.left += len(runs)

    @property
    def _run_s(self) -> float:
        return self._options.duration_s + self._options.drain_s + _MARGIN_S

    def _has_time(self, seconds: float) -> bool:
        return time.monotonic() + seconds < self._end_s

    async def _serve(self, runs: list[Run]) -> None:
        options, arm, port = self._options, runs[0].arm, free_port()
        log = options.log_dir / f"{options.model}-{arm.server}.log"
        async with contextlib.AsyncExitStack() as stack:
            link, address = None, None
            if arm.policy is not None:
                from link import listening  # stock arms run where pdmuxd is not installed

                # A socket's path has at most 107 bytes.
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="pdm"))
                address = f"ipc://{folder}/engine"
                link = await stack.enter_async_context(listening(address))
            command = arm.command(
                model=self._model,
                port=port,
                link=address,
                tp_size=options.tp_size,
                cpu=options.cpu,
                extra=options.extra,
            )
            print(f"{options.model} {arm.server}: {' '.join(command)}", flush=True)
            began_s = time.monotonic()
            limit_s = min(options.start_s, max(10.0, self._end_s - began_s - self._run_s))
            base_url = await stack.enter_async_context(
                running(
                    arm,
                    command=command,
                    environment=arm.environment(cpu=options.cpu),
                    port=port,
                    log=log,
                    start_s=limit_s,
                )
            )
            self._start_s = max(30.0, 1.2 * (time.monotonic() - began_s))
            await self._warm_up(base_url, link)
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
        print(f"  FAILED {what}: {error}", flush=True)

    async def _warm_up(self, base_url: str, link: Any) -> None:
        """Let kernels be chosen and graphs be replayed once, for short and long prompts alike."""
        cells = [Cell(workload="decode", rate=8.0), Cell(workload="prefill", rate=2048.0)]
        for cell in cells:
            requests = build(cell, self._traces, seed=0, duration_s=2.0)
            await send_all(
                base_url, requests, vocab=self._vocab, tenants=link is not None, drain_s=8.0, name="warm"
            )

    @property
    def _vocab(self) -> int:
        return int(SHAPES[self._options.model]["vocab_size"])

    def _predictors(self) -> Any:
        if self._options.predictors is None:
            return None
        import msgspec

        from pdmuxd.engine.link.predictors import Predictors

        return msgspec.json.decode(self._options.predictors.read_bytes(), type=Predictors)

    async def _measure(self, run: Run, base_url: str, link: Any) -> None:
        options = self._options
        requests = build(
            run.cell,
            self._traces,
            seed=run.seed,
            duration_s=options.duration_s,
            leave_ratio=options.leave_ratio,
        )
        if link is not None:
            await link.set(policy=run.arm.policy, tbt_ms=run.tbt_ms, predictors=self._predictors())
            link.reset()
        seen = await send_all(
            base_url,
            requests,
            vocab=self._vocab,
            tenants=link is not None,
            drain_s=options.drain_s,
            name=f"{run.arm.name}-{run.cell}-{run.seed}-{run.tbt_ms}",
        )
        if all(one.outcome == "error" for one in seen):
            raise ServerError(f"every request failed, the first with {seen[0].error}")
        result = {"key": run.key(options.model), **record(seen)}
        if link is not None:
            result["engine"] = link.report()
        with options.results.open("a") as file:
            file.write(json.dumps(result, separators=(",", ":")) + "\n")
        for tbt_ms in options.tbt_ms if run.tbt_ms is None else [run.tbt_ms]:
            print("  " + line(result["key"], tbt_ms, summary(result, tbt_ms=tbt_ms)), flush=True)
        for error in result["errors"][:2]:
            print(f"    error: {error}", flush=True)


def _keys(path: Path) -> Iterator[list[Any]]:
    if path.exists():
        with path.open() as file:
            for text in file:
                # The last line may have been cut off with the process that wrote it.
                with contextlib.suppress(json.JSONDecodeError):
                    yield json.loads(text)["key"]


def _numbers(text: str) -> list[float]:
    numbers = [float(word) for word in text.split(",")]
    if not all(math.isfinite(number) and number > 0 for number in numbers):
        raise argparse.ArgumentTypeError(f"{text!r}: numbers above 0, with commas between them")
    return numbers


def options_of(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--model", required=True, choices=sorted(SHAPES))
    parser.add_argument("--config", type=json.loads, default={}, help="JSON object over the shape's config")
    parser.add_argument("--arms", type=arms_module.parse, required=True)
    parser.add_argument(
        "--cells", type=lambda text: [Cell.parse(word) for word in text.split(",")], required=True
    )
    parser.add_argument("--tbt-ms", type=_numbers, required=True)
    parser.add_argument(
        "--seeds", type=lambda text: [int(word) for word in text.split(",")], default=[1, 2, 3]
    )
    parser.add_argument("--duration-s", type=float, default=30.0, help="of arrivals")
    parser.add_argument("--drain-s", type=float, default=10.0, help="after the last arrival; then all is cut")
    parser.add_argument("--leave-ratio", type=float, default=0.0, help="of clients that leave early")
    parser.add_argument("--budget-s", type=float, default=math.inf, help="start nothing that would end later")
    parser.add_argument("--start-s", type=float, default=240.0, help="what a server's start may take")
    parser.add_argument("--tp-size", type=int, default=1)
    parser.add_argument("--predictors", type=Path, help="of measure.py, for arms with a policy")
    parser.add_argument("--cpu", action="store_true", help="SGLang's CPU path, to try the scripts")
    parser.add_argument("--extra", type=str.split, default=[], help="more flags for every SGLang server")
    parser.add_argument("--traces", type=Path, default=Path(".gpu/traces.json"))
    parser.add_argument("--results", type=Path, default=Path(".gpu/results.jsonl"))
    parser.add_argument("--work", type=Path, default=Path(".gpu/models"))
    parser.add_argument("--log-dir", type=Path, default=Path(".gpu/logs"))
    options = parser.parse_args(argv)
    options.log_dir.mkdir(parents=True, exist_ok=True)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    return options


def main() -> int:
    """Run; the exit code is 1 if an arm failed."""
    bench = Bench(options_of())
    asyncio.run(bench.run())
    print(f"left: {bench.left} runs", flush=True)
    return 1 if bench.failed else 0


if __name__ == "__main__":
    sys.exit(main())
