"""Ask for a request's id."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical

from pdmuxd.tui.shell.dialog import Dialog
from pdmuxd.tui.shell.field import Field
from pdmuxd.tui.shell.sheet import Sheet
from pdmuxd.tui.show.lines import line
from pdmuxd.tui.show.roles import Role


class AskRequest(Dialog[str]):
    """Answers what was typed."""

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Sheet(
                [line(("A request's id", Role.TITLE), " (x-request-id of its answer, rid in the logs)")]
            )
            yield Field(placeholder="32 hexadecimal digits", entered=self._done)

    def _done(self, typed: str) -> None:
        self.dismiss(typed.strip() or None)
