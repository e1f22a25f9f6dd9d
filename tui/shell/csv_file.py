"""A table as CSV, for a spreadsheet or a message to somebody."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from textual.app import App

from pdmuxd.tui.show.formats import NONE

FORMULA = ("=", "+", "-", "@")
"""A spreadsheet would run a cell that begins with one of these as a formula."""


def csv_text(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Headings and rows as CSV; what is not known is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(headings)
    writer.writerows([[_value(cell) for cell in row] for row in rows])
    return out.getvalue()


def deliver_csv(
    app: App[object], name: str, headings: Sequence[str], rows: Sequence[Sequence[str]], now: datetime | None
) -> None:
    """Write it to the folder that the console was started in; a browser downloads it."""
    stamp = f"-{now:%Y%m%d-%H%M%S}" if now is not None else ""
    file = f"pdmuxd-{name}{stamp}.csv"
    text = io.StringIO(csv_text(headings, rows))
    app.deliver_text(text, save_directory=str(Path.cwd()), save_filename=file, mime_type="text/csv")
    app.notify(file, title=f"{len(rows)} rows as CSV", markup=False)


def _value(cell: str) -> str:
    text = cell.strip()
    if text == NONE:
        return ""
    return (
        f"'{text}" if text.startswith(FORMULA) and not text.lstrip("+-").replace(".", "").isdigit() else text
    )
