"""Requests do their work one by one, each in a turn of the event loop of its own.

To take, forward or account a request costs about a millisecond of the loop. Those that come or end with one
step of the engine would all be served in the same turn, and the next tokens of all other answers would wait
for the sum. Between two turns the loop reads the engine's tokens and writes them.
"""

from __future__ import annotations

import asyncio
from collections import deque


class OneByOne:
    """Queue of one event loop; requests are served in the order in which they ask."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_due = False

    async def turn(self) -> None:
        """Wait for a turn in which no other request works; one turn later at the earliest."""
        loop = asyncio.get_running_loop()
        mine = loop.create_future()
        self._waiting.append(mine)
        if not self._is_due:
            self._is_due = True
            loop.call_soon(self._begin_next, loop)
        await mine

    def _begin_next(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._waiting:
            mine = self._waiting.popleft()
            if not mine.done():  # its task was not cancelled
                mine.set_result(None)
                break
        self._is_due = bool(self._waiting)
        if self._is_due:
            loop.call_soon(self._begin_next, loop)
