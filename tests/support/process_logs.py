"""The logs of whole processes: their ends go into the report of a test that fails."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable
from pathlib import Path

MOST_LINES = 60
MOST_BYTES = 16 * 1024
"""Of each log: a report must stay readable."""

_watched: dict[Path, Callable[[], bool]] = {}


def watch(path: Path, is_up: Callable[[], bool]) -> None:
    """Show the end of this log with the tests that fail from now on, until its process has ended."""
    _watched[path] = is_up


def forget_ended() -> None:
    """Before a test: what ended in an earlier one says nothing about this one."""
    for path, is_up in tuple(_watched.items()):
        if not is_up():
            del _watched[path]


def ends() -> list[tuple[str, str]]:
    """A title and the last lines, for each log that is there."""
    return [(f"end of {path}", end(path)) for path in _watched if path.is_file()]


def end(path: Path) -> str:
    """The last lines of a log."""
    with path.open("rb") as log:
        with contextlib.suppress(OSError):  # it is shorter
            log.seek(-MOST_BYTES, io.SEEK_END)
        lines = log.read().decode(errors="replace").splitlines()
    return os.linesep.join(lines[-MOST_LINES:])
