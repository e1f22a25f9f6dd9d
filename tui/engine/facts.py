"""State, process, what it serves."""

from __future__ import annotations

from pdmuxd.tui.shell.painting import Painting
from pdmuxd.tui.show.engine import facts
from pdmuxd.tui.show.lines import Line
from pdmuxd.tui.state.view import View


class EngineFacts(Painting):
    """See `facts`."""

    DEFAULT_CSS = "EngineFacts { height: 4; }"

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        """The panel's lines."""
        return facts(view, width, height)
