"""Answers to wrong keys, late and few at once.

With a timer for each, all that came at the same time were answered at the same time: 4,000 in one turn of the
loop took 0.4 s, for which everybody else waited.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from itertools import islice

from pdmuxd.daemon.httpd.pools import Connection

_AT_ONCE = 8
"""As many as connections are accepted in one turn."""
_PAUSE_S = 0.01
"""Between turns that answer: at most 800 answers a second, a tenth of a core."""


class LateAnswers:
    """Connections whose answer is due in `delay_s`, or later where many wait; first come, first answered."""

    def __init__(self, delay_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._delay_s = delay_s
        self._clock = clock
        self._waiting: dict[Connection, tuple[float, Callable[[], None]]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, connection: Connection, answer: Callable[[], None]) -> None:
        """Call `answer` when its time has come."""
        self._waiting[connection] = (self._clock() + self._delay_s, answer)
        self._wait()

    def discard(self, connection: Connection) -> None:
        """A connection is closed, or has another request."""
        self._waiting.pop(connection, None)

    def _wait(self) -> None:
        if self._timer is None and self._waiting:
            due_s, _ = next(iter(self._waiting.values()))
            in_s = max(_PAUSE_S, due_s - self._clock())
            self._timer = asyncio.get_running_loop().call_later(in_s, self._answer)

    def _answer(self) -> None:
        self._timer = None
        now_s = self._clock()
        for connection, (due_s, answer) in tuple(islice(self._waiting.items(), _AT_ONCE)):
            if due_s > now_s:
                break
            self.discard(connection)
            answer()
        self._wait()
