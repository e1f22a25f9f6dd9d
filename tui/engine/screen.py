"""The Engine screen."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from pdmuxd.tui.client.rest import Refusal
from pdmuxd.tui.client.wire import ActionOut, LogOut
from pdmuxd.tui.engine.log_tail import LogTail
from pdmuxd.tui.engine.type_name import TypeName
from pdmuxd.tui.shell.filter_box import FilterBox
from pdmuxd.tui.shell.panel import PanelSpec, css_of
from pdmuxd.tui.shell.screen import ConsoleScreen
from pdmuxd.tui.show.actions import ACTIONS, Action, name_to_type
from pdmuxd.tui.show.engine import actions, facts, progress

PANELS = (
    PanelSpec("facts", facts, "height: 4;"),
    PanelSpec("progress", progress, "height: 3;"),
    PanelSpec("actions", actions, "height: 5;"),
)

LOG_LINES = 500


class EngineScreen(ConsoleScreen):
    """Actions by key."""

    NAME = "engine"
    POLL_S = 1.0
    HELP_TEXT = """\
In flight: during a drain what is left, and "safe now" once nothing is; the states that the engine went
through since this console began, with how long each lasted. / shows the log's lines that hold a text.
Drain: new requests are answered 503, those in flight finish, the engine keeps running until it is resumed.
Restart: a drain, then a new engine process. Start: an engine that is down is started now. Drain and restart
ask for the name of the model to be typed, so that it is this engine and not another tunnel's. The
log is what the engine process prints."""
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(action.key, f"engine('{action.name}')", action.name.capitalize()) for action in ACTIONS),
        Binding("slash", "search", "Search the log", key_display="/"),
    ]

    DEFAULT_CSS = css_of("EngineScreen", PANELS)

    def body(self) -> Iterable[Widget]:
        """Facts, actions, log."""
        yield from (each.panel() for each in PANELS)
        yield LogTail()
        yield FilterBox(placeholder="part of a log line", wanted=self._search, back_to="LogTail")

    async def fetch(self) -> None:
        self.console.answers.log = await self.rest.ask(self.rest.api.get_engine_log(lines=LOG_LINES), LogOut)

    def action_search(self) -> None:
        """Search the log for a part of a line."""
        self.query_one(FilterBox).open()

    def _search(self, typed: str) -> None:
        tail = self.query_one(LogTail)
        tail.wanted = typed
        tail.repaint()

    def action_engine(self, name: str) -> None:
        """Act on the engine; a dangerous action asks for the engine's name first."""
        action = next(one for one in ACTIONS if one.name == name)
        if self.why_no_change() is not None:
            return
        if action.is_dangerous:
            stats = self.console.stats
            in_flight = stats.in_flight if stats is not None else None
            dialog = TypeName(action, name_to_type(self.console.engine), in_flight)
            self.app.push_screen(dialog, lambda typed: self._begin(action) if typed else None)
        else:
            self._begin(action)

    def _begin(self, action: Action) -> None:
        self.begin(partial(self._do, action), group="action")

    async def _do(self, action: Action) -> None:
        answer = await self.rest.ask(self.rest.api.request("POST", f"/engine/{action.name}"), ActionOut)
        if isinstance(answer, Refusal):
            said = "this daemon has no such action" if answer.is_missing_route else answer.detail
            self.notify(said, title=f"Not done: {action.name}", severity="error", markup=False)
        else:
            self.notify(answer.text or answer.state, title=f"Done: {action.name}", markup=False)
        self.poll()
