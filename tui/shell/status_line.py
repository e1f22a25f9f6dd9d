"""How daemon, engine and console are, on one line."""

from __future__ import annotations

from pdmuxd.tui.shell.painting import Painting
from pdmuxd.tui.show.lines import Line
from pdmuxd.tui.show.status import status
from pdmuxd.tui.state.view import View


class StatusLine(Painting):
    """The status line below the tabs."""

    IS_SLOW = True
    """With the panels that tell the same of tenants: one frame, one figure."""
    DEFAULT_CSS = "StatusLine { height: 1; }"

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        """See `status`."""
        return [status(view, width)]
