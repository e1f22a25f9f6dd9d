"""What is asked of the engine."""

from __future__ import annotations

from pdmuxd.tui.shell.painting import Painting
from pdmuxd.tui.show.lines import Line
from pdmuxd.tui.show.overview.load import load
from pdmuxd.tui.state.view import View


class Load(Painting):
    """See `load`."""

    DEFAULT_CSS = "Load { height: 4; }"

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        """The panel's lines."""
        return load(view, width, height)
