"""Numbered lines of a file, read lazily, with everything that is no text refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pdmuxd.daemon.replay.trace import line_error
from pdmuxd.engine.core.errors import TraceError

MAX_LINE_BYTES = 8 * 1024 * 1024
"""A line of a 10M-token prompt with one id per 16 tokens stays below; a binary file does not."""

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its end."""

    number: int
    data: bytes
    ended: bool
    """False only for a last line without a line end, which may have been cut short."""


def read_lines(path: Path) -> Iterator[Line]:
    """Yield the lines of `path`; CRLF and a byte order mark are accepted.

    Raises: TraceError for a file that cannot be read, an empty file, an empty line, a line over
    MAX_LINE_BYTES, or bytes that are not UTF-8.
    """
    number = 0
    try:
        with path.open("rb") as file:
            while raw := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                yield _line(path, number, raw)
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from None
    if number == 0:
        raise TraceError(f"{path}: the file is empty; a trace has at least one request")


def _line(path: Path, number: int, raw: bytes) -> Line:
    if len(raw) > MAX_LINE_BYTES:
        raise line_error(path, number, f"the line is longer than {MAX_LINE_BYTES:,} bytes")
    ended = raw.endswith(b"\n")
    data = raw.rstrip(b"\r\n")
    if number == 1:
        data = data.removeprefix(_BOM)
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        bad = data[error.start]
        raise line_error(path, number, f"byte {error.start + 1} (0x{bad:02x}) is not UTF-8 text") from None
    if not data.strip():
        raise line_error(path, number, "the line is empty; each line holds one request")
    return Line(number, data, ended)
