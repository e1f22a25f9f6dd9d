"""Cells raised or lowered lately."""

from __future__ import annotations

from pdmuxd.tui.shell.painting import Painting
from pdmuxd.tui.show.guard.lists import changes
from pdmuxd.tui.show.lines import Line
from pdmuxd.tui.state.view import View


class Changes(Painting):
    """See `changes`."""

    DEFAULT_CSS = "Changes { height: 1fr; min-height: 3; }"

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        """The panel's lines."""
        return changes(view, width, height)
