"""A dangerous action: it is done only when the engine's name has been typed."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical

from pdmuxd.tui.shell.dialog import Dialog
from pdmuxd.tui.shell.field import Field
from pdmuxd.tui.shell.sheet import Sheet
from pdmuxd.tui.show.actions import Action
from pdmuxd.tui.show.lines import line, wrap
from pdmuxd.tui.show.roles import Role

WIDTH = 70


class TypeName(Dialog[bool]):
    """Answers True when the name was typed as it is."""

    def __init__(self, action: Action, name: str, in_flight: int | None) -> None:
        super().__init__()
        self._in_flight = in_flight
        self._action = action
        self._name_wanted = name

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            title = line((f"{self._action.name.capitalize()} the engine?", Role.TITLE))
            yield Sheet([title, *wrap(f"This will {self._action.does}.{self._concerned()}", WIDTH)])
            yield Sheet(
                [line("Type ", (self._name_wanted, Role.STRONG), " and Enter to do it, Escape to leave it.")]
            )
            yield Field(entered=self._done)
            yield Sheet(id="said")

    def _concerned(self) -> str:
        if self._in_flight is None:
            return ""
        requests = "1 request is" if self._in_flight == 1 else f"{self._in_flight} requests are"
        return f" {requests} in flight."

    def _done(self, typed: str) -> None:
        if typed.strip() == self._name_wanted:
            self.dismiss(True)
        else:
            self.query_one("#said", Sheet).show(
                [line(("! that is not the name; nothing was done", Role.BAD))]
            )
