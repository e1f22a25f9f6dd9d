"""The end of the engine's log."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from pdmuxd.tui.shell.painting import Painting
from pdmuxd.tui.show.engine import found_lines, log
from pdmuxd.tui.show.lines import Line
from pdmuxd.tui.state.answers import known
from pdmuxd.tui.state.view import View


class LogTail(Painting, can_focus=True):
    """Follows the end until it is scrolled up."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll_back(1)", "Up", show=False),
        Binding("down,j", "scroll_back(-1)", "Down", show=False),
        Binding("pageup", "scroll_back(10)", "Older"),
        Binding("pagedown", "scroll_back(-10)", "Newer"),
        Binding("end,G", "scroll_back(-1000000)", "End", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._back = 0
        self.wanted = ""

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        found = known(view.state.answers.log)
        lines = found_lines(found.lines, self.wanted) if found else ()
        self._back = min(self._back, max(0, len(lines) - height + 1))
        return log(view, self._back, width, height, self.wanted)

    def action_scroll_back(self, lines: int) -> None:
        """Scroll to older lines; to newer ones if negative."""
        self._back = max(0, self._back + lines)
        self.repaint()

    def on_mouse_scroll_up(self) -> None:
        self.action_scroll_back(3)

    def on_mouse_scroll_down(self) -> None:
        self.action_scroll_back(-3)
