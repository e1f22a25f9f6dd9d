"""The last minutes of SM time."""

from __future__ import annotations

from pdmuxd.tui.shell.painting import Painting
from pdmuxd.tui.show.lines import Line
from pdmuxd.tui.show.overview.history import history
from pdmuxd.tui.state.view import View


class History(Painting):
    """See `history`."""

    IS_SLOW = True
    DEFAULT_CSS = "History { height: 1fr; min-height: 3; max-height: 14; }"

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        """The panel's lines."""
        return history(view, width, height)
