"""What can be done."""

from __future__ import annotations

from pdmuxd.tui.shell.painting import Painting
from pdmuxd.tui.show.engine import actions
from pdmuxd.tui.show.lines import Line
from pdmuxd.tui.state.view import View


class Actions(Painting):
    """See `actions`."""

    DEFAULT_CSS = "Actions { height: 5; }"

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        """The panel's lines."""
        return actions(view, width, height)
