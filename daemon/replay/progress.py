"""The progress bar of a replay, on stderr and only on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from pdmuxd.daemon.report.progress import ProgressBars, clock_text


class ReplayProgress(ProgressBars):
    """One bar per policy: requests done, virtual time, and the real time still to go."""

    def __init__(self, policies: Sequence[str], requests: int, *, console: Console, shown: bool) -> None:
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("virtual {task.fields[virtual]}"),
            TextColumn("ETA"),
            TimeRemainingColumn(compact=True),
            console=console,
            shown=shown,
        )
        self._tasks = [
            self._progress.add_task(policy, total=requests, virtual=clock_text(0), start=False)
            for policy in policies
        ]
        self._started: set[int] = set()

    def update(self, index: int, done: int, virtual_s: float) -> None:
        """Show that `done` requests of policy `index` have ended at `virtual_s` of virtual time."""
        task = self._tasks[index]
        if index not in self._started:
            self._started.add(index)
            self._progress.start_task(task)
        self._progress.update(task, completed=done, virtual=clock_text(virtual_s))
