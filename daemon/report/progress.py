"""The common part of progress bars: they are drawn on stderr, and only on a terminal."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import Progress, ProgressColumn


class ProgressBars:
    """Drawn while it is entered; a subclass adds its bars."""

    def __init__(self, *columns: ProgressColumn, console: Console, shown: bool) -> None:
        self._progress = Progress(*columns, console=console, disable=not shown)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()


def clock_text(seconds: float) -> str:
    """Hours, minutes and seconds, such as 0:58:57."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
