"""The decision under the cursor, in words: as high as they are, so that nothing is cut off."""

from __future__ import annotations

from pdmuxd.tui.client.wire import DecisionEvent
from pdmuxd.tui.shell.painting import Painting
from pdmuxd.tui.show.decision_text import decision_text
from pdmuxd.tui.show.lines import Line
from pdmuxd.tui.state.view import View

LEAST_HEIGHT = 4
"""Of a decision that nothing sits out: the log does not move from one to the next."""


class DecisionDetail(Painting):
    """The decision under the cursor, below the log."""

    DEFAULT_CSS = f"DecisionDetail {{ height: {LEAST_HEIGHT}; }}"
    decision: DecisionEvent | None = None

    def repaint(self) -> None:
        """Paint, as high as the text needs."""
        if self._view is not None:
            text = decision_text(self.decision, self._view, max(1, self.screen.size.width))
            needed = max(LEAST_HEIGHT, len(text))
            if self.styles.height is None or self.styles.height.value != needed:
                self.styles.height = needed
        super().repaint()

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        """See `decision_text`."""
        return decision_text(self.decision, view, width)
