"""What waits for one client: written at once where it can be, else taken by the task that writes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Protocol


class Writer(Protocol):
    """Writes to one client, past the task that does."""

    @property
    def write(self) -> Callable[[bytes], None]:
        """Write what `frame` made."""

    def frame(self, events: bytes) -> bytes | None:
        """Whole events as they are written; None: the client takes nothing now."""

    def wrote(self, at_s: float) -> None:
        """Note that they have been written, at this time of the monotonic clock."""


def deliver(outboxes: Iterable[Outbox]) -> float:
    """Write what waits in each, or wake the task that does; the seconds that this took.

    All is made ready before the first is written, and accounted for after the last one: what runs in between
    is little, and finds itself in the processor's caches again when the kernel returns from a write.
    """
    clock, times = time.monotonic, []
    begin_s = clock()
    ready = []
    for outbox in outboxes:
        made = outbox.made_ready()
        if made is not None:
            outbox.written_s = begin_s
            ready.append(made)
    for writer, framed in ready:
        writer.write(framed)
        times.append(clock())
    for (writer, _), at_s in zip(ready, times, strict=True):
        writer.wrote(at_s)
    return times[-1] - begin_s if times else 0.0


class Outbox:
    """Holds what is to be sent, for one event loop and one task that `take`s.

    While that task waits here, nothing is on its way to the client, and `deliver` may write past it: a token
    costs no switch between tasks then.
    """

    __slots__ = (
        *("_failure", "_is_closed", "_parts", "_taken", "_waiter", "_writer", "held_bytes"),
        *("held_steps", "patience_s", "written_s"),
    )

    def __init__(self) -> None:
        self.held_bytes = 0
        self.written_s = 0.0
        """When it was last written past the task; what the task writes is not held."""
        self.patience_s = 0.0
        """So long after that the next part may be written at the latest; 0: no part is held."""
        self.held_steps = 0
        """For which its parts have waited."""
        self._parts: list[bytes] = []
        self._writer: Writer | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._taken: asyncio.Future[None] | None = None
        self._failure: BaseException | None = None
        self._is_closed = False

    def use_writer(self, writer: Writer | None) -> None:
        """Let `writer` be given what is new from now on.

        With None nobody but the task writes, and nothing here holds whom `writer` belongs to.
        """
        self._writer = writer

    def put(self, part: bytes) -> bool:
        """Whole events, to be delivered soon; whether nothing else waited."""
        parts = self._parts
        parts.append(part)
        self.held_bytes += len(part)
        return len(parts) == 1

    def made_ready(self) -> tuple[Writer, bytes] | None:
        """What waits, taken to be written at once. None: there is nothing, or the task writes it.

        That is woken, unless it is writing: then it comes back here.
        """
        waiter, parts = self._waiter, self._parts
        if waiter is None or waiter.done() or not parts:
            return None
        writer = self._writer
        framed = None if writer is None else writer.frame(parts[0] if len(parts) == 1 else b"".join(parts))
        if writer is None or framed is None:
            waiter.set_result(None)
            return None
        parts.clear()
        self.held_bytes = 0
        if self._taken is not None:
            self._tell_taken()
        return writer, framed

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
        self.held_bytes = 0
        self._tell_taken()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def taken(self) -> None:
        """Wait until what waits has gone to the client."""
        self._taken = asyncio.get_running_loop().create_future()
        await self._taken

    def _tell_taken(self) -> None:
        if self._taken is not None and not self._taken.done():
            self._taken.set_result(None)
