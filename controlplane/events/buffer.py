"""The newest events, bounded in number and bytes; every client reads the same ones at its own pace."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import deque
from dataclasses import dataclass

from pdmuxd.controlplane.events.messages import EventMessage, EventType

MAX_EVENTS = 8192
MAX_BYTES = 8 * 2**20

_ID = re.compile(r"([0-9]{1,20})-([0-9]{1,18})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event as it is kept: already encoded, once for all clients."""

    number: int
    at_s: float
    type: EventType
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class EventId:
    """`SESSION-NUMBER`: numbers grow by one within a session, which is one life of the daemon."""

    session: str
    number: int

    @classmethod
    def parse(cls, text: str) -> EventId | None:
        """Read what a client sent back; None if it is none of ours."""
        found = _ID.fullmatch(text.strip())
        return None if found is None else cls(session=found[1], number=int(found[2]))

    def __str__(self) -> str:
        return f"{self.session}-{self.number}"


class EventBuffer:
    """A ring of events. Written and followed in one event loop."""

    def __init__(self, session: str, *, max_events: int = MAX_EVENTS, max_bytes: int = MAX_BYTES) -> None:
        self.session = session
        self.is_closed = False
        self.clients = 0
        self.lost_events = 0
        """Events that a client missed for good; each counts once for each such client."""
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._events: deque[Event] = deque()
        self._bytes = 0
        self._head = 0
        self._changed = asyncio.Event()

    @property
    def head(self) -> int:
        """The number of the newest event; 0 before the first."""
        return self._head

    @property
    def oldest(self) -> int:
        """The number of the oldest event that is kept; `head + 1` if none is."""
        return self._head - len(self._events) + 1

    def publish(self, type_: EventType, message: EventMessage, at_s: float) -> None:
        """Add an event and wake who waits for one."""
        self._head += 1
        data = message.encoded()
        self._events.append(Event(number=self._head, at_s=at_s, type=type_, data=data))
        self._bytes += len(data)
        while len(self._events) > self._max_events or self._bytes > self._max_bytes:
            self._bytes -= len(self._events.popleft().data)
        self._wake()

    def after(self, number: int, limit: int) -> list[Event]:
        """The kept events beyond `number`, at most `limit`, oldest first."""
        first = max(0, number - self.oldest + 1)
        count = min(limit, len(self._events) - first)
        # Most clients are near the newest end, from which a deque is indexed fastest.
        return [self._events[first + index] for index in range(count)]

    async def wait(self, number: int, timeout_s: float) -> None:
        """Wait for an event beyond `number`, for the end, or for `timeout_s` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._head <= number and not self.is_closed:
                    await self._changed.wait()

    def close(self) -> None:
        """There will be no more events; followers come to their end."""
        self.is_closed = True
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
