"""Follows the daemon's events for as long as the console runs, over any number of connections."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import msgspec

from pdmuxd.tui.client.api.async_client import AsyncClient
from pdmuxd.tui.client.api.errors import (
    ApiError,
    ForbiddenError,
    ForeignError,
    InvalidError,
    NotFoundError,
    UnauthorizedError,
    text_of,
)
from pdmuxd.tui.client.connection import Connection, Link
from pdmuxd.tui.client.sse import ServerEvent
from pdmuxd.tui.client.target import Clock
from pdmuxd.tui.client.wire import API_VERSION, EVENTS, ByeEvent, Event, HelloEvent

_DECODERS: dict[str, msgspec.json.Decoder[Event]] = {
    name: msgspec.json.Decoder(kind) for name, kind in EVENTS.items()
}


def decode(kind: str, data: bytes) -> Event | None:
    """The event, or None for a type that is newer than this console. Raises: msgspec.MsgspecError."""
    decoder = _DECODERS.get(kind)
    return decoder.decode(data) if decoder is not None else None


class _EndedError(Exception):
    """A connection is over. `link` is the state that follows."""

    def __init__(self, link: Link, cause: str) -> None:
        super().__init__(cause)
        self.link = link
        self.cause = cause


class EventStream:
    """Reads events and says how the connection fares; resumes after the last event that it has seen."""

    def __init__(
        self,
        api: AsyncClient,
        clock: Clock,
        *,
        on_event: Callable[[Event], None],
        on_connection: Callable[[Connection], None],
    ) -> None:
        self._api = api
        self._clock = clock
        self._on_event = on_event
        self._on_connection = on_connection
        self._last_id: str | None = None
        self._retry_now = asyncio.Event()
        self.connection = Connection()
        self.unreadable = 0
        """Events that could not be decoded."""

    def retry(self) -> None:
        """Do not wait for the next attempt."""
        self._retry_now.set()

    async def run(self) -> None:
        """Connect, read, wait, again, until cancelled."""
        while True:
            try:
                await self._follow()
            except _EndedError as ended:
                self._failed(ended.link, ended.cause)
            except ApiError as error:
                self._failed(*self._meaning(error))
            except OSError as error:
                self._failed(Link.AWAY, text_of(error))
            await self._wait()

    async def _follow(self) -> None:
        async with contextlib.aclosing(self._api.events(after=self._last_id)) as events:
            async for raw in events:
                event = self._decode(raw)
                if event is not None:
                    self._take(event)
                if raw.id is not None:
                    self._last_id = raw.id
        raise _EndedError(Link.AWAY, "the daemon closed the connection")

    def _meaning(self, error: ApiError) -> tuple[Link, str]:
        """The state that an error leads to, and its cause."""
        match error:
            case UnauthorizedError() | ForbiddenError():
                return Link.REFUSED, error.detail
            case NotFoundError() | ForeignError(status=404):
                missing = "it has no event stream: another version of pdmuxd, or another program"
                return Link.FOREIGN, missing
            case ForeignError(status=status) if 200 <= status < 300:
                return Link.FOREIGN, "what answers there is not pdmuxd's admin address"
            case InvalidError():
                self._last_id = None  # an id that this daemon cannot read: begin anew
                return Link.AWAY, error.detail
        return Link.AWAY, str(error).removeprefix("no answer: ")

    def _take(self, event: Event) -> None:
        """Pass an event on. Raises: _EndedError if it ends the connection."""
        if isinstance(event, HelloEvent):
            if event.api_version != API_VERSION:
                raise _EndedError(
                    Link.MISMATCH,
                    f"the daemon ({event.version}) speaks API version {event.api_version}, this console "
                    f"{API_VERSION}; use the pdmuxd of the daemon's version",
                )
            self._set(self.connection.live())
        self._on_event(event)
        if isinstance(event, ByeEvent):
            raise _EndedError(Link.AWAY, "the daemon is stopping")

    def _decode(self, raw: ServerEvent) -> Event | None:
        try:
            return decode(raw.type, raw.data) if raw.data else None
        except msgspec.MsgspecError:
            self.unreadable += 1
            return None

    def _failed(self, link: Link, cause: str) -> None:
        self._set(self.connection.failed(link, cause, self._clock.monotonic_s()))

    def _set(self, connection: Connection) -> None:
        self.connection = connection
        self._on_connection(connection)

    async def _wait(self) -> None:
        self._retry_now.clear()
        until_s = self.connection.retry_at_s or 0.0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, until_s - self._clock.monotonic_s())):
                await self._retry_now.wait()
