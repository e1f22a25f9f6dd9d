"""The progress bar of a replay, on stderr and only on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class ReplayProgress:
    """One bar per policy: requests done, virtual time, and the real time still to go."""

    def __init__(self, policies: Sequence[str], requests: int, *, console: Console, shown: bool) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("virtual {task.fields[virtual]}"),
            TextColumn("ETA"),
            TimeRemainingColumn(compact=True),
            console=console,
            disable=not shown,
        )
        self._tasks = [
            self._progress.add_task(policy, total=requests, virtual=clock_text(0), start=False)
            for policy in policies
        ]
        self._started: set[int] = set()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def update(self, index: int, done: int, virtual_s: float) -> None:
        """Show that `done` requests of policy `index` have ended at `virtual_s` of virtual time."""
        task = self._tasks[index]
        if index not in self._started:
            self._started.add(index)
            self._progress.start_task(task)
        self._progress.update(task, completed=done, virtual=clock_text(virtual_s))


def clock_text(seconds: float) -> str:
    """Hours, minutes and seconds, such as 0:58:57."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
