"""The Guard screen."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from textual.widget import Widget

from pdmuxd.tui.client.wire import DriftOut, GuardOut
from pdmuxd.tui.guard.heat_map import HeatMap
from pdmuxd.tui.shell.panel import PanelSpec, css_of
from pdmuxd.tui.shell.screen import ConsoleScreen
from pdmuxd.tui.show.guard.lists import changes, drift

LISTS = (
    PanelSpec("changes", changes, "height: 1fr; min-height: 3;"),
    PanelSpec("drift", drift, "height: 1fr; min-height: 3;"),
)
"""The cells that changed last, and how good the predictors are."""


class GuardScreen(ConsoleScreen):
    """A panel says so where the daemon does not serve what it shows."""

    NAME = "guard"
    HELP_TEXT = """\
The contention guard is the worst slowdown of decode beside a prefill, by cell: prefill tokens across, decode
batch down, one decode partition at a time (left, right). 1.00 is no slowdown; in brackets the default, where
nothing was measured; ↑ was raised by what was seen. Below: the cells that changed last, and predicted against
measured times of the last ten minutes: a median ratio of 1 is a good predictor, ! is off by more than 15%."""

    DEFAULT_CSS = css_of("GuardScreen", LISTS)

    def body(self) -> Iterable[Widget]:
        """Map, changes, drift."""
        yield HeatMap()
        yield from (each.panel() for each in LISTS)

    async def fetch(self) -> None:
        """Ask for the guard and the drift; both answers are small."""
        answers = self.console.answers
        answers.guard, answers.drift = await asyncio.gather(
            self.rest.ask(self.rest.api.get_guard(), GuardOut),
            self.rest.ask(self.rest.api.get_drift(), DriftOut),
        )
