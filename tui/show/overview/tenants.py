"""Tenants as rows of the Overview, the worst first."""

from __future__ import annotations

from pdmuxd.tui.client.wire import TenantLoad
from pdmuxd.tui.show import formats
from pdmuxd.tui.show.charts import EIGHTHS, MISSING
from pdmuxd.tui.show.lines import Cell, Column, Run
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.show.table import fitting
from pdmuxd.tui.show.tenants.rows import TenantRow, budget_role, budget_text, late_cells, tbt_cell
from pdmuxd.tui.show.words import met_ratio
from pdmuxd.tui.state.spans import DAY_S, is_day
from pdmuxd.tui.state.tenants import MINUTES_KEPT, is_missing
from pdmuxd.tui.state.view import View

COLUMNS = (
    Column("tenant", 0, key="name", letter="N"),
    Column("in time", 8, "right", key="met", letter="M"),
    Column("asked", 6, "right"),
    Column("late", 5, "right", key="late", letter="L"),
    Column("oldest", 7, "right", key="oldest", letter="O"),
    Column("wait", 5, "right", key="waiting", letter="W"),
    Column("TTFT p99", 9, "right", key="ttft", letter="F"),
    Column("TBT/target", 11, "right", key="tbt", letter="T"),
    Column("GPU", 4, "right"),
    Column("unserved", 9, "right", key="refused", letter="X"),
    Column("tokens/s", 8, "right"),
    Column("budget", 9, "right", key="budget", letter="B"),
    Column("last 30 min", 15),
)
DAY_COLUMNS = (*COLUMNS[:-1], Column("last 24 h", 15))
BY_ROOM = ("asked", "wait", "TTFT p99", "budget", "unserved", "tokens/s")
"""Columns for which there must be room, in this order; the others are of any terminal."""
WORST_RATIO = 0.5
"""A share in time of this and less is the lowest cell of the history."""


def kept(width: int) -> tuple[int, ...]:
    """The numbers of the columns that a table of this width has room for."""
    return fitting(COLUMNS, BY_ROOM, width)


def cells(one: TenantRow, view: View) -> list[Cell]:
    """A row of COLUMNS."""
    load = one.load
    bad = is_missing(load)
    met = met_ratio(load)
    role = Role.BAD if bad else Role.PLAIN if met is None else Role.GOOD
    mark = "! " if bad else "+ " if load.verdict == "met" else "  "
    left = load.budget_left_ratio
    return [
        Cell(mark + one.name + ("" if one.enabled else " off"), role if bad else Role.PLAIN),
        Cell(formats.percent(met, 1), role),
        Cell(formats.percent(load.target_ratio or None, 1), Role.DIM),
        *late_cells(load),
        Cell(formats.count(one.waiting)),
        Cell(formats.ms(load.ttft_ms.p99)),
        tbt_cell(one),
        Cell(formats.percent(view.state.pasts.of(one.name).gpu_ratio)),
        Cell(formats.count(one.refused), Role.WARN if load.unserved else Role.PLAIN),
        Cell(formats.rate(load.output_tokens_per_s)),
        Cell(budget_text(left), budget_role(left)),
        Cell("", runs=history(load, view)),
    ]


def columns_of(view: View) -> tuple[Column, ...]:
    """COLUMNS, the last one named after the time that it shows."""
    return DAY_COLUMNS if is_day(view.span) else COLUMNS


def history(load: TenantLoad, view: View, columns: int = 15) -> tuple[Run, ...]:
    """Shares in time, two minutes a cell, or 96: full is all in time, red is below what was promised."""
    now = view.daemon_now
    if now is None:
        return ()
    length_s = DAY_S if is_day(view.span) else MINUTES_KEPT * 60
    # A minute that runs is of the last cell, from its beginning on.
    end_s = now.timestamp() if is_day(view.span) else now.timestamp() // 60 * 60 + 59
    runs: list[Run] = []
    for worst in view.state.pasts.of(load.tenant).met_by_time(end_s, length_s, columns):
        if worst is None:
            runs.append((MISSING, Role.DIM))
            continue
        level = max(1, round(8 * (max(worst, WORST_RATIO) - WORST_RATIO) / (1.0 - WORST_RATIO)))
        bad = load.target_ratio is not None and worst < load.target_ratio
        runs.append((EIGHTHS[level], Role.BAD if bad else Role.GOOD))
    return tuple(runs)
