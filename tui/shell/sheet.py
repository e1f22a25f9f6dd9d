"""The lines of a dialog. It is as high as its lines."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual.widgets import Static

from pdmuxd.tui.shell.styles import style_of
from pdmuxd.tui.show.lines import Line


class Sheet(Static):
    """The lines as text in the palette's colours."""

    def __init__(self, lines: Sequence[Line] = (), *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._shown = lines

    def on_mount(self) -> None:
        """Paint, since the theme is known now."""
        self.show(self._shown)

    def show(self, lines: Sequence[Line]) -> None:
        self._shown = lines
        parts = [
            Text.assemble(*((text, style_of(self.app.theme, role)) for text, role in one)) for one in lines
        ]
        self.update(Text("\n").join(parts))
