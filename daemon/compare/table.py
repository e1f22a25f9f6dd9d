"""The result of a comparison in a terminal: policies as rows, in a section for each TBT target."""

from __future__ import annotations

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from pdmuxd.daemon.compare.rows import HEADINGS, sections
from pdmuxd.daemon.compare.schema import CompareDocument
from pdmuxd.daemon.replay.table import broken

SPARED = (7, 2)
"""Columns that a narrow terminal does without, in this order: SM time, the share of the best."""
_GAP = 2
"""Between two columns."""
_INDENT = 3
"""Of a name's second line."""


class ResultTable:
    """Prints a document, in 60 to 80 columns.

    Where there is no room for a policy's name it is broken between its pieces; where there is none for a
    piece, columns are left out.
    """

    def __init__(self, document: CompareDocument) -> None:
        self._sections = sections(document)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """As wide as there is room."""
        columns = list(range(1, len(HEADINGS)))
        for spared in SPARED:
            if self._room(options.max_width, columns) < self._least():
                columns.remove(spared)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 0, 0, 1))
        table.add_column(HEADINGS[0], overflow="fold")
        for column in columns:
            table.add_column(HEADINGS[column], justify="right", no_wrap=True)
        width = self._room(options.max_width, columns) - 1
        for section in self._sections:
            table.add_row(Text(section.title, style="bold"))
            for row in section.rows:
                name = row[0]
                if len(name) > width:
                    name = broken(name, width + 1 - _INDENT).replace("\n", "\n" + " " * _INDENT)
                table.add_row(Text(f" {name}"), *(Text(row[column]) for column in columns))
        yield table

    def _room(self, width: int, columns: list[int]) -> int:
        """What these columns leave to the first."""
        rows = [row for section in self._sections for row in section.rows]
        return width - sum(
            _GAP + max(cell_len(text) for text in (HEADINGS[column], *(row[column] for row in rows)))
            for column in columns
        )

    def _least(self) -> int:
        """What the titles, and the names in their pieces, need."""
        names = {row[0] for section in self._sections for row in section.rows}
        pieces = [piece for name in names for piece in broken(name, 1).split("\n")]
        return max(
            *(len(section.title) for section in self._sections), *(_INDENT + len(one) for one in pieces)
        )
