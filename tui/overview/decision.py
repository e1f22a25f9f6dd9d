"""Why the SMs are split as they are."""

from __future__ import annotations

from pdmuxd.tui.shell.painting import Painting
from pdmuxd.tui.show.lines import Line
from pdmuxd.tui.show.overview.decision import decision
from pdmuxd.tui.state.view import View


class Decision(Painting):
    """See `decision`."""

    DEFAULT_CSS = "Decision { height: 3; }"

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        """The panel's lines."""
        return decision(view, width, height)
