"""Tenants, the worst first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType

from pdmuxd.tui.shell.table import RowTable, sort_bindings
from pdmuxd.tui.show.heading import heading
from pdmuxd.tui.show.lines import Cell, Column, Line
from pdmuxd.tui.show.overview.tenants import COLUMNS, cells, columns_of, kept
from pdmuxd.tui.show.tenants.rows import TenantRow, tenant_rows
from pdmuxd.tui.state.answers import why_unknown
from pdmuxd.tui.state.view import View


class WorstTenants(RowTable[TenantRow]):
    """Enter opens one."""

    IS_SLOW = True
    COLUMNS = COLUMNS
    BINDINGS: ClassVar[list[BindingType]] = sort_bindings(COLUMNS)
    NAME = "tenants-now"

    def columns(self, view: View) -> Sequence[Column]:
        """The columns; the last heading says which time it covers."""
        return columns_of(view)

    def kept(self, width: int) -> Sequence[int]:
        return kept(width)

    def items(self, view: View) -> Sequence[TenantRow]:
        """Active tenants first, then the others."""
        return tenant_rows(view.state, order=self.order)

    def cells(self, item: TenantRow, view: View) -> Sequence[Cell]:
        return cells(item, view)

    def key_of(self, item: TenantRow) -> str:
        return item.name

    def empty(self, view: View) -> str:
        """Why the table is empty: there are no tenants, or it is not known."""
        return why_unknown(view.state.answers.tenants) or "there are no tenants"

    def title(self, view: View, width: int) -> Line:
        note = (
            "in time and late: 5 min, with what waits; p99: 1 min"
            if width >= 100
            else "5 min, with what waits"
        )
        return heading(view, "Tenants, worst first", width, note)
