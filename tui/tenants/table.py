"""All tenants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType

from pdmuxd.tui.shell.table import RowTable, sort_bindings
from pdmuxd.tui.show.heading import heading
from pdmuxd.tui.show.lines import Cell, Line
from pdmuxd.tui.show.table import fitting
from pdmuxd.tui.show.tenants.rows import BY_ROOM, COLUMNS, TenantRow, cells, tenant_rows
from pdmuxd.tui.state.answers import why_unknown
from pdmuxd.tui.state.view import View

WINDOWS = "p99 over 1 min, burn over 5 min, met and budget over 1 h"


class TenantTable(RowTable[TenantRow]):
    """Sorted and filtered."""

    IS_SLOW = True
    COLUMNS = COLUMNS
    NAME = "tenants"
    BINDINGS: ClassVar[list[BindingType]] = sort_bindings(COLUMNS)
    wanted = ""

    def kept(self, width: int) -> Sequence[int]:
        return fitting(COLUMNS, BY_ROOM, width)

    def items(self, view: View) -> Sequence[TenantRow]:
        """Tenants whose names contain the filter."""
        return tenant_rows(view.state, wanted=self.wanted, order=self.order)

    def cells(self, item: TenantRow, view: View) -> Sequence[Cell]:
        return cells(item)

    def key_of(self, item: TenantRow) -> str:
        return item.name

    def empty(self, view: View) -> str:
        """Why the table is empty: no such name, no tenants, or it is not known."""
        if self.wanted:
            return "no tenant of that name"
        return why_unknown(view.state.answers.tenants) or "there is no tenant: pdmuxd tenant create NAME"

    def title(self, view: View, width: int) -> Line:
        note = f"names with {self.wanted!r}" if self.wanted else WINDOWS
        return heading(view, "Tenants", width, note)
