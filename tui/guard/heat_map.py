"""The guard of one decode partition."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from pdmuxd.tui.shell.painting import Painting
from pdmuxd.tui.show.guard.heat import guard_map, partitions
from pdmuxd.tui.show.lines import Line
from pdmuxd.tui.state.answers import known
from pdmuxd.tui.state.view import View


class HeatMap(Painting, can_focus=True):
    """Left and right choose the partition."""

    DEFAULT_CSS = "HeatMap { height: 9; } .-tall HeatMap { height: 14; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "choose(-1)", "Fewer decode SMs"),
        Binding("right", "choose(1)", "More"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._at = 0

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        found = partitions(known(view.state.answers.guard))
        self._at = max(0, min(self._at, len(found) - 1))
        return guard_map(view, found[self._at] if found else None, width, height)

    def action_choose(self, step: int) -> None:
        self._at = max(0, self._at + step)
        self.repaint()
