"""The decision under the cursor, in words."""

from __future__ import annotations

from pdmuxd.tui.client.wire import Decision
from pdmuxd.tui.shell.painting import Painting
from pdmuxd.tui.show.decision_text import decision_text
from pdmuxd.tui.show.lines import Line
from pdmuxd.tui.state.view import View


class DecisionDetail(Painting):
    """Below the log."""

    DEFAULT_CSS = "DecisionDetail { height: 4; }"
    decision: Decision | None = None

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        """See `decision_text`."""
        return decision_text(self.decision, view, width)
