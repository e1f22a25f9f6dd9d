"""Open a trace of any known format; the first line tells which, if it is one of ours.

Other packages bring formats by entry points of the group `pdmuxd.trace_formats`: a name, and a function from
the path and its lines to requests. They are read where `--format` names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import entry_points
from itertools import chain
from pathlib import Path

import msgspec

from pdmuxd.daemon.replay.formats import azure, mooncake, native
from pdmuxd.daemon.replay.formats.lines import Line, read_lines
from pdmuxd.daemon.replay.trace import TraceFormat, TraceRequest, line_error
from pdmuxd.engine.core.errors import TraceError

GROUP = "pdmuxd.trace_formats"
Reader = Callable[[Path, Iterable[Line]], Iterator[TraceRequest]]

_READERS: dict[str, Reader] = {
    TraceFormat.MOONCAKE: mooncake.read_mooncake,
    TraceFormat.AZURE: azure.read_azure,
    TraceFormat.NATIVE: native.read_native,
}


def known_formats() -> list[str]:
    """The names of all formats: ours first, then those of other packages."""
    return [*_READERS, *sorted(entry_points(group=GROUP).names - set(_READERS))]


def open_trace(path: Path, trace_format: str | None = None) -> tuple[str, Iterator[TraceRequest]]:
    """The trace's format and its requests in file order, read as they are asked for.

    Raises: TraceError at once if the format is unknown or cannot be told; the iterator raises it at the first
    line that cannot be read, or at the end if there was no request.
    """
    reader = None if trace_format is None else _reader(trace_format)
    lines = read_lines(path)
    first = next(lines)
    found = trace_format or _detect(path, first)
    requests = (reader or _READERS[found])(path, chain((first,), lines))
    return found, _at_least_one(path, requests)


def _reader(name: str) -> Reader:
    if name in _READERS:
        return _READERS[name]
    points = tuple(entry_points(group=GROUP, name=name))
    if not points:
        raise TraceError(f"unknown trace format {name!r}; known are {', '.join(known_formats())}")
    if len(points) > 1:
        raise TraceError(
            f"trace format {name!r} is in several packages: {', '.join(p.value for p in points)}"
        )
    try:
        reader: Reader = points[0].load()
    except Exception as error:
        raise TraceError(f"trace format {name!r} ({points[0].value}) cannot be loaded: {error}") from error
    return reader


def _at_least_one(path: Path, requests: Iterator[TraceRequest]) -> Iterator[TraceRequest]:
    empty = True
    for request in requests:
        empty = False
        yield request
    if empty:
        raise TraceError(f"{path}: no request after the header; a trace has at least one")


def _detect(path: Path, first: Line) -> TraceFormat:
    if not first.data.lstrip().startswith(b"{"):
        if b"," in first.data:
            return TraceFormat.AZURE  # its reader names the wrong columns
        raise line_error(path, first.number, f"unknown format; {_known_formats()}")
    try:
        row = msgspec.json.decode(first.data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise line_error(path, first.number, f"not a JSON object ({error}); {_known_formats()}") from None
    if native.FIELDS & row.keys():
        return TraceFormat.NATIVE
    if mooncake.FIELDS & row.keys():
        return TraceFormat.MOONCAKE
    raise line_error(path, first.number, f"no known field; {_known_formats()}")


def _known_formats() -> str:
    return (
        "allowed first lines are a Mooncake JSON object with timestamp, our own with arrival_ms, "
        "or the header TIMESTAMP,ContextTokens,GeneratedTokens"
    )
