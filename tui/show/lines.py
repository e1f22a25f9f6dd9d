"""Lines of runs: the only thing that a widget paints.

A run is text and a role; a palette says what a role looks like. Widths are terminal cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len, set_cell_size

from pdmuxd.tui.show.roles import Role

Run = tuple[str, Role]
Line = tuple[Run, ...]
BLANK: Line = ()
ELLIPSIS = "…"
NAME_WIDTH = 24


@dataclass(frozen=True, slots=True)
class Cell:
    """One column of a table's row."""

    text: str
    role: Role = Role.PLAIN
    runs: Line = ()
    """In place of the text, where one role is not enough."""


@dataclass(frozen=True, slots=True)
class Column:
    """How a column of a table is set. `width` 0 takes what the others leave."""

    heading: str
    width: int
    align: Literal["left", "right"] = "left"
    key: str = ""
    """What rows are sorted by; empty where the column is not sorted."""
    letter: str = ""
    """The key that sorts by it at once."""


def line(*runs: Run | str) -> Line:
    """A line of runs; bare text is plain."""
    return tuple((run, Role.PLAIN) if isinstance(run, str) else run for run in runs)


def length(one: Line) -> int:
    """How many cells a line takes."""
    return sum(cell_len(text) for text, _ in one)


def in_text(name: str) -> str:
    """A tenant's name inside a sentence: names have up to 63 characters, and the rest has to be read."""
    return clip(name, NAME_WIDTH)


def clip(text: str, width: int) -> str:
    """Cut to at most `width` cells, with an ellipsis where something is cut off."""
    if cell_len(text) <= width:
        return text
    return "" if width <= 0 else set_cell_size(text, width - 1) + ELLIPSIS


def fit(one: Line, width: int) -> Line:
    """Exactly `width` cells: clipped or padded."""
    runs: list[Run] = []
    left = width
    for number, (text, role) in enumerate(one):
        cells = cell_len(text)
        is_last = number == len(one) - 1
        if cells > left or (cells == left and not is_last and length(one[number + 1 :]) > 0):
            runs.append((clip(text + " ", left) if cells == left else clip(text, left), role))
            left = 0
            break
        runs.append((text, role))
        left -= cells
    if left > 0:
        runs.append((" " * left, Role.PLAIN))
    return tuple(run for run in runs if run[0])


def title(text: str, width: int, note: str = "", note_role: Role = Role.DIM) -> Line:
    """A heading with a rule to the edge and a note at its right end."""
    tail = f" {note} ─" if note else ""
    head = f"─ {text} "
    rule = max(0, width - cell_len(head) - cell_len(tail))
    return fit(
        (("─ ", Role.RULE), (text, Role.TITLE), (" " + "─" * rule, Role.RULE), *_note(note, note_role)), width
    )


def spread(left: Line, right: Line, width: int) -> Line:
    """Two lines in one, at the left and the right end; the left one is cut if both do not fit."""
    gap = width - length(right)
    return fit(left, max(0, gap)) + fit(right, min(width, length(right)))


def row(cells: Sequence[Cell], columns: Sequence[Column], width: int) -> Line:
    """A table's row, a blank between columns."""
    runs: list[Run] = []
    for cell, column, cells_wide in zip(cells, columns, widths(columns, width), strict=True):
        if cell.runs:
            runs += [*fit(cell.runs, cells_wide), (" ", Role.PLAIN)]
            continue
        text = clip(cell.text, cells_wide)
        blank = " " * (cells_wide - cell_len(text))
        runs += [((blank + text if column.align == "right" else text + blank), cell.role), (" ", Role.PLAIN)]
    return fit(tuple(runs[:-1]), width)


def widths(columns: Sequence[Column], width: int) -> tuple[int, ...]:
    """The cells of each column when `width` are shared out."""
    fixed = sum(column.width for column in columns) + len(columns) - 1
    flexible = [column for column in columns if column.width == 0]
    share = max(1, (width - fixed) // len(flexible)) if flexible else 0
    return tuple(column.width or share for column in columns)


def wrap(text: str, width: int, role: Role = Role.PLAIN) -> list[Line]:
    """Words on as many lines as they need; a word longer than a line is clipped."""
    lines: list[str] = []
    for word in text.split():
        if lines and cell_len(lines[-1]) + 1 + cell_len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(clip(word, width))
    return [((one, role),) for one in lines]


def filled(lines: Iterable[Line], width: int, height: int) -> list[Line]:
    """Exactly `height` lines of `width` cells."""
    fitted = [fit(one, width) for one in list(lines)[:height]]
    return fitted + [fit(BLANK, width)] * (height - len(fitted))


def _note(note: str, role: Role) -> Line:
    return ((" ", Role.RULE), (note, role), (" ─", Role.RULE)) if note else ()
