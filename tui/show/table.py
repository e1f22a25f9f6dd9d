"""Tables with a cursor: what is visible of them, as lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pdmuxd.tui.show.lines import Cell, Column, Line, row, widths
from pdmuxd.tui.show.roles import Role

DOWN, UP = "▼", "▲"
NAME_ROOM = 16
_MARKED = {Role.BAD: Role.CURSOR_BAD, Role.WARN: Role.CURSOR_WARN}


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What rows are sorted by; an empty key is the order in which they come."""

    key: str = ""
    descending: bool = True

    def next(self, columns: Sequence[Column]) -> Order:
        """The order after this one: each column both ways, then none."""
        keys = ["", *(column.key for column in columns if column.key)]
        if self.key and self.descending:
            return Order(key=self.key, descending=False)
        at = keys.index(self.key) if self.key in keys else 0
        return Order(key=keys[(at + 1) % len(keys)])


def head(columns: Sequence[Column], width: int, order: Order) -> Line:
    """The headings; the sorted column is marked."""
    cells = []
    for column in columns:
        is_sorted = bool(column.key) and column.key == order.key
        mark = (DOWN if order.descending else UP) if is_sorted else ""
        cells.append(Cell(mark + column.heading, Role.TITLE if is_sorted else Role.DIM))
    return row(cells, columns, width)


def column_at(columns: Sequence[Column], width: int, x: int) -> Column | None:
    """The column whose heading covers a cell."""
    left = 0
    for column, cells in zip(columns, widths(columns, width), strict=True):
        if left <= x < left + cells:
            return column
        left += cells + 1
    return None


def fitting(columns: Sequence[Column], by_room: Sequence[str], width: int) -> tuple[int, ...]:
    """The numbers of the columns that are shown: those `by_room`, by their headings, while names keep
    NAME_ROOM cells. A wider table has the columns of a narrower one and more."""
    hidden = list(by_room)
    while hidden:
        more = [one for one in columns if one.heading not in hidden[1:]]
        if sum(one.width for one in more) + len(more) - 1 + NAME_ROOM > width:
            break
        del hidden[0]
    return tuple(at for at, one in enumerate(columns) if one.heading not in hidden)


def marked(one: Line) -> Line:
    """The row under the cursor: another ground for all of it, so that it is found without colour too; what is
    bad in it stays so."""
    return tuple((text, _MARKED.get(role, Role.CURSOR)) for text, role in one)


def scrolled(top: int, cursor: int, count: int, room: int) -> int:
    """The first row to show so that the cursor is visible and no room is wasted."""
    if room <= 0:
        return 0
    top = min(max(top, cursor - room + 1), cursor) if cursor >= 0 else top
    return max(0, min(top, count - room))


def moved(cursor: int, step: int, count: int) -> int:
    """The cursor after a step, within the rows; -1 without any."""
    return max(0, min(count - 1, cursor + step)) if count else -1
