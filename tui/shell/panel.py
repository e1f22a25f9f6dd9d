"""A part of a screen that only shows what a function of `show/` makes of a frame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pdmuxd.tui.shell.painting import Painting
from pdmuxd.tui.show.lines import Line
from pdmuxd.tui.state.view import View

Draw = Callable[[View, int, int], Sequence[Line]]
"""From a frame, a width and a height in cells to lines; too many are cut off."""


@dataclass(frozen=True, slots=True)
class PanelSpec:
    """One row of a screen's table; the screen's CSS finds the panel by its name."""

    name: str
    draw: Draw
    css: str
    """Its height, and what else holds on any size of the terminal."""
    is_slow: bool = False
    """Painted with whole frames only, as `Painting.IS_SLOW`."""

    def panel(self, *, classes: str | None = None) -> Panel:
        return Panel(self.draw, name=self.name, is_slow=self.is_slow, classes=classes)


class Panel(Painting):
    """Shows the lines of one function."""

    def __init__(self, draw: Draw, *, name: str, is_slow: bool = False, classes: str | None = None) -> None:
        super().__init__(id=name)
        self._draw = draw
        self.is_slow = is_slow
        self.set_classes(classes or "")

    def draw(self, view: View, width: int, height: int) -> Sequence[Line]:
        return self._draw(view, width, height)


def css_of(screen: str, panels: Sequence[PanelSpec]) -> str:
    """What the panels of a table need, for the CSS of the screen that shows them."""
    return "\n".join(f"{screen} #{panel.name} {{ {panel.css} }}" for panel in panels)
