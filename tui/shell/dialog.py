"""A box over a screen: Escape closes it, and nothing below it changes meanwhile."""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar

from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from pdmuxd.tui.shell.front import Front

T = TypeVar("T")


class Dialog(Front[T | None], ModalScreen[T | None], Generic[T]):
    """Subclasses compose one container with the class `box`."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "Close")]
    DEFAULT_CSS = """
    Dialog { align: center middle; background: $background 60%; }
    Dialog .box {
        width: 76; max-width: 100%; height: auto; max-height: 100%; overflow-y: auto;
        border: round $primary; background: $background; padding: 0 1;
    }
    Dialog Static { height: auto; }
    Dialog Input { border: none; height: 1; width: 1fr; background: $panel; padding: 0 1; }
    Dialog Input:focus { border: none; background: $primary 30%; }
    Dialog .row { height: 1; }
    Dialog .label { width: 34; }
    Dialog .error { color: $error; }
    """
