"""Why a tenant's targets were missed, grouped, by what it cost the error budget."""

from __future__ import annotations

from pdmuxd.tui.client.wire import TenantLoad
from pdmuxd.tui.show import formats
from pdmuxd.tui.show.heading import heading
from pdmuxd.tui.show.lines import Cell, Column, Line, line, row
from pdmuxd.tui.show.reasons import split_text
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.show.tenants.rows import IDLE
from pdmuxd.tui.show.verdict import likely_cause
from pdmuxd.tui.show.words import LABELS, cause_in_words
from pdmuxd.tui.state.tenants import Missed
from pdmuxd.tui.state.view import View

Split = tuple[str, int, int] | None
SPLIT = "mostly in"
"""Left out where no split is to blame."""
COLUMNS = (
    Column("share", 5, "right"),
    Column("target", 6),
    Column("late", 6, "right"),
    Column("by, median", 10, "right"),
    Column(SPLIT, 12),
    Column("cause", 0),
)


def causes(name: str, view: View, width: int, height: int) -> list[Line]:
    """A line for each target, cause and split, the costliest first."""
    head = heading(view, "Why targets were missed, 5 min", width, "requests for TTFT, gaps for TBT")
    now = view.daemon_now
    found = view.state.pasts.of(name).recent(now.timestamp() if now is not None else 0.0)
    grouped: dict[tuple[str, str, Split], list[Missed]] = {}
    for miss in found:
        grouped.setdefault((miss.target, miss.cause, miss.split), []).append(miss)
    if not grouped:
        return [head, line(("no request that ended in the last 5 minutes missed a target", Role.DIM))]
    totals: dict[str, int] = {}
    for miss in found:
        totals[miss.target] = totals.get(miss.target, 0) + miss.weight
    loads = view.state.tenants.tenants if view.state.tenants is not None else ()
    load = next((one for one in loads if one.tenant == name), IDLE)
    ranked = sorted(grouped.items(), key=lambda one: -_share(one[1], totals) * _burn(load, one[0][0]))
    has_split = any(miss.split is not None for miss in found)
    kept = [at for at, column in enumerate(COLUMNS) if has_split or column.heading != SPLIT]
    columns = [COLUMNS[at] for at in kept]
    lines = [row([Cell(column.heading, Role.DIM) for column in columns], columns, width)]
    for (target, cause, split), misses in ranked:
        late = sum(miss.weight for miss in misses)
        excess = sorted(miss.by_ratio for miss in misses)[len(misses) // 2]
        is_first = target == "ttft" and cause == "queued" and load is not IDLE
        said = likely_cause(load, target, view, cause) if is_first else cause_in_words(cause)
        cells = [
            Cell(formats.percent(_share(misses, totals))),
            Cell(LABELS.get(target, target)),
            Cell(formats.count(late)),
            Cell(f"+{formats.percent(excess, 1 if excess < 0.1 else 0)}" if excess else formats.NONE),
            Cell(split_text(*split) if split is not None else formats.NONE),
            Cell(said),
        ]
        lines.append(row([cells[at] for at in kept], columns, width))
    return [head, *lines][:height]


def _share(misses: list[Missed], totals: dict[str, int]) -> float:
    return sum(miss.weight for miss in misses) / totals[misses[0].target]


def _burn(load: TenantLoad, target: str) -> float:
    burns = {
        "ttft": load.ttft_burn,
        "tbt": load.tbt_burn,
        "availability": load.availability_burn,
        "e2e": load.e2e_burn,
    }
    return burns.get(target) or 0.01
