"""Azure's published CSV: a header, then a timestamp and two token counts a line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

from pdmuxd.daemon.replay.formats.lines import Line
from pdmuxd.daemon.replay.trace import MAX_TOKENS, TraceRequest, line_error

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")

_COUNT = re.compile(r"[0-9]{1,18}")
# The 2023 files have seven fractional digits and no zone, those of 2024 up to six and +00:00.
_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:\+00:00)?", re.ASCII)


def read_azure(path: Path, lines: Iterable[Line]) -> Iterator[TraceRequest]:
    """Yield the requests of an Azure trace; arrivals count from the first row.

    Columns may stand in any order. Requests share no prefixes and belong to the tenant `default`.
    Raises: TraceError for a wrong header or a malformed row.
    """
    rows = iter(lines)
    header = next(rows)
    when, context, generated = _columns(path, header)
    start: datetime | None = None
    for line in rows:
        fields = line.data.decode().split(",")
        if len(fields) != len(COLUMNS):
            what = "the last line is cut short: " if not line.ended else ""
            raise line_error(
                path, line.number, f"{what}{len(fields)} fields; allowed are 3: {', '.join(COLUMNS)}"
            )
        second, fraction_s = _timestamp(path, line.number, fields[when])
        start = start or second
        yield TraceRequest(
            line=line.number,
            arrival_s=(second - start).total_seconds() + fraction_s,
            tenant="default",
            input_tokens=_tokens(path, line.number, "ContextTokens", fields[context]),
            output_tokens=_tokens(path, line.number, "GeneratedTokens", fields[generated]),
        )


def _columns(path: Path, header: Line) -> tuple[int, int, int]:
    names = [name.strip() for name in header.data.decode().split(",")]
    missing = [name for name in COLUMNS if name not in names]
    unknown = [name for name in names if name not in COLUMNS]
    if missing or unknown or len(names) != len(COLUMNS):
        parts = [f"missing column {', '.join(missing)}"] if missing else []
        parts += [f"unknown column {', '.join(repr(name[:40]) for name in unknown[:3])}"] if unknown else []
        parts = parts or ["a column is named twice"]
        raise line_error(path, header.number, f"{'; '.join(parts)}; allowed are {','.join(COLUMNS)}")
    return names.index(COLUMNS[0]), names.index(COLUMNS[1]), names.index(COLUMNS[2])


def _timestamp(path: Path, number: int, text: str) -> tuple[datetime, float]:
    """The whole second, and the fraction: a datetime has no room for seven digits."""
    match = _TIMESTAMP.fullmatch(text)
    try:
        if match:
            second = datetime.fromisoformat(match[1])
            return second, float(f"0.{match[2]}") if match[2] else 0.0
    except ValueError:  # such as month 13
        pass
    raise line_error(
        path, number, f"TIMESTAMP is {text[:40]!r}; allowed is a UTC time such as 2023-11-16 18:15:46.6805900"
    )


def _tokens(path: Path, number: int, column: str, text: str) -> int:
    if _COUNT.fullmatch(text) and 1 <= int(text) <= MAX_TOKENS:
        return int(text)
    raise line_error(path, number, f"{column} is {text[:40]!r}; allowed are 1 to {MAX_TOKENS:,}")
