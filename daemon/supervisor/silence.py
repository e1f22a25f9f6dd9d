"""How long the engine has been silent, as far as this process was able to listen, or has stood still."""

from __future__ import annotations

from collections.abc import Callable

from pdmuxd.engine.link.messages import EngineStats

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


class Standstill:
    """Counts the time in which an engine has requests and makes nothing of them, by its own heartbeats.

    A stuck stream, or two that wait for each other, beside a loop that still turns.
    """

    def __init__(self) -> None:
        self.stuck_s = 0.0
        self._made: tuple[int, int, int] | None = None
        self._uptime_s = 0.0

    def heard(self, stats: EngineStats) -> None:
        """A heartbeat came; its counters are totals."""
        made = (stats.steps, stats.output_tokens, stats.prompt_tokens)
        has_work = stats.running + stats.prefilling + stats.waiting > 0
        if has_work and made == self._made:
            # By the engine's clock: what the daemon slept, or had not read yet, does not count.
            self.stuck_s += max(0.0, stats.uptime_s - self._uptime_s)
        else:
            self.stuck_s = 0.0
        self._made, self._uptime_s = made, stats.uptime_s
