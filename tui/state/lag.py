"""How far the screen is behind the daemon, and how many frames are left out.

No event is left out: each one changes the state as it comes. The state is painted as often as the machine can
manage, and if that is late the screen says so.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime

INTERVAL_S = 0.1
SLOWEST_S = 1.0
LATE_S = 0.25
"""If the screen is further behind than this, it says so."""
WINDOW_S = 60.0
"""The offset between the two clocks is taken from the events of so much time, since clocks drift apart."""


class Delay:
    """The delay of events. The two clocks need not agree: the fastest of the latest events counts as not
    delayed."""

    def __init__(self) -> None:
        self._fastest: deque[tuple[float, float]] = deque()
        """(received_s, offset) with growing offsets: the first is the least in the window."""
        self._last_s = 0.0

    def event(self, at: datetime, received_s: float) -> None:
        """An event of the instant `at` was taken in at `received_s`."""
        offset = received_s - at.timestamp()
        while self._fastest and self._fastest[-1][1] >= offset:
            self._fastest.pop()
        self._fastest.append((received_s, offset))
        while self._fastest[0][0] < received_s - WINDOW_S:
            self._fastest.popleft()
        self._last_s = offset - self._fastest[0][1]

    def forget(self) -> None:
        """Begin anew: another connection may have another clock."""
        self._fastest.clear()
        self._last_s = 0.0

    @property
    def behind_s(self) -> float:
        """Seconds that the last event was later than the fastest."""
        return self._last_s


class FramePacer:
    """Decides at every tick of the painter's timer whether a frame is painted."""

    def __init__(self) -> None:
        self._interval_s = INTERVAL_S
        self._due_s: float | None = None
        self._last_tick_s: float | None = None
        self.painted = 0
        self.dropped = 0
        self.late_s = 0.0
        """How late the last tick came: the loop was busy that long."""

    def tick(self, now_s: float) -> bool:
        """Whether to paint now. Ticks that did not come at all are dropped frames too."""
        if self._last_tick_s is not None:
            self.late_s = max(0.0, now_s - self._last_tick_s - INTERVAL_S)
            self.dropped += int(self.late_s / INTERVAL_S + 1e-6)
            self._adapt()
        self._last_tick_s = now_s
        if self._due_s is not None and now_s < self._due_s - INTERVAL_S / 2:
            self.dropped += 1
            return False
        self._due_s = now_s + self._interval_s
        self.painted += 1
        return True

    @property
    def interval_s(self) -> float:
        """Seconds between two frames at present."""
        return self._interval_s

    def _adapt(self) -> None:
        """Paint half as often while ticks come late, and slowly more often again."""
        if self.late_s > INTERVAL_S / 2:
            self._interval_s = min(SLOWEST_S, self._interval_s * 2)
        else:
            self._interval_s = max(INTERVAL_S, self._interval_s * 0.9)
