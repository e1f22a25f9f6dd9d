"""Edit a tenant's targets, with what is predicted of them while one types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.timer import Timer
from textual.widgets import Input, Label

from pdmuxd.tui.client.rest import RestClient
from pdmuxd.tui.client.wire import SloOut
from pdmuxd.tui.shell.dialog import Dialog
from pdmuxd.tui.shell.field import Field
from pdmuxd.tui.shell.sheet import Sheet
from pdmuxd.tui.show.lines import Line, line, wrap
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.show.tenants.edit import FIELDS, Draft, draft, typed_of
from pdmuxd.tui.show.tenants.outlook import outlook_text
from pdmuxd.tui.tenants.confirm import ConfirmSlo
from pdmuxd.tui.tenants.predict import predict

WIDTH = 70
TYPING_S = 0.3
"""The daemon is asked when nothing was typed for so long, seconds."""


class EditSlo(Dialog[SloOut]):
    """Returns the targets as they were set, or None."""

    AUTO_FOCUS = "#tbt_ms"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+s", "review", "Review")]

    def __init__(self, tenant: str, before: SloOut, rest: RestClient) -> None:
        super().__init__()
        self._tenant = tenant
        self._before = before
        self._rest = rest
        self._timer: Timer | None = None

    def compose(self) -> ComposeResult:
        """A line per target, then the prediction."""
        with VerticalScroll(classes="box"):
            yield Sheet([line((f"Targets of {self._tenant}, version {self._before.version}", Role.TITLE))])
            for field in FIELDS:
                with Horizontal(classes="row"):
                    yield Label(field.label, classes="label")
                    was = typed_of(getattr(self._before, field.name))
                    yield Field(was, id=field.name, entered=lambda _: self.action_review())
            yield Sheet(id="said")
            yield Sheet([line(("Enter", Role.KEY), " reviews   ", ("Escape", Role.KEY), " gives it up")])

    def on_mount(self) -> None:
        """Ask about the target that holds."""
        self._ask()

    @property
    def typed(self) -> Draft:
        return draft({field.name: self.query_one(f"#{field.name}", Input).value for field in FIELDS})

    @on(Input.Changed)
    def _changed(self) -> None:
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(TYPING_S, self._ask)

    def action_review(self) -> None:
        """Show before and after."""
        typed = self.typed
        changes = typed.changes(self._before)
        if typed.errors or not changes:
            said = typed.errors or ("nothing is changed",)
            self._say([one for error in said for one in wrap(f"! {error}", WIDTH, Role.BAD)])
            return
        confirm = ConfirmSlo(self._tenant, self._before, typed, self._rest)
        self.app.push_screen(confirm, self._confirmed)

    def _confirmed(self, slo: SloOut | None) -> None:
        if slo is None:
            return
        if slo.version == self._before.version + 1 and self.typed.values == {
            field.name: getattr(slo, field.name) for field in FIELDS
        }:
            self.dismiss(slo)
            return
        # Someone else's version: go on from there, with what was typed.
        self._before = slo
        self._say([line((f"what you typed is now compared with version {slo.version}", Role.WARN))])

    def _ask(self) -> None:
        self.begin(self._predict, group="what-if", exclusive=True)

    async def _predict(self) -> None:
        typed = self.typed
        if typed.errors:
            self._say([one for error in typed.errors for one in wrap(f"! {error}", WIDTH, Role.BAD)])
            return
        answer = await predict(self._rest, self._tenant, typed.values)
        self._say(outlook_text(answer, WIDTH))

    def _say(self, lines: Sequence[Line]) -> None:
        self.query_one("#said", Sheet).show(lines)
