"""TTFT and TBT against their targets."""

from __future__ import annotations

from pdmuxd.tui.shell.painting import Painting
from pdmuxd.tui.show.lines import Line
from pdmuxd.tui.show.overview.latency import latency
from pdmuxd.tui.state.view import View


class Latency(Painting):
    """See `latency`."""

    IS_SLOW = True
    DEFAULT_CSS = "Latency { height: 3; }"

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        """The panel's lines."""
        return latency(view, width, height)
