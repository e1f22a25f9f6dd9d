"""The command palette: type a part of a screen's, a tenant's or a command's name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input

from pdmuxd.tui.shell.dialog import Dialog
from pdmuxd.tui.shell.field import Field
from pdmuxd.tui.shell.sheet import Sheet
from pdmuxd.tui.show.jump import Place, matching
from pdmuxd.tui.show.lines import Line, fit, line
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.show.table import marked

SHOWN = 12
WIDTH = 72


class Jump(Dialog[str]):
    """Returns the action of the chosen entry."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "Up", show=False),
        Binding("down,tab", "move(1)", "Down", show=False),
    ]

    def __init__(self, found: Sequence[Place]) -> None:
        super().__init__()
        self._all = found
        self._found = list(found)
        self._at = 0

    def compose(self) -> ComposeResult:
        """A field and the entries that it finds."""
        with Vertical(classes="box"):
            yield Field(placeholder="a screen, a tenant, or what to do", entered=lambda _: self._take())
            yield Sheet(self._lines(), id="found")

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        self._filter(event.value)

    def _filter(self, typed: str) -> None:
        self._found, self._at = matching(self._all, typed), 0
        self._show()

    def action_move(self, step: int) -> None:
        self._at = max(0, min(len(self._found) - 1, self._at + step))
        self._show()

    def _take(self) -> None:
        # The message of the last key may be on its way still; what stands in the field is what counts.
        found = matching(self._all, self.query_one(Field).value)
        if not found:
            return
        at = self._at if found == self._found else 0
        self.dismiss(found[at].action)

    def _show(self) -> None:
        self.query_one("#found", Sheet).show(self._lines())

    def _lines(self) -> list[Line]:
        top = max(0, self._at - SHOWN + 1)
        lines = []
        for number, one in enumerate(self._found[top : top + SHOWN], top):
            shown = fit(line((f"{one.name:<26} ", Role.STRONG), (one.says, Role.DIM)), WIDTH)
            lines.append(marked(shown) if number == self._at else shown)
        return lines or [line(("nothing of that name", Role.DIM))]
