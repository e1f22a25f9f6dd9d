"""The progress bar of a comparison, on stderr and only on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn

from pdmuxd.daemon.report.progress import ProgressBars


class CompareProgress(ProgressBars):
    """One bar per stage, with what was tried last."""

    def __init__(self, console: Console, *, shown: bool) -> None:
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[now]}", markup=False),
            console=console,
            shown=shown,
        )
        self._task: TaskID | None = None

    def stage(self, title: str, tasks: int) -> None:
        """Begin a bar; the one before it stays as it is."""
        if self._task is not None:
            self._progress.update(self._task, now="")
        self._task = self._progress.add_task(title, total=tasks, now="")

    def trying(self, label: str) -> None:
        """Show what some worker is doing now."""
        if self._task is not None:
            self._progress.update(self._task, now=label)

    def done(self) -> None:
        if self._task is not None:
            self._progress.advance(self._task)
