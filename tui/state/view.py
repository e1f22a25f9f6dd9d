"""What a screen is given to paint: the state at one instant, and how it is to be shown."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, tzinfo

from pdmuxd.tui.state.console import ConsoleState
from pdmuxd.tui.state.series import Series, scale_s
from pdmuxd.tui.state.spans import SPANS, Span, is_day

READ_ONLY = "the read-only token may look and not change"
NOT_CONNECTED = "there is no connection to the daemon"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What one frame shows. `now_s` is of the console's own clock."""

    state: ConsoleState
    now_s: float
    url: str
    console_version: str = ""
    zone: tzinfo | None = None
    letters: bool = False
    """Whether letters mark the parts of bars, since there is no colour."""
    behind_s: float = 0.0
    """How late the screen is."""
    frames_dropped: int = 0
    span: Span = SPANS[0]
    """How far back charts look."""
    is_whole: bool = True
    """Whether panels that are painted less often are painted too."""

    @property
    def stale_s(self) -> float | None:
        """The age of the figures if it is too high to trust them; else None."""
        return self.state.stale_s(self.now_s)

    @property
    def series(self) -> Series:
        """What charts over that time show."""
        return self.state.day if is_day(self.span) else self.state.series

    def scale_s(self, columns: int) -> int:
        """Seconds that a column of such a chart stands for."""
        return scale_s(columns, self.span.length_s, least_s=self.span.step_s if is_day(self.span) else 1)

    @property
    def daemon_now(self) -> datetime | None:
        """The daemon's time, as far as it has told."""
        stats, hello = self.state.stats, self.state.hello
        return stats.at if stats is not None else hello.at if hello is not None else None


def why_no_change(state: ConsoleState) -> str | None:
    """Why nothing can be changed from here now; None if it can."""
    if state.connection.link != "live":
        return NOT_CONNECTED
    return READ_ONLY if state.role == "reader" else None
