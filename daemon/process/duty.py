"""What the daemon does by itself: one kind of thing, whatever it is for, and when it ran last."""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

from pdmuxd.controlplane.node.daemon_actions import DutyState
from pdmuxd.daemon.process.background import by_calendar, in_background, periodically


@dataclass(slots=True, kw_only=True, eq=False)
class Duty:
    """Work between `start` and the end of the stack that it is given; `at_end` is done then."""

    name: str
    """What it does, as `pdmuxd status` says it."""
    work: Callable[[], Awaitable[object]]
    period_s: float | None = None
    """It is done again and again; None: it goes on, or is done once."""
    by_wall_clock: bool = False
    """For what goes by dates (`by_calendar`)."""
    at_end: Callable[[], Awaitable[object] | None] | None = None
    is_alone: bool = False
    """One daemon alone may do it: it ends when another daemon has taken over."""
    _began_s: float | None = None
    _failed: str | None = None

    def start(self, stack: AsyncExitStack) -> None:
        """Do it until `stack` is left."""
        if self.at_end is not None:
            stack.push_async_callback(self._end, self.at_end)
        if self.period_s is None:
            in_background(stack, self._run(), name=self.name)
        elif self.by_wall_clock:
            by_calendar(stack, self._run, period_s=self.period_s, name=self.name)
        else:
            periodically(stack, self._run, period_s=self.period_s, name=self.name)

    def state(self) -> DutyState:
        """How it is."""
        return DutyState(
            name=self.name,
            period_s=self.period_s,
            last_run_s=self._began_s,
            failed=self._failed,
            is_alone=self.is_alone,
        )

    async def _run(self) -> None:
        self._began_s = time.time()
        try:
            await self.work()
        except Exception as error:
            self._failed = f"{type(error).__name__}: {error}"
            raise
        self._failed = None

    async def _end(self, at_end: Callable[[], Awaitable[object] | None]) -> None:
        ended = at_end()
        if inspect.isawaitable(ended):
            await ended
