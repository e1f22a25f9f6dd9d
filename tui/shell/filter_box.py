"""A line to type a filter into; hidden while it is empty and nobody types."""

from __future__ import annotations

from textual import on
from textual.widgets import Input

from pdmuxd.tui.shell.field import Field


class FilterBox(Field):
    """Enter and Escape give the focus back to `table`."""

    DEFAULT_CSS = """
    FilterBox { border: none; height: 1; padding: 0 1; background: $panel; display: none; }
    FilterBox:focus { border: none; }
    FilterBox.open { display: block; }
    """

    def open(self) -> None:
        """Begin to type."""
        self.add_class("open")
        self.screen.set_focus(self)

    def key_escape(self) -> None:
        """No filter."""
        self.value = ""
        self._leave()

    @on(Input.Submitted)
    def _done(self) -> None:
        self._leave()

    def _leave(self) -> None:
        self.set_class(bool(self.value), "open")
        self.screen.focus_next("RowTable")
