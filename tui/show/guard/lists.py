"""Cells that changed lately, and how far the predictors are off."""

from __future__ import annotations

from pdmuxd.tui.client.wire import GuardCellOut
from pdmuxd.tui.show import formats
from pdmuxd.tui.show.guard.heat import batch_range, tokens_below
from pdmuxd.tui.show.heading import heading
from pdmuxd.tui.show.lines import Cell, Column, Line, line, row
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.state.answers import known, why_unknown
from pdmuxd.tui.state.view import View

CHANGES = (
    Column("at", 8),
    Column("", 1),
    Column("decode", 6, "right"),
    Column("new / reused / bs / context", 0),
    Column("guard", 6, "right"),
    Column("seen p50", 8, "right"),
    Column("max", 6, "right"),
    Column("samples", 7, "right"),
)
DRIFT = (
    Column("work", 8),
    Column("SMs", 4, "right"),
    Column("samples", 8, "right"),
    Column("measured / predicted p50", 24, "right"),
    Column("p90", 6, "right"),
    Column("error p50", 9, "right"),
    Column("p90", 5, "right"),
    Column("", 0),
)
OFF_RATIO = 0.15
"""A median further from 1 than this is marked."""


def changes(view: View, width: int, height: int) -> list[Line]:
    """Cells by the time of their last change, newest first."""
    answer = view.state.answers.guard
    head = heading(view, "Cells raised or lowered lately", width)
    why, guard = why_unknown(answer), known(answer)
    if why is not None or guard is None:
        return [head, line((why or "", Role.DIM))]
    changed = sorted(
        (cell for cell in guard.cells if cell.changed_at is not None),
        key=lambda cell: cell.changed_at.timestamp() if cell.changed_at else 0.0,
        reverse=True,
    )
    if not changed:
        return [head, line(("none has changed since it was profiled", Role.DIM))]
    names = row([Cell(column.heading, Role.DIM) for column in CHANGES], CHANGES, width)
    return [head, names, *(row(_change(cell, view), CHANGES, width) for cell in changed)][:height]


def drift(view: View, width: int, height: int) -> list[Line]:
    """Predicted against measured, by kind of work and SM count."""
    answer = view.state.answers.drift
    why, found = why_unknown(answer), known(answer)
    if why is not None or found is None:
        return [heading(view, "Predicted against measured", width), line((why or "", Role.DIM))]
    head = heading(view, "Predicted against measured", width, "DRIFT ALARM" if found.alarm else "last 10 min")
    if not found.pairs:
        return [head, line(("nothing was predicted and measured yet", Role.DIM))]
    lines = [head, row([Cell(column.heading, Role.DIM) for column in DRIFT], DRIFT, width)]
    for pair in found.pairs:
        is_off = pair.p50_ratio is not None and abs(pair.p50_ratio - 1.0) > OFF_RATIO
        role = Role.BAD if is_off else Role.PLAIN
        cells = [
            Cell(pair.work),
            Cell(str(pair.sms)),
            Cell(formats.count(pair.samples)),
            Cell(formats.ratio(pair.p50_ratio) + ("!" if is_off else ""), role),
            Cell(formats.ratio(pair.p90_ratio)),
            Cell(formats.percent(pair.error_p50_ratio)),
            Cell(formats.percent(pair.error_p90_ratio)),
            Cell(""),
        ]
        lines.append(row(cells, DRIFT, width))
    return lines[:height]


def _change(cell: GuardCellOut, view: View) -> list[Cell]:
    prefill = f"{tokens_below(cell.prefill_new)} / {tokens_below(cell.prefill_reused)}"
    place = (
        f"{prefill} / {batch_range(cell.decode_bs).removeprefix('bs ')} / {tokens_below(cell.decode_reused)}"
    )
    return [
        Cell(formats.moment(cell.changed_at, view.daemon_now, view.zone), Role.DIM),
        Cell("↑" if cell.raised else "↓", Role.WARN if cell.raised else Role.GOOD),
        Cell(str(cell.decode_sms)),
        Cell(place),
        Cell(formats.ratio(cell.ratio)),
        Cell(formats.ratio(cell.observed_p50_ratio)),
        Cell(formats.ratio(cell.observed_max_ratio)),
        Cell(formats.count(cell.samples)),
    ]
