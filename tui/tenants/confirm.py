"""Confirms an edit: shows it with its prediction, then makes it, or says that somebody else was first."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll

from pdmuxd.tui.client.rest import Refusal, RestClient
from pdmuxd.tui.client.wire import OutlookOut, SloOut
from pdmuxd.tui.shell.dialog import Dialog
from pdmuxd.tui.shell.sheet import Sheet
from pdmuxd.tui.show.lines import Line, line, wrap
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.show.tenants.edit import Draft, changes_text, conflict_text
from pdmuxd.tui.show.tenants.outlook import outlook_text
from pdmuxd.tui.tenants.predict import predict, sent

if TYPE_CHECKING:
    from pdmuxd.tui.client.api import models

WIDTH = 70
STALE_VERSION = 412
ASK: list[Line] = [(), line(("y", Role.KEY), " applies it   ", ("Escape", Role.KEY), " goes back")]

FORCE: list[Line] = [
    (),
    line(("y", Role.KEY), " applies it all the same   ", ("Escape", Role.KEY), " goes back"),
]


class ConfirmSlo(Dialog[SloOut]):
    """Returns what was set; the other version if somebody else was first; None if the user gave up."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("y", "apply", "Apply")]

    def __init__(self, tenant: str, before: SloOut, typed: Draft, rest: RestClient) -> None:
        super().__init__()
        self._tenant = tenant
        self._before = before
        self._typed = typed
        self._rest = rest
        self._theirs: SloOut | None = None
        self._is_forced = False
        """Whether to force the edit: the user has been told that it is predicted to be infeasible."""

    def compose(self) -> ComposeResult:
        """Show values before and after, then the prediction."""
        changes = self._typed.changes(self._before)
        with VerticalScroll(classes="box"):
            yield Sheet(
                [line((f"Change the targets of {self._tenant}?", Role.TITLE)), *changes_text(changes)]
            )
            yield Sheet(id="prediction")
            yield Sheet(ASK, id="said")

    def on_mount(self) -> None:
        """Ask once more, since the load may have changed. Nothing is applied before the answer is shown."""
        self.work(self._predict)

    async def _predict(self) -> None:
        answer = await predict(self._rest, self._tenant, self._typed.values)
        self._is_forced = isinstance(answer, OutlookOut) and answer.verdict == "infeasible"
        self.query_one("#prediction", Sheet).show(outlook_text(answer, WIDTH))
        if self._is_forced:
            self.query_one("#said", Sheet).show(FORCE)

    def action_apply(self) -> None:
        """Set them, unless someone else has meanwhile."""
        if self._theirs is None:
            self.work(self._apply)

    async def _apply(self) -> None:
        wanted = cast("models.SloIn", sent(self._typed.values))
        asked = self._rest.api.set_slo(
            self._tenant, wanted, force=self._is_forced or None, if_match=self._before.version
        )
        answer = await self._rest.ask(asked, SloOut)
        if isinstance(answer, SloOut):
            self.dismiss(answer)
            return
        lines = wrap(f"! Nothing was applied: {answer.detail}", WIDTH, Role.BAD)
        if answer.status == STALE_VERSION:
            theirs = await self._rest.ask(self._rest.api.get_slo(self._tenant), SloOut)
            if not isinstance(theirs, Refusal):
                self._theirs = theirs
                lines = conflict_text(self._tenant, self._before, theirs, WIDTH)
        self.query_one("#said", Sheet).show([*lines, line(("Escape", Role.KEY), " goes back to the edit")])

    async def action_dismiss(self, result: SloOut | None = None) -> None:
        """Go back to the edit. If somebody else was first, it goes on from that version."""
        self.dismiss(result or self._theirs)
