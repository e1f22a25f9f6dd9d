"""What this size of the terminal hides."""

from __future__ import annotations

from pdmuxd.tui.shell.painting import Painting
from pdmuxd.tui.show.lines import Line
from pdmuxd.tui.show.overview.hidden import hidden
from pdmuxd.tui.state.view import View


class Hidden(Painting):
    """See `hidden`."""

    DEFAULT_CSS = "Hidden { height: 1; display: none; }"

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        """The panel's lines."""
        return hidden(view, width, height)
