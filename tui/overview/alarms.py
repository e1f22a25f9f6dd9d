"""Alarms that are raised."""

from __future__ import annotations

from pdmuxd.tui.shell.painting import Painting
from pdmuxd.tui.show.lines import Line
from pdmuxd.tui.show.overview.alarms import alarms
from pdmuxd.tui.state.view import View


class Alarms(Painting):
    """See `alarms`."""

    IS_SLOW = True
    DEFAULT_CSS = "Alarms { height: 3; }"

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        """The panel's lines."""
        return alarms(view, width, height)
