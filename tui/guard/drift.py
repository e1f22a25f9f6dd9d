"""Predicted against measured."""

from __future__ import annotations

from pdmuxd.tui.shell.painting import Painting
from pdmuxd.tui.show.guard.lists import drift
from pdmuxd.tui.show.lines import Line
from pdmuxd.tui.state.view import View


class DriftTable(Painting):
    """See `drift`."""

    DEFAULT_CSS = "DriftTable { height: 1fr; min-height: 3; }"

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        """The panel's lines."""
        return drift(view, width, height)
