"""The progress bar of a campaign, on stderr and only on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, TextColumn

from pdmuxd.daemon.report.progress import ProgressBars, clock_text
from pdmuxd.engine.profiling import campaign


class CampaignProgress(ProgressBars):
    """What is measured now, how many points were, and the time still to go."""

    def __init__(self, *, console: Console, shown: bool) -> None:
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[measured]} points"),
            TextColumn("left {task.fields[left]}"),
            console=console,
            shown=shown,
        )
        self._task = self._progress.add_task("starting", total=1.0, measured=0, left="?")

    def update(self, progress: campaign.Progress, elapsed_s: float) -> None:
        whole_s = elapsed_s + progress.left_s
        self._progress.update(
            self._task,
            description=progress.what,
            completed=elapsed_s / whole_s if whole_s > 0 else 0.0,
            measured=progress.measured,
            left=clock_text(progress.left_s),
        )
