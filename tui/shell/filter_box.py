"""A line to type a filter into; hidden while it is empty and nobody types."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.binding import Binding, BindingType

from pdmuxd.tui.shell.field import Field


class FilterBox(Field):
    """Enter and Escape give the focus back to the table."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", "No filter")]
    DEFAULT_CSS = """
    FilterBox { border: none; height: 1; padding: 0 1; background: $panel; display: none; }
    FilterBox:focus { border: none; }
    FilterBox.open { display: block; }
    """

    def __init__(
        self,
        *,
        placeholder: str,
        wanted: Callable[[str], None],
        entered: Callable[[str], None] | None = None,
        back_to: str = "RowTable",
    ) -> None:
        super().__init__(placeholder=placeholder, entered=entered)
        self._wanted = wanted
        self._back_to = back_to

    def open(self) -> None:
        self.add_class("open")
        self.screen.set_focus(self)

    def watch_value(self, value: str) -> None:
        """Filter at once, since the next key may open the row under the cursor."""
        if self.is_mounted:
            self._wanted(value)

    def action_give_up(self) -> None:
        self.value = ""
        self._leave()

    async def action_submit(self) -> None:
        self._leave()
        await super().action_submit()

    def on_blur(self) -> None:
        """Close it when the user clicks elsewhere, unless it is open again."""
        if self.screen.focused is not self:
            self._close()

    def _leave(self) -> None:
        self._close()
        self.screen.focus_next(self._back_to)

    def _close(self) -> None:
        self.set_class(bool(self.value), "open")
