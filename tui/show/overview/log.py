"""The last decisions, newest first."""

from __future__ import annotations

from itertools import islice

from pdmuxd.tui.show.decision_rows import COLUMNS, cells, narrowed
from pdmuxd.tui.show.heading import heading
from pdmuxd.tui.show.lines import Cell, Line, row
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.state.view import View


def log(view: View, width: int, height: int) -> list[Line]:
    """As many as fit; the Decisions screen has the rest."""
    head = heading(view, "Decisions", width, "5: all of them")
    kept = narrowed(width)
    columns = [COLUMNS[at] for at in kept]
    names = row([Cell(column.heading, Role.DIM) for column in columns], columns, width)
    lines = [head, names]
    for one in islice(view.state.newest_decisions(), max(0, height - 2)):
        shown = cells(one, view.zone)
        lines.append(row([shown[at] for at in kept], columns, width))
    return lines
