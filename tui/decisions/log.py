"""The log of decisions, newest first."""

from __future__ import annotations

from collections.abc import Sequence

from pdmuxd.tui.client.wire import DecisionEvent
from pdmuxd.tui.shell.table import RowTable
from pdmuxd.tui.show.decision_filter import DecisionFilter
from pdmuxd.tui.show.decision_rows import COLUMNS, cells
from pdmuxd.tui.show.heading import heading
from pdmuxd.tui.show.lines import Cell, Line
from pdmuxd.tui.state.answers import known, why_unknown
from pdmuxd.tui.state.view import View


class DecisionLog(RowTable[DecisionEvent]):
    """Shows new decisions on top while the cursor is on the first row; else it stays where it is."""

    IS_SLOW = True
    COLUMNS = COLUMNS
    NAME = "decisions"

    def __init__(self) -> None:
        super().__init__()
        self.wanted = DecisionFilter()
        self._paused: list[DecisionEvent] | None = None

    @property
    def is_paused(self) -> bool:
        return self._paused is not None

    def pause(self, view: View) -> None:
        """Keep what is shown, or go on."""
        self._paused = None if self._paused is not None else list(view.state.newest_decisions())
        self.repaint()

    def items(self, view: View) -> Sequence[DecisionEvent]:
        """The decisions of the stream. Filtered by a tenant, those of the daemon, which knows when the tenant
        had requests."""
        if self.wanted.tenant:
            answer = known(view.state.answers.decisions)
            return self.wanted.of(answer.decisions if answer else ())
        if self._paused is not None:
            return self.wanted.of(self._paused)
        return self.wanted.of(view.state.newest_decisions())

    def cells(self, item: DecisionEvent, view: View) -> Sequence[Cell]:
        return cells(item, view.zone)

    def key_of(self, item: DecisionEvent) -> str:
        return str(item.seq)

    def empty(self, view: View) -> str:
        """Why the log is empty: nothing fits the filter, or there was no decision."""
        asked = why_unknown(view.state.answers.decisions) if self.wanted.tenant else None
        return asked or ("no decision fits" if str(self.wanted) else "no decision yet")

    def title(self, view: View, width: int) -> Line:
        """How many decisions came, and the filter."""
        said = str(self.wanted)
        newest = view.state.decisions[-1] if view.state.decisions else None
        total = max(view.state.decisions_total or 0, newest.seq if newest is not None else 0)
        note = f"{total:,} since the daemon began" + (f"; {said}" if said else "")
        return heading(view, "Decisions, times in ms", width, ("PAUSED; " if self.is_paused else "") + note)
