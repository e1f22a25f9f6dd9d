"""Which engine this is."""

from __future__ import annotations

from pdmuxd.tui.shell.painting import Painting
from pdmuxd.tui.show.lines import Line
from pdmuxd.tui.show.overview.engine import engine
from pdmuxd.tui.state.view import View


class EngineFacts(Painting):
    """See `engine`."""

    IS_SLOW = True
    DEFAULT_CSS = "EngineFacts { height: 7; }"

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        """The panel's lines."""
        return engine(view, width, height)
