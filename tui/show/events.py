"""What happened, as marks on the time axis of a chart."""

from __future__ import annotations

from collections.abc import Callable

from pdmuxd.tui.show.lines import Run
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.state.view import View

SIGNS: dict[str, Run] = {
    "change": ("▲", Role.KEY),
    "engine": ("E", Role.STRONG),
    "alarm": ("!", Role.WARN),
}
"""The later ones go before the others where several are of one column."""


def events(view: View, columns: int, column_of: Callable[[float], int]) -> dict[int, Run]:
    """The sign of each column in which something happened; `column_of` places an age in seconds."""
    now = view.daemon_now
    if now is None:
        return {}
    found: dict[int, str] = {}
    order = list(SIGNS)
    for mark in view.state.marks.kept:
        column = column_of((now - mark.at).total_seconds())
        if 0 <= column < columns and order.index(mark.kind) >= order.index(found.get(column, order[0])):
            found[column] = mark.kind
    return {column: SIGNS[kind] for column, kind in found.items()}


def events_by_second(view: View, columns: int, scale_s: int) -> dict[int, Run]:
    """The marks of a chart whose columns are `scale_s` seconds each."""
    last = int(view.now_s) // scale_s
    return events(view, columns, lambda age_s: columns - 1 - (last - int(view.now_s - age_s) // scale_s))
