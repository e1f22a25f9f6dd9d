"""The timeline of one request, over the screen from which it was opened."""

from __future__ import annotations

from datetime import tzinfo

from textual.app import ComposeResult
from textual.containers import VerticalScroll

from pdmuxd.tui.client.wire import RequestEvent
from pdmuxd.tui.shell.dialog import Dialog
from pdmuxd.tui.shell.sheet import Sheet
from pdmuxd.tui.show.requests import timeline

WIDTH = 72


class Timeline(Dialog[None]):
    """Closed by Escape."""

    def __init__(self, lifecycle: RequestEvent, zone: tzinfo | None) -> None:
        super().__init__()
        self._lines = timeline(lifecycle, WIDTH, zone)

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="box"):
            yield Sheet(self._lines)
