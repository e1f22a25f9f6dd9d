"""The file that an engine writes to, bounded in size, and its last words."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

DEFAULT_MAX_BYTES = 16 * 2**20
_TAIL_BYTES = 8192
_TEXT_BYTES = 2**20
_TAIL_LINES = 3
_LINE_LENGTH = 500


class EngineLog:
    """`engine.log`, and `engine.log.1` with what went before.

    The engine holds the file itself and not a pipe to the daemon: it must go on when the daemon dies. So
    the file is turned over by copying and truncating; lines written between the two are lost.
    """

    def __init__(self, path: Path, *, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._start = 0

    def open(self) -> int:
        """A descriptor for a new engine, which appends; the caller closes it."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._start = os.fstat(descriptor).st_size
        return descriptor

    @property
    def start_bytes(self) -> int:
        """Where in the file this engine began."""
        return self._start

    def go_on(self, start_bytes: int) -> None:
        """The engine that began at `start_bytes` is another daemon's that is taken over."""
        self._start = start_bytes

    def bound(self) -> bool:
        """Turn the file over if it is too large; blocks while copying. True if it was.

        Where there is no room for a copy the file is cut all the same, which makes some. Raises: OSError.
        """
        if not self.path.exists() or self.path.stat().st_size <= self._max_bytes:
            return False
        older = self.path.with_name(self.path.name + ".1")
        try:
            shutil.copyfile(self.path, older)
        except OSError:
            older.unlink(missing_ok=True)
        os.truncate(self.path, 0)
        self._start = 0
        return True

    def text(self, max_bytes: int = _TEXT_BYTES) -> str:
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(min(self._start, size), size - max_bytes))
                return file.read().decode(errors="replace")
        except FileNotFoundError:
            return ""

    def last_words(self) -> str:
        """The last lines that this engine wrote, as one line."""
        lines = [line.strip() for line in self.text(_TAIL_BYTES).splitlines() if line.strip()]
        return " | ".join(lines[-_TAIL_LINES:])[-_LINE_LENGTH:] or "nothing"
