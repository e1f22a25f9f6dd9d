"""All alarms, over whatever screen is in front."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll

from pdmuxd.tui.client.rest import RestClient
from pdmuxd.tui.client.wire import PastAlarmsOut
from pdmuxd.tui.shell.dialog import Dialog
from pdmuxd.tui.shell.sheet import Sheet
from pdmuxd.tui.show.alarms import alarm_lines
from pdmuxd.tui.show.lines import line
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.state.view import View

WIDTH = 72
LIMIT = 50


class AlarmList(Dialog[None]):
    """Closed by Escape or `!`."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("exclamation_mark,q", "dismiss", "Close", show=False)]

    def __init__(self, view: View, rest: RestClient) -> None:
        super().__init__()
        self._view = view
        self._rest = rest

    def compose(self) -> ComposeResult:
        """Alarms that are raised are known; past ones are asked for."""
        with VerticalScroll(classes="box"):
            yield Sheet([line(("Alarms", Role.TITLE))])
            yield Sheet(alarm_lines(None, self._view, WIDTH), id="alarms")

    def on_mount(self) -> None:
        self.work(self._ask)

    async def _ask(self) -> None:
        answer = await self._rest.ask(self._rest.api.list_past_alarms(limit=LIMIT), PastAlarmsOut)
        self.query_one("#alarms", Sheet).show(alarm_lines(answer, self._view, WIDTH))
