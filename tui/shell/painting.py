"""A widget that paints lines which a pure function made, and refreshes only the lines that changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from pdmuxd.tui.shell.styles import style_of
from pdmuxd.tui.show.lines import Line, filled
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.state.view import View


class Painting(Widget):
    """Subclasses implement `draw`; a screen calls `paint` with each frame."""

    IS_SLOW: ClassVar[bool] = False
    """Painted with whole frames only: for what changes by the second, or is too much to read any faster."""
    ALLOW_MAXIMIZE: ClassVar[bool] = True
    """A panel can be zoomed."""
    DEFAULT_CSS = """
    Painting { height: 1fr; width: 1fr; }
    """

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - the library's name
        super().__init__(id=id)
        self._view: View | None = None
        self._lines: list[Line] = []
        self._theme = self.app.theme
        self.is_slow = self.IS_SLOW

    def draw(self, view: View, width: int, height: int) -> Sequence[Line]:
        """The lines for this size; too many are cut off."""
        raise NotImplementedError

    def paint(self, view: View) -> None:
        is_first = self._view is None
        self._view = view
        if view.is_whole or is_first or not self.is_slow:
            self.repaint()

    def repaint(self) -> None:
        """Draw the last frame again, since the size or something of our own changed."""
        width, height = self.size
        if self._view is None or not width or not height:
            return
        lines = filled(self.draw(self._view, width, height), width, height)
        changed = [y for y, (old, new) in enumerate(zip(self._lines, lines, strict=False)) if old != new]
        is_resized = len(self._lines) != len(lines)
        self._lines = lines
        if is_resized:
            self.refresh()
        elif changed:
            self.refresh(*(Region(0, y, width, 1) for y in changed))

    def on_resize(self) -> None:
        """Paint the same frame in another size."""
        self._lines = []
        self.repaint()

    def notify_style_update(self) -> None:
        """Paint in another theme."""
        super().notify_style_update()
        self._theme = self.app.theme
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Called by the library: one line as styled segments."""
        theme = self._theme
        if y >= len(self._lines):
            return Strip.blank(self.size.width, style_of(theme, Role.PLAIN))
        return Strip([Segment(text, style_of(theme, role)) for text, role in self._lines[y]], self.size.width)
