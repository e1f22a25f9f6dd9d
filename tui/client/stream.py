"""Follows the daemon's events for as long as the console runs, over any number of connections."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING

import msgspec

from pdmuxd.tui.client.connection import Connection, Link
from pdmuxd.tui.client.rest import API, RestClient, refusal, text_of
from pdmuxd.tui.client.sse import ServerEvent, SseError, SseParser
from pdmuxd.tui.client.target import Clock
from pdmuxd.tui.client.wire import API_VERSION, Bye, Event, Hello, decode

if TYPE_CHECKING:
    import httpx

SILENCE_S = 15.0
"""The daemon sends something every 5 s; nothing for so long means that the connection is cut."""
CONNECT_S = 5.0
EVENT_STREAM = "text/event-stream"


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
        rest: RestClient,
        clock: Clock,
        *,
        on_event: Callable[[Event], None],
        on_connection: Callable[[Connection], None],
    ) -> None:
        self._rest = rest
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
        import httpx

        while True:
            try:
                await self._follow()
            except _EndedError as ended:
                self._failed(ended.link, ended.cause)
            except (httpx.HTTPError, httpx.InvalidURL, SseError, OSError) as error:
                self._failed(Link.AWAY, text_of(error))
            await self._wait()

    async def _follow(self) -> None:
        headers = self._rest.headers() | {"Accept": EVENT_STREAM}
        if self._last_id is not None:
            headers["Last-Event-ID"] = self._last_id
        timeout = (CONNECT_S, SILENCE_S, SILENCE_S, SILENCE_S)
        async with self._rest.http.stream("GET", f"{API}/events", headers=headers, timeout=timeout) as answer:
            await self._check(answer)
            async with contextlib.aclosing(self._events(answer)) as events:
                async for event in events:
                    self._take(event)
        raise _EndedError(Link.AWAY, "the daemon closed the connection")

    def _take(self, event: Event) -> None:
        """Pass an event on. Raises: _EndedError if it ends the connection."""
        if isinstance(event, Hello):
            if event.api_version != API_VERSION:
                raise _EndedError(
                    Link.MISMATCH,
                    f"the daemon ({event.version}) speaks API version {event.api_version}, this console "
                    f"{API_VERSION}; use the pdmuxd of the daemon's version",
                )
            self._set(self.connection.live())
        self._on_event(event)
        if isinstance(event, Bye):
            raise _EndedError(Link.AWAY, "the daemon is stopping")

    async def _check(self, answer: httpx.Response) -> None:
        """Raises: _EndedError if this is no event stream."""
        if answer.is_success and answer.headers.get("Content-Type", "").startswith(EVENT_STREAM):
            return
        await answer.aread()
        problem = refusal(answer)
        match problem.status:
            case 401 | 403:
                raise _EndedError(Link.REFUSED, problem.detail)
            case 422:
                self._last_id = None  # an id that this daemon cannot read: begin anew
                raise _EndedError(Link.AWAY, problem.detail)
            case 404:
                raise _EndedError(
                    Link.FOREIGN, "it has no event stream: another version of pdmuxd, or another program"
                )
            case status if 200 <= status < 300:
                raise _EndedError(Link.FOREIGN, "what answers there is not pdmuxd's admin address")
        raise _EndedError(Link.AWAY, problem.detail)

    async def _events(self, answer: httpx.Response) -> AsyncGenerator[Event]:
        parser = SseParser()
        async for chunk in answer.aiter_bytes():
            for raw in parser.feed(chunk):
                event = self._decode(raw)
                if event is not None:
                    yield event
                if raw.id is not None:
                    self._last_id = raw.id

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
