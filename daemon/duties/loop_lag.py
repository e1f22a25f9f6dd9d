"""How late the event loop is: everything that the daemon reads or writes waits as long."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

from prometheus_client import Histogram

from pdmuxd.daemon.process.duty import Duty

LOOK_EVERY_S = 0.05
LATE_S = 0.1
"""What probes and operators are promised: a turn that took longer broke it.
Source: docs/measurements/reliability.md."""
WINDOW_S = 10.0
LATE_RATIO = 0.1
"""The share of the window that late turns take when the loop counts as late: one turn of a second, or ten of
a tenth of it. A full collection of garbage or a burst of logins takes less."""


class LoopLag:
    """Asks to be called every LOOK_EVERY_S and keeps how much later that was."""

    def __init__(self, observed: Histogram, clock: Callable[[], float] = time.monotonic) -> None:
        self._observed = observed
        self._clock = clock
        self._late: deque[tuple[float, float]] = deque()
        """(end, lag) of late turns within the window, oldest first."""

    def add(self, lag_s: float) -> None:
        self._observed.observe(max(0.0, lag_s))
        now_s = self._clock()
        if lag_s >= LATE_S:
            self._late.append((now_s, lag_s))
        while self._late and now_s - self._late[0][0] > WINDOW_S:
            self._late.popleft()

    def late_s(self) -> tuple[float, float]:
        """What late turns took within the window, together and the longest of them."""
        now_s = self._clock()
        lags = [lag_s for end_s, lag_s in tuple(self._late) if now_s - end_s <= WINDOW_S]
        return sum(lags), max(lags, default=0.0)

    async def watch(self) -> None:
        while True:
            due_s = self._clock() + LOOK_EVERY_S
            await asyncio.sleep(LOOK_EVERY_S)
            self.add(self._clock() - due_s)


def duties(lag: LoopLag) -> tuple[Duty, ...]:
    """Look all the time."""
    return (Duty(name="watching the event loop", work=lag.watch),)
