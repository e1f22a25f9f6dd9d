"""Changes that an operator types as a line of words. Each is shown, confirmed, made, and audited with its
reason."""

from __future__ import annotations

from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Input

from pdmuxd.tui.client.printable import printable
from pdmuxd.tui.client.rest import Refusal, RestClient
from pdmuxd.tui.shell.dialog import Dialog
from pdmuxd.tui.shell.field import Field
from pdmuxd.tui.shell.sheet import Sheet
from pdmuxd.tui.show.admin import Change, parse, usage_lines
from pdmuxd.tui.show.lines import Line, line, wrap
from pdmuxd.tui.show.roles import Role

WIDTH = 72


class Confirm(Dialog[bool]):
    """Asks whether to do it; `y` does."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("y", "dismiss(True)", "Do it")]

    def __init__(self, change: Change) -> None:
        super().__init__()
        self._change = change

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="box"):
            yield Sheet(wrap(f"This will {self._change.asks}.", WIDTH, Role.STRONG))
            if self._change.why is not None:
                yield Sheet(wrap(f"The audit will say: {printable(self._change.why)}", WIDTH))
            yield Sheet([line(("y", Role.KEY), " does it   ", ("Escape", Role.KEY), " leaves it")])


class Admin(Dialog[None]):
    """Goes on until Escape, so that a key that was issued can be read and copied."""

    AUTO_FOCUS = "Field"

    def __init__(self, rest: RestClient) -> None:
        super().__init__()
        self._rest = rest

    def compose(self) -> ComposeResult:
        """A field, the forms that may be typed, and the result."""
        with VerticalScroll(classes="box"):
            yield Sheet([line(("Change tenants, keys, profiles, the policy", Role.TITLE))])
            yield Field(
                placeholder="words, and: because ... for the audit; then Enter", entered=self._entered
            )
            yield Sheet(usage_lines("", WIDTH), id="usage")
            yield Sheet(id="said")

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        self.query_one("#usage", Sheet).show(usage_lines(event.value, WIDTH))

    def _entered(self, typed: str) -> None:
        change = parse(typed)
        if change is None:
            self._say([line(("! these words are none of those above; nothing was done", Role.BAD))])
            return

        def answered(is_wanted: bool | None) -> None:
            if is_wanted:
                self.work(lambda: self._do(change))

        self.app.push_screen(Confirm(change), answered)

    async def _do(self, change: Change) -> None:
        answer = await self._rest.ask(
            self._rest.api.request(change.method, change.path, body=change.body, why=change.why), Any
        )
        if isinstance(answer, Refusal):
            self._say(wrap(f"! Nothing was done: {answer.detail}", WIDTH, Role.BAD))
            return
        lines = wrap(f"+ Done: {change.asks}.", WIDTH, Role.GOOD)
        secret = answer.get("secret") if isinstance(answer, dict) else None
        if isinstance(secret, str):
            self.app.copy_to_clipboard(secret)
            shown = line((printable(secret), Role.STRONG))
            note = "Keep it now: it is never shown again. It is in the clipboard, if this terminal allows it."
            lines = [*lines, shown, *wrap(note, WIDTH, Role.WARN)]
        self._say(lines)

    def _say(self, lines: list[Line]) -> None:
        self.query_one("#said", Sheet).show(lines)
