"""What runs and how long is left, as a line on a terminal or as lines of a log."""

from __future__ import annotations

import asyncio
import time

from rich.console import Console
from rich.progress import BarColumn, TextColumn

from pdmuxd.daemon.bench.runner import Runner
from pdmuxd.daemon.report.progress import ProgressBars, clock_text

LOOK_S = 0.5


class BenchProgress(ProgressBars):
    """One bar over the seconds of all that is left."""

    def __init__(self, console: Console, *, shown: bool) -> None:
        super().__init__(
            BarColumn(bar_width=24),
            TextColumn("{task.fields[runs]}  {task.description}  {task.fields[left]}", markup=False),
            console=console,
            shown=shown,
        )
        self._task = self._progress.add_task("starting", total=1.0, runs="", left="")

    async def follow(self, runner: Runner) -> None:
        began_s = time.monotonic()
        while True:
            now = runner.doing
            passed_s, left_s = time.monotonic() - began_s, now.left_s(time.monotonic())
            self._progress.update(
                self._task,
                total=max(passed_s + left_s, 1.0),
                completed=passed_s,
                description=now.what,
                runs=f"{now.done} of {now.runs} runs",
                left=f"about {clock_text(left_s)} left",
            )
            await asyncio.sleep(LOOK_S)
