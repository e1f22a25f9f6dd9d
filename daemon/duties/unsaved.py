"""Since when something could not be stored."""

from __future__ import annotations

import time


class Unsaved:
    """Told of each attempt to store, and of each that succeeded. Lives in the event loop."""

    def __init__(self) -> None:
        self._since_s: float | None = None
        """When the first attempt began that did not succeed; monotonic."""

    def seconds(self) -> float | None:
        """Tell for how long nothing could be stored, an attempt that goes on included; None if it was."""
        return None if self._since_s is None else time.monotonic() - self._since_s

    def tried(self) -> bool:
        """Note that an attempt begins; whether the one before had succeeded."""
        is_first = self._since_s is None
        if is_first:
            self._since_s = time.monotonic()
        return is_first

    def stored(self) -> None:
        """Note that it succeeded."""
        self._since_s = None
