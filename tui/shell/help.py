"""What the screen in front shows, and every key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static

from pdmuxd.tui.shell.dialog import Dialog
from pdmuxd.tui.show.help import help_text


class Help(Dialog[None]):
    """Closed by Escape, `?` or q."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("question_mark,q", "dismiss", "Close", show=False)]

    def __init__(self, name: str, text: str, keys: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self._text = help_text(name, text, keys)

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="box"):
            yield Static(self._text, markup=False)
