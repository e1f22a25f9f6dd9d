"""The wall clock, which may be set at any moment, and what must not follow it when it is."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from pdmuxd.daemon.process.duty import Duty

LOOK_EVERY_S = 5.0
TOLD_FROM_S = 1.0
"""A time service that only slews the clock moves it by less than a hundredth of this between two looks."""
TRUSTED_WITHIN_S = 86_400.0
JUMP_TOLD_S = 60.0
"""How long a jump is told as an alarm: seconds enough to be seen on screen and to be scraped."""

log = structlog.get_logger("pdmuxd.daemon")


def steady_clock() -> Callable[[], float]:
    """Unix time that never goes back: seconds since 1970 as of now, carried on by the monotonic clock.

    So windows and event times stay right among each other when the wall clock is corrected.
    """
    offset_s = time.time() - time.monotonic()
    return lambda: offset_s + time.monotonic()


class ClockWatch:
    """How far the wall clock was moved since the start: set, or left behind by a machine that slept."""

    def __init__(
        self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._start_s = self._seen_s = wall() - monotonic()
        self._jump: tuple[float, float] | None = None
        """(when it was seen, by how much) of the last jump; monotonic seconds."""

    @property
    def moved_s(self) -> float:
        """Seconds since the start, forward or (negative) back."""
        return self._wall() - self._monotonic() - self._start_s

    @property
    def is_trusted(self) -> bool:
        """Whether what is old by the wall clock may be deleted for good."""
        return abs(self.moved_s) < TRUSTED_WITHIN_S

    def jump(self) -> str | None:
        """What to tell of a jump in the last minute, or of one that is so large that nothing is deleted."""
        if self._jump is None:
            return None
        seen_s, by_s = self._jump
        if self.is_trusted and self._monotonic() - seen_s > JUMP_TOLD_S:
            return None
        more = "" if self.is_trusted else "; nothing old is deleted before a restart of the daemon"
        return f"the wall clock was set by {by_s:+.1f} s: days, budgets and keys' ends go by it{more}"

    def look(self) -> None:
        """Say so if it was moved since the last look."""
        now_s = self._wall() - self._monotonic()
        by_s, self._seen_s = now_s - self._seen_s, now_s
        if abs(by_s) >= TOLD_FROM_S:
            self._jump = self._monotonic(), by_s
            hint = "" if self.is_trusted else "nothing old is deleted before a restart of the daemon"
            log.warning("the wall clock was set", by_s=round(by_s, 1), **({"hint": hint} if hint else {}))


def duties(watch: ClockWatch) -> tuple[Duty, ...]:
    """Look every LOOK_EVERY_S."""

    async def look() -> None:
        watch.look()

    return (Duty(name="watching the clock", work=look, period_s=LOOK_EVERY_S),)
