"""What waits for one client: written at once where it can be, else taken by the task that writes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Outbox:
    """For one event loop and one task that `take`s.

    While that task waits here, nothing is on its way to the client, and `deliver` may write past it: a token
    costs no switch between tasks then.
    """

    __slots__ = ("_failure", "_is_closed", "_parts", "_taken", "_waiter", "_write", "held_bytes")

    def __init__(self) -> None:
        self.held_bytes = 0
        self._parts: list[bytes] = []
        self._write: Callable[[bytes], bool] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._taken: asyncio.Future[None] | None = None
        self._failure: BaseException | None = None
        self._is_closed = False

    def use_writer(self, write: Callable[[bytes], bool] | None) -> None:
        """From now on `write` may be given what is new; False of it: the client takes nothing now.

        With None nobody but the task writes, and nothing here holds whom `write` belongs to.
        """
        self._write = write

    def put(self, part: bytes) -> bool:
        """Whole events, to be delivered soon; whether nothing else waited."""
        parts = self._parts
        parts.append(part)
        self.held_bytes += len(part)
        return len(parts) == 1

    def deliver(self) -> None:
        """Write what waits, or wake the task that does. Nothing if that is writing: it comes back here."""
        waiter, parts = self._waiter, self._parts
        if waiter is None or waiter.done() or not parts:
            return
        if self._write is None or not self._write(parts[0] if len(parts) == 1 else b"".join(parts)):
            waiter.set_result(None)
            return
        parts.clear()
        self._empty()

    def close(self, failure: BaseException | None = None) -> None:
        """Nothing more comes, because of `failure` if there is one."""
        self._failure = failure
        self._is_closed = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def take(self) -> bytes:
        """What is new for the client; empty at the end. Raises: the failure that `close` was given."""
        while not self._parts:
            if self._failure is not None:
                raise self._failure
            if self._is_closed:
                return b""
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        parts, self._parts = self._parts, []
        self._empty()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def taken(self) -> None:
        """Until what waits has gone to the client."""
        self._taken = asyncio.get_running_loop().create_future()
        await self._taken

    def _empty(self) -> None:
        self.held_bytes = 0
        if self._taken is not None and not self._taken.done():
            self._taken.set_result(None)
