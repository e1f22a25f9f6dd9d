"""When the engine said nothing though it should have served: a process that hangs, or was stopped."""

from __future__ import annotations

from collections import deque

SILENT_S = 2.0
"""Eight heartbeats; from then on new requests are refused."""
_KEPT = 50


class Silences:
    """The last ones. Written in one thread; `seconds` may be called in any."""

    def __init__(self) -> None:
        self._kept: deque[tuple[float, float]] = deque(maxlen=_KEPT)
        self._looked_s: float | None = None

    def look(self, heard_s: float | None, now_s: float, *, is_serving: bool) -> None:
        """The engine was last heard then; asked each second. After a time in which nobody looked, the daemon
        itself stood still, and what the engine said meanwhile is still to be read."""
        looked_s, self._looked_s = self._looked_s, now_s
        if looked_s is None or now_s - looked_s > SILENT_S:
            return
        if not is_serving or heard_s is None or now_s - heard_s <= SILENT_S:
            return
        if self._kept and self._kept[-1][0] == heard_s:
            self._kept.pop()
        self._kept.append((heard_s, now_s))

    def seconds(self, start_s: float, end_s: float) -> float:
        """Seconds for which it was silent in that time."""
        return sum(max(0.0, min(end_s, end) - max(start_s, begin)) for begin, end in tuple(self._kept))
