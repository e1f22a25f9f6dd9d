"""The busiest tenants, a line each."""

from __future__ import annotations

from pdmuxd.tui.client.wire import TenantLoad
from pdmuxd.tui.show import formats
from pdmuxd.tui.show.heading import heading
from pdmuxd.tui.show.lines import Cell, Column, Line, line, row
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.state.view import View

COLUMNS = (
    Column("tenant", 0),
    Column("in flight", 9, "right"),
    Column("TTFT p99", 8, "right"),
    Column("TTFT met", 8, "right"),
    Column("TBT p99", 7, "right"),
    Column("TBT met", 7, "right"),
    Column("budget", 6, "right"),
)


def tenants(view: View, width: int, height: int) -> list[Line]:
    """As many as fit; the Tenants screen has all."""
    event = view.state.tenants
    head = heading(view, "Tenants", width, "p99 over 1 min, met and budget over 1 h")
    if event is None or not event.tenants:
        return [head, line(("no requests in the last hour", Role.DIM))]
    names = row([Cell(column.heading, Role.DIM) for column in COLUMNS], COLUMNS, width)
    return [head, names, *(row(_cells(one), COLUMNS, width) for one in event.tenants[: max(0, height - 2)])]


def _cells(one: TenantLoad) -> list[Cell]:
    left = one.budget_left_ratio
    role = Role.PLAIN if left is None else Role.BAD if left <= 0 else Role.WARN if left < 0.25 else Role.GOOD
    return [
        Cell(one.tenant),
        Cell(formats.count(one.in_flight)),
        Cell(formats.ms(one.ttft_ms.p99)),
        Cell(formats.percent(one.ttft_attainment_ratio, 1)),
        Cell(formats.ms(one.tbt_gap_ms.p99)),
        Cell(formats.percent(one.tbt_attainment_ratio, 1)),
        Cell(formats.percent(left), role),
    ]
