"""How long the engine has been silent, as far as this process was able to listen."""

from __future__ import annotations

from collections.abc import Callable

TICK_S = 0.25
"""How often silence is looked at."""


class Silence:
    """Counts the time without a message, but of each tick no more than twice its length.

    A daemon that was stopped, or whose machine was moved, wakes up with the engine's heartbeats unread: the
    time that it slept says nothing about the engine.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.silent_s = 0.0
        self._clock = clock
        self._ticked_s = clock()

    def heard(self) -> None:
        """The engine said something."""
        self.silent_s = 0.0

    def tick(self) -> None:
        """Call it every TICK_S."""
        now_s = self._clock()
        self.silent_s += min(now_s - self._ticked_s, 2 * TICK_S)
        self._ticked_s = now_s
