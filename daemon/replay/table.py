"""The result in a terminal: one column per policy, metrics as rows, readable at 80 columns."""

from __future__ import annotations

import re

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from pdmuxd.daemon.replay.document import ReplayDocument
from pdmuxd.daemon.replay.rows import Section, sections

_PIECES = re.compile(r"[^/:,]*[/:,]|[^/:,]+")
LABEL_WIDTH = 22
CELL_WIDTH = 12
PADDING = 2


def broken(name: str, width: int) -> str:
    """A policy's specification on lines of at most `width`, broken behind `/`, `:` and `,`; a piece that is
    longer stays whole."""
    lines = [""]
    for piece in _PIECES.findall(name):
        if lines[-1] and len(lines[-1]) + len(piece) > width:
            lines.append("")
        lines[-1] += piece
    return "\n".join(lines)


class ResultTable:
    """Prints a document; more policies than fit side by side follow in further tables."""

    def __init__(self, document: ReplayDocument) -> None:
        self._policies = [policy.policy for policy in document.policies]
        self._sections = sections(document)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """As many policies a table as the width takes."""
        room = options.max_width - LABEL_WIDTH - PADDING
        per_table = max(1, room // (CELL_WIDTH + PADDING))
        for start in range(0, len(self._policies), per_table):
            shown = slice(start, start + per_table)
            width = max(CELL_WIDTH, room // len(self._policies[shown]) - PADDING)
            yield _table(self._policies, self._sections, shown, width)


def _table(policies: list[str], rows: tuple[Section, ...], shown: slice, width: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 0, 0, 1))
    table.add_column("", min_width=LABEL_WIDTH, no_wrap=True)
    for policy in policies[shown]:
        table.add_column(Text(broken(policy, width), overflow="fold"), justify="right", min_width=CELL_WIDTH)
    for section in rows:
        table.add_row(Text(section.title, style="bold"))
        for row in section.rows:
            table.add_row(Text(f"  {row.label}"), *(Text(cell) for cell in row.cells[shown]))
    return table
