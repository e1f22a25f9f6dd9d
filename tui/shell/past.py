"""Asks the daemon for the time before this console started, and keeps the last day up to date while charts
show it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from pdmuxd.tui.client.rest import Refusal
from pdmuxd.tui.client.wire import HistoryOut, PastAlarmsOut
from pdmuxd.tui.state.spans import DAY, DAY_S, TENANT_STEP_S, is_day

if TYPE_CHECKING:
    from pdmuxd.tui.shell.screen import ConsoleScreen

FILL_S = 30.0
DAY_FILL_S = 60.0
STEP_S = 5
"""Of the node's last half hour; a column of a chart is hardly less."""
ALARMS_FILLED = 100


class Past:
    """One for each screen with charts; `fetch` is part of what the screen asks for."""

    def __init__(self, screen: ConsoleScreen) -> None:
        self._screen = screen
        self._filled_s: float | None = None
        self._day_s: float | None = None
        self._has_node = False

    async def fetch(self, tenants: Sequence[str]) -> None:
        """Ask for what is due, for the node and for these tenants."""
        view = self._screen.view
        now, now_s = view.daemon_now, view.now_s
        if now is None:
            return
        if self._filled_s is None or now_s - self._filled_s >= FILL_S:
            self._filled_s = now_s
            await self._fill(tenants, now)
        if is_day(view.span) and (self._day_s is None or now_s - self._day_s >= DAY_FILL_S):
            self._day_s = now_s
            await self._fill_day(tenants, now)

    async def _fill(self, tenants: Sequence[str], now: datetime) -> None:
        """Ask once for the node's last half hour, and for the whole minutes of tenants."""
        rest, state = self._screen.rest, self._screen.console
        if not self._has_node:
            node = await rest.ask(rest.api.get_history(step_s=STEP_S), HistoryOut)
            if isinstance(node, Refusal):
                return
            self._has_node = True
            state.series.fill(node, now, self._screen.view.now_s)
            state.marks.fill(node)
        for tenant in tenants:
            kept = await rest.ask(rest.api.get_history(tenant=tenant, step_s=60), HistoryOut)
            if not isinstance(kept, Refusal):
                state.pasts.fill(tenant, kept, now)

    async def _fill_day(self, tenants: Sequence[str], now: datetime) -> None:
        """Ask for the last day and the alarms in it."""
        rest, state = self._screen.rest, self._screen.console
        begin = (now - timedelta(seconds=DAY_S)).isoformat()
        node = await rest.ask(rest.api.get_history(step_s=DAY.step_s, from_=begin), HistoryOut)
        if not isinstance(node, Refusal):
            state.day.replace(node, now, self._screen.view.now_s)
            state.marks.fill(node)
        alarms = await rest.ask(rest.api.list_past_alarms(from_=begin, limit=ALARMS_FILLED), PastAlarmsOut)
        if not isinstance(alarms, Refusal):
            state.marks.fill_alarms(alarms)
        for tenant in tenants:
            kept = await rest.ask(
                rest.api.get_history(tenant=tenant, step_s=TENANT_STEP_S, from_=begin), HistoryOut
            )
            if not isinstance(kept, Refusal):
                state.pasts.fill_day(tenant, kept)
