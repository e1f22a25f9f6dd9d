"""One client's way through the buffer, as the bytes of a server-sent event stream.

The format is the WHATWG's: fields `id`, `event`, `data`, a blank line; lines with a colon are comments.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from pdmuxd.controlplane.events.buffer import Event, EventBuffer, EventId
from pdmuxd.controlplane.events.messages import (
    FRAMES,
    ByeEvent,
    EventMessage,
    EventType,
    GapEvent,
    instant,
)

HEARTBEAT_S = 5.0
LAG_S = 5.0
"""A client whose next event is older than this misses frames until it has caught up."""
_AT_ONCE = 256
"""Events in one write: enough to catch up fast, few enough that a stalled client holds little memory."""
_RETRY = b"retry: 1000\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What a client asked for."""

    hello: Callable[[], EventMessage]
    after: EventId | None = None
    types: frozenset[EventType] | None = None
    """None: all."""


async def follow(
    buffer: EventBuffer, subscription: Subscription, *, clock: Callable[[], float]
) -> AsyncIterator[bytes]:
    """Yield the stream, which ends when the buffer is closed. `clock` is Unix time in seconds."""
    client = _Client(buffer, subscription, clock)
    buffer.clients += 1
    try:
        wrote_s = clock()
        yield _RETRY + _encode("hello", subscription.hello()) + client.begin()
        while not buffer.is_closed or client.is_behind:
            chunk = client.take()
            if not chunk and clock() - wrote_s >= HEARTBEAT_S:
                chunk = client.alive()
            if chunk:
                wrote_s = clock()
                yield chunk
            if not client.is_behind:
                await buffer.wait(client.cursor, HEARTBEAT_S)
        yield _encode("bye", ByeEvent(reason="stopping", at=instant(clock())))
    finally:
        buffer.clients -= 1


class _Client:
    """Where one client is in the buffer."""

    def __init__(self, buffer: EventBuffer, subscription: Subscription, clock: Callable[[], float]) -> None:
        self._buffer = buffer
        self._subscription = subscription
        self._clock = clock
        self.cursor = buffer.head
        self._live_from = buffer.head
        """Events from before the connection were asked for, so they are sent however old they are."""

    @property
    def is_behind(self) -> bool:
        """Whether there are events beyond the cursor."""
        return self.cursor < self._buffer.head

    def begin(self) -> bytes:
        """Take the client's place in the buffer; says so if what it had is not of this session."""
        after = self._subscription.after
        if after is None:
            return b""
        if after.session != self._buffer.session or after.number > self._buffer.head:
            return self._gap("restarted", None)
        self.cursor = after.number
        return b""

    def alive(self) -> bytes:
        """A sign of life, with the client's position: after a reconnection it then skips what its filter
        leaves out."""
        return f": alive\nid: {self._buffer.session}-{self.cursor}\n\n".encode()

    def take(self) -> bytes:
        """The next events, and what was lost before them."""
        said = b""
        if self.cursor < self._buffer.oldest - 1:
            said = self._gap("expired", (self.cursor + 1, self._buffer.oldest - 1))
            self.cursor = self._buffer.oldest - 1
        events = self._buffer.after(self.cursor, _AT_ONCE)
        if not events:
            return said
        self.cursor = events[-1].number
        skipped = self._skipped(events)
        if skipped:
            kept = set(skipped)
            said += self._gap("slow", (events[0].number, events[-1].number), lost=len(kept))
            events = [event for event in events if event.number not in kept]
        return said + b"".join(self._line(event) for event in events if self._wants(event))

    def _skipped(self, events: list[Event]) -> list[int]:
        """The frames that this client misses because it lags."""
        oldest_s = self._clock() - LAG_S
        return [
            event.number
            for event in events
            if event.at_s < oldest_s
            and event.number > self._live_from
            and event.type in FRAMES
            and self._wants(event)
        ]

    def _wants(self, event: Event) -> bool:
        types = self._subscription.types
        return types is None or event.type in types

    def _line(self, event: Event) -> bytes:
        return (
            f"id: {self._buffer.session}-{event.number}\nevent: {event.type}\ndata: ".encode()
            + event.data
            + b"\n\n"
        )

    def _gap(self, reason: str, numbers: tuple[int, int] | None, *, lost: int | None = None) -> bytes:
        session = self._buffer.session
        if numbers is not None and lost is None:
            lost = numbers[1] - numbers[0] + 1
        self._buffer.lost_events += lost or 0
        first, last = (None, None) if numbers is None else (f"{session}-{n}" for n in numbers)
        message = GapEvent.model_validate(
            {"reason": reason, "lost": lost, "from": first, "to": last, "at": instant(self._clock())}
        )
        # A slow client's gap precedes events that it does get; only the others move its place.
        place = last if reason == "expired" else f"{session}-{self.cursor}" if reason == "restarted" else None
        return _encode("gap", message, place)


def _encode(name: str, message: EventMessage, place: str | None = None) -> bytes:
    head = f"id: {place}\n" if place else ""
    return f"{head}event: {name}\ndata: ".encode() + message.encoded() + b"\n\n"
