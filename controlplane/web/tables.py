"""Tables of pages: rows as they are read, and the same rows as CSV by `?csv=NAME` on the page's own address.

So a table's file has the filters, the time and the rule of access that its page has.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import Query
from markupsafe import Markup, escape
from starlette.responses import Response

from pdmuxd.controlplane.api.usage import CSV, csv_cell
from pdmuxd.controlplane.web.rendering import HEADERS, moment
from pdmuxd.engine.core.errors import InvalidValueError
from pdmuxd.tui.show import formats

CSV_NAME_MAX = 40
CsvName = Annotated[
    str, Query(alias="csv", max_length=CSV_NAME_MAX, description="Answer with this table of the page as CSV.")
]
Show = Callable[[Any], object]


@dataclass(frozen=True, slots=True)
class Link:
    """A cell that leads to another page; in CSV it is its text."""

    text: object
    """A value of its column."""
    address: str


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `name` heads it in CSV, where values have the unit that it names."""

    name: str
    title: str
    show: Show = str
    kind: Literal["", "n", "long"] = ""
    """`n` is to the right, `long` is broken into lines."""
    unknown: object = formats.NONE
    """What is read where the value is None."""

    def text(self, value: object) -> object:
        return self.unknown if value is None else self.show(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of values, in the order of the columns."""

    name: str
    title: str
    note: str = ""
    columns: Sequence[Column]
    rows: Sequence[Sequence[object]]
    empty: str
    """The sentence that stands where there is no row."""
    next_address: str | None = None
    """Where the rows behind these are."""
    next_text: str = "Older"

    def cells(self) -> Iterator[Markup]:
        """The cells of each row as HTML; a template takes four times as long for a thousand of them."""
        kinds = [f' class="{column.kind}"' if column.kind else "" for column in self.columns]
        for row in self.rows:
            first, *others = (
                f"{kind}>{_in_html(column, value)}"
                for kind, column, value in zip(kinds, self.columns, row, strict=True)
            )
            others = [f"<td{each}</td>" for each in others]
            yield Markup(f'<th scope="row"{first}</th>{"".join(others)}')  # noqa: S704 - texts are escaped

    def csv(self) -> str:
        """A line per row under a line of names."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(column.name for column in self.columns)
        for row in self.rows:
            writer.writerow(_in_csv(value) for value in row)
        return text.getvalue()


def long(name: str, title: str) -> Column:
    """A sentence."""
    return Column(name, title, kind="long")


def when(name: str, title: str) -> Column:
    """An instant."""
    return Column(name, title, moment)


def yes_no(name: str, title: str) -> Column:
    """True or false."""
    return Column(name, title, lambda value: "yes" if value else "no")


def _number(show: Show, name: str, title: str) -> Column:
    return Column(name, title, show, "n")


def _seconds(value_ms: float | None) -> str:
    """Format seconds that may add up to hours."""
    return formats.rate(None if value_ms is None else value_ms / 1000)


count = partial(_number, formats.count)
rate = partial(_number, formats.rate)
ms = partial(_number, formats.ms)
of_ms_in_s = partial(_number, _seconds)
ratio = partial(_number, formats.ratio)
share = partial(_number, partial(formats.percent, digits=1))
plain = partial(_number, formats.plain)


def plain_table(name: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """One that a page draws by itself; only its CSV is made of this."""
    return Table(name=name, title=name, columns=[Column(each, each) for each in columns], rows=rows, empty="")


def csv_of(tables: Sequence[Table], name: str, *, file: str) -> Response:
    """A table of a page as a file. Raises: InvalidValueError if the page has no such table."""
    found = next((table for table in tables if table.name == name), None)
    if found is None:
        allowed = ", ".join(table.name for table in tables) or "none"
        raise InvalidValueError("csv", f"csv is {name!a}; this page has the tables {allowed}")
    sent = f'attachment; filename="{file}-{name}.csv"'
    return Response(found.csv(), media_type=CSV, headers={**HEADERS, "Content-Disposition": sent})


def _in_html(column: Column, value: object) -> str:
    if isinstance(value, Link):
        return f'<a href="{escape(value.address)}">{escape(column.text(value.text))}</a>'
    return escape(column.text(value))


def _in_csv(value: object) -> object:
    if isinstance(value, Link):
        value = value.text
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat()
    return csv_cell(value if isinstance(value, (str, int, float, bool)) else str(value))
