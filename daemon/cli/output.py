"""Tables for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

import typer
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

PIPE_COLUMNS = 4000
"""Wider than any line that is printed: a pipe's reader folds lines itself."""
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, the same as the REST interface answers.")]


def print_json(document: object) -> None:
    """Print one JSON document."""
    typer.echo(json.dumps(document, indent=2))


def print_table(rows: Sequence[Mapping[str, object]], *, empty: str) -> None:
    """Print rows under the headings of the first, or the sentence `empty` when there are none.

    Cells are text, not markup, and are neither cut off nor wrapped: headings give way first, between words;
    where a terminal is still too narrow, each row is a record of a field a line. A pipe is as wide as needed.
    """
    if not rows:
        typer.echo(empty)
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    texts = [[_cell(value) for value in row.values()] for row in rows]
    for number, heading in enumerate(rows[0]):
        widest = max(cell_len(line) for row in texts for line in row[number].plain.split("\n"))
        table.add_column(heading, min_width=max(widest, *map(cell_len, heading.split()), 1))
    for row in texts:
        table.add_row(*row)
    console = standard_output()
    if Console(width=PIPE_COLUMNS).measure(table).minimum <= console.width:
        console.print(table)
        return
    for number, record in enumerate(rows):
        if number:
            console.print()
        print_fields(record)


def print_fields(fields: Mapping[str, object]) -> None:
    """Print one thing, a field a line. A long text goes on below itself, between words."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in fields.items():
        grid.add_row(Text(name, style="bold"), _cell(value))
    standard_output().print(grid)


def standard_output() -> Console:
    """A terminal as it is; a pipe or a file as wide as the widest line."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(width=PIPE_COLUMNS, highlight=False)


def print_secret(secret: str) -> None:
    """Print what is shown once. Not in a table: a secret that is folded cannot be copied."""
    typer.echo(secret)
    typer.echo("Keep it now: it is stored as a hash only and is never shown again.", err=True)


def instant(text: str | None) -> str:
    """An instant of the REST interface, in this machine's time, to the second."""
    if text is None:
        return ""
    return f"{datetime.fromisoformat(text).astimezone():%Y-%m-%d %H:%M:%S}"


def milliseconds(value: float) -> str:
    """Milliseconds without a needless fraction."""
    return f"{value:.15g} ms"


def percent(ratio: float) -> str:
    """0.999 as 99.9%."""
    return f"{ratio * 100:.6g}%"


def _cell(value: Any) -> Text:  # noqa: ANN401 - anything can be shown
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    return Text(str(value))
