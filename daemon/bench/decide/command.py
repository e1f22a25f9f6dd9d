"""Plans, measures, and tells what came of it."""

from __future__ import annotations

import asyncio
import importlib.util
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import groupby
from pathlib import Path

from rich.console import Console

from pdmuxd.daemon.bench.decide.progress import BenchProgress
from pdmuxd.daemon.bench.decide.table import notes, table
from pdmuxd.daemon.bench.decide.verdict import Outcome, read_outcome, verdict
from pdmuxd.daemon.bench.decide.wanted import Wanted, claim
from pdmuxd.daemon.bench.options import RunOptions
from pdmuxd.daemon.bench.results import Run, done_in
from pdmuxd.daemon.bench.runner import (
    COLD_S,
    EMULATOR_START_S,
    UNKNOWN_START_S,
    Runner,
    run_s,
    run_until_told,
)
from pdmuxd.daemon.bench.servers.nvidia import gpu_name
from pdmuxd.daemon.report.files import write_file
from pdmuxd.daemon.report.progress import clock_text
from pdmuxd.engine.core.errors import SettingsError

INTERRUPTED = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where everything of a measurement is."""

    folder: Path
    start_s: float
    cpu: bool
    python: Path | None

    @property
    def results(self) -> Path:
        """One JSON object a line, as runs end."""
        return self.folder / "results.jsonl"

    @property
    def page(self) -> Path:
        return self.folder / "report.html"

    def options(self, wanted: Wanted) -> RunOptions:
        name = wanted.model.name
        return RunOptions(
            cpu=self.cpu,
            extra=wanted.extra,
            start_s=self.start_s,
            work=self.folder / "models",
            log_dir=self.folder / "logs",
            python=self.python,
            duration_s=wanted.load.duration_s,
            drain_s=wanted.drain_s,
            predictors={} if wanted.profile is None else {name: wanted.profile},
            results=self.results,
            tp_size=wanted.tp_size,
        )


def show_plan(wanted: Wanted, place: Place, console: Console) -> None:
    """Every run with the time at which it is expected to end."""
    runs, done = wanted.runs(), done_in(place.results)
    options, at_s, is_cold = place.options(wanted), 0.0, True
    for server, of_server in groupby(
        [run for run in runs if not run.is_in(done)], key=lambda run: run.server
    ):
        start_s = EMULATOR_START_S if wanted.engine == "emulated" else UNKNOWN_START_S
        at_s += start_s + (COLD_S if is_cold and wanted.engine == "sglang" and not place.cpu else 0.0)
        is_cold = False
        console.print(f"{clock_text(at_s):>8}  {server[2]} serves", markup=False)
        for run in of_server:
            at_s += run_s(run, options)
            name = wanted.name_of(run.arm.name)
            target = "" if run.tbt_ms is None else f", TBT {run.tbt_ms:g} ms"
            console.print(
                f"{clock_text(at_s):>8}  {name}: {run.cell.rate:g} requests/s, seed {run.seed}{target}",
                markup=False,
            )
    finished = sum(run.is_in(done) for run in runs)
    left = f"{len(runs) - finished} of {len(runs)} runs are left, about {clock_text(at_s)} in all"
    console.print(f"{left}; results go to {place.folder}", markup=False)


def measure(wanted: Wanted, place: Place, console: Console, *, command: str, progress: bool) -> int:
    """Do what is left, then tell; the exit code. Raises: SettingsError, ConflictError."""
    errors = Console(stderr=True, highlight=False)
    try:
        claim(place.folder, wanted)
        (place.folder / "logs").mkdir(exist_ok=True)
        runner, ended = _run(wanted, place, errors, shown=progress and errors.is_terminal)
        found = read_outcome(wanted, place.results)
        _publish(wanted, found, place, console, command)
    except OSError as error:
        raise SettingsError(
            f"--out {place.folder}: {error.strerror or error}; runs that ended before are kept, the same "
            "command goes on"
        ) from error
    if not ended:
        errors.print("Stopped; the same command goes on with what is left.", markup=False)
        return INTERRUPTED
    return 1 if runner.failed else 0


def _run(wanted: Wanted, place: Place, errors: Console, *, shown: bool) -> tuple[Runner, bool]:
    """The runner when it is done, and whether it came to its end."""
    runner = Runner(
        place.options(wanted),
        model_of=lambda _: wanted.model,
        requests_of=wanted.load.requests,
        say=lambda text: errors.print(_named(wanted, text), markup=False, soft_wrap=True),
    )

    async def work(runs: list[Run]) -> bool:
        following = asyncio.create_task(bars.follow(runner))
        try:
            await runner.work(runs)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        return True

    with BenchProgress(errors, shown=shown) as bars:
        ended = run_until_told(work(wanted.runs()))
    return runner, bool(ended)


def _named(wanted: Wanted, text: str) -> str:
    """What the runner says, with the names that the user gave."""
    for one in wanted.contenders:
        text = text.replace(f" {one.arm.name} ", f" {one.name} ")
    return text


def _publish(wanted: Wanted, found: Outcome, place: Place, console: Console, command: str) -> None:
    console.print(verdict(wanted, found), markup=False, style="bold", soft_wrap=True)
    for note in notes(wanted, found):
        console.print(f"Note: {note}", markup=False, soft_wrap=True)
    if found.figures:
        console.print(table(wanted, found))
    if importlib.util.find_spec("plotly") is None:
        console.print("No page: plotly is not installed. Run the same command where it is.", markup=False)
        return
    from pdmuxd.daemon.bench.decide.page import render  # plotly takes half a second to import

    page = render(
        wanted,
        found,
        gpu=gpu_name(),
        command=command,
        version=version("pdmuxd"),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    write_file(place.page, page.encode())
    console.print(f"Page written to {place.page}", markup=False)
