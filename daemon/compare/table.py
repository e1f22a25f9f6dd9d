"""The result of a comparison in a terminal: policies as rows, in a section for each TBT target."""

from __future__ import annotations

from rich import box
from rich.table import Table
from rich.text import Text

from pdmuxd.daemon.compare.rows import HEADINGS, sections
from pdmuxd.daemon.compare.schema import CompareDocument


def result_table(document: CompareDocument) -> Table:
    """Fits 80 columns unless a policy's name is long."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 0, 0, 1))
    table.add_column(HEADINGS[0], overflow="fold")
    for heading in HEADINGS[1:]:
        table.add_column(heading, justify="right", no_wrap=True)
    for section in sections(document):
        table.add_row(Text(section.title, style="bold"))
        for name, *cells in section.rows:
            table.add_row(Text(f" {name}"), *(Text(cell) for cell in cells))
    return table
