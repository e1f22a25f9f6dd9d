"""The requests of a tenant that missed a target, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pdmuxd.tui.client.wire import RequestEvent
from pdmuxd.tui.shell.table import RowTable
from pdmuxd.tui.show.heading import heading
from pdmuxd.tui.show.lines import Cell, Line
from pdmuxd.tui.show.requests import COLUMNS, cells
from pdmuxd.tui.state.answers import known, why_unknown
from pdmuxd.tui.state.view import View


class MissedRequests(RowTable[RequestEvent]):
    """Newest first; Enter shows one's timeline."""

    IS_SLOW = True
    COLUMNS = COLUMNS
    NAME = "missed-requests"

    def __init__(self, name: str, *, opened: Callable[[RequestEvent], None]) -> None:
        super().__init__(opened=opened)
        self._name_of_tenant = name

    def items(self, view: View) -> Sequence[RequestEvent]:
        """Misses that the daemon remembers, and those that came since."""
        live = [
            one for one in reversed(view.state.requests) if one.tenant == self._name_of_tenant and one.missed
        ]
        seen = {one.request_id for one in live}
        answer = known(view.state.answers.missed.get(self._name_of_tenant))
        return live + [one for one in (answer.requests if answer else ()) if one.request_id not in seen]

    def cells(self, item: RequestEvent, view: View) -> Sequence[Cell]:
        tenants = view.state.tenants.tenants if view.state.tenants is not None else ()
        is_met = any(one.tenant == item.tenant and one.verdict == "met" for one in tenants)
        return cells(item, view.daemon_now, view.zone, is_met=is_met)

    def key_of(self, item: RequestEvent) -> str:
        return item.request_id

    def empty(self, view: View) -> str:
        """Why the table is empty: nothing was missed, or it is not known."""
        answer = view.state.answers.missed.get(self._name_of_tenant)
        return why_unknown(answer) or "no request missed a target of late"

    def title(self, view: View, width: int) -> Line:
        return heading(view, "Requests that missed a target", width, "times in ms")
