"""A result as a table: one value, which prints in a terminal and stands on a page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

_PIECES = re.compile(r"[^/:,]*[/:,]|[^/:,]+")
LABEL_WIDTH = 22
CELL_WIDTH = 12
PADDING = 2
_GAP = 2
"""Between two columns."""
_INDENT = 3
"""Before a name's second line."""


def broken(name: str, width: int) -> str:
    """A policy's specification on lines of at most `width`, broken behind `/`, `:` and `,`; a piece that is
    longer stays whole."""
    lines = [""]
    for piece in _PIECES.findall(name):
        if lines[-1] and len(lines[-1]) + len(piece) > width:
            lines.append("")
        lines[-1] += piece
    return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """A heading of the table."""

    text: str
    hint: str = ""
    """Shown when the pointer rests on it."""
    colour: str | None = None
    """The colour of a swatch before the text."""
    is_meaning: bool = False
    """Whether it says what each row means; on the page alone."""
    is_for_page: bool = False
    """Whether a terminal has no room for it."""
    spared: int = 0
    """A narrow terminal does without the columns with 1, 2 ... here, in this order; 0 always stays."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell that says more than its text."""

    text: str
    is_met: bool | None = None
    """Whether the target is met; None where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """A row: its label, and a cell for each column after the first."""

    label: str
    cells: Sequence[str | Cell]
    colour: str | None = None
    meaning: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSection:
    """Rows under a heading of their own, if they have one."""

    title: str = ""
    rows: Sequence[TableRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What is compared stands in its rows, or in its columns, metric by metric.

    In a terminal of 60 to 80 columns names are broken between their pieces. Where there is no room even so,
    rows do without the columns that can be spared, and columns follow in further tables.
    """

    columns: Sequence[TableColumn]
    sections: Sequence[TableSection]
    compares: Literal["rows", "columns"] = "rows"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Print as wide as there is room."""
        shown = [at for at, one in enumerate(self.columns) if at and not (one.is_meaning or one.is_for_page)]
        print_it = self._rows_compared if self.compares == "rows" else self._columns_compared
        yield from print_it(shown, options.max_width)

    def _columns_compared(self, shown: list[int], max_width: int) -> Iterator[RichTable]:
        """Put as many columns into a table as the width takes."""
        room = max_width - LABEL_WIDTH - PADDING
        per_table = max(1, room // (CELL_WIDTH + PADDING))
        for start in range(0, len(shown), per_table):
            some = shown[start : start + per_table]
            width = max(CELL_WIDTH, room // len(some) - PADDING)
            table = _empty()
            table.add_column("", min_width=LABEL_WIDTH, no_wrap=True)
            for at in some:
                name = Text(broken(self.columns[at].text, width), overflow="fold")
                table.add_column(name, justify="right", min_width=CELL_WIDTH)
            self._fill(table, some, lambda label: f" {label}")
            yield table

    def _rows_compared(self, shown: list[int], max_width: int) -> Iterator[RichTable]:
        for spared in sorted((at for at in shown if self.columns[at].spared), key=self._spared_as):
            if self._room(max_width, shown) < self._least():
                shown.remove(spared)
        table = _empty()
        table.add_column(self.columns[0].text, overflow="fold")
        for at in shown:
            table.add_column(self.columns[at].text, justify="right", no_wrap=True)
        width = self._room(max_width, shown) - 1

        def fitting(label: str) -> str:
            if len(label) <= width:
                return label
            return broken(label, width + 1 - _INDENT).replace("\n", "\n" + " " * _INDENT)

        self._fill(table, shown, fitting)
        yield table

    def _fill(self, table: RichTable, shown: list[int], label_of: Callable[[str], str]) -> None:
        for section in self.sections:
            if section.title:
                table.add_row(Text(section.title, style="bold"))
            for row in section.rows:
                table.add_row(Text(f" {label_of(row.label)}"), *(_printed(row.cells[at - 1]) for at in shown))

    def _spared_as(self, at: int) -> int:
        return self.columns[at].spared

    def _room(self, width: int, shown: list[int]) -> int:
        """What these columns leave to the first."""
        rows = [row for section in self.sections for row in section.rows]
        taken = 0
        for at in shown:
            texts = [self.columns[at].text, *(text_of(row.cells[at - 1]) for row in rows)]
            taken += _GAP + max(map(cell_len, texts))
        return width - taken

    def _least(self) -> int:
        """What the titles, and the labels in their pieces, need."""
        labels = {row.label for section in self.sections for row in section.rows}
        pieces = [piece for label in labels for piece in broken(label, 1).split("\n")]
        titles = [len(section.title) for section in self.sections]
        return max(*titles, *(_INDENT + len(one) for one in pieces))


def text_of(cell: str | Cell) -> str:
    """The text of a cell without its mark."""
    return cell if isinstance(cell, str) else cell.text


def _empty() -> RichTable:
    return RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 0, 0, 1))


def _printed(cell: str | Cell) -> Text:
    if isinstance(cell, str) or cell.is_met is None:
        return Text(text_of(cell))
    return Text(cell.text, style="green" if cell.is_met else "red")
