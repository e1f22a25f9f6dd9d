"""The last decisions."""

from __future__ import annotations

from pdmuxd.tui.shell.painting import Painting
from pdmuxd.tui.show.lines import Line
from pdmuxd.tui.show.overview.log import log
from pdmuxd.tui.state.view import View


class LastDecisions(Painting):
    """See `log`."""

    IS_SLOW = True
    DEFAULT_CSS = "LastDecisions { height: 1fr; min-height: 4; }"

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        """The panel's lines."""
        return log(view, width, height)
