"""A daemon for the console without a socket: routes that tests fill, and an event stream that they feed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from datetime import UTC, timedelta
from typing import Any

import httpx
import scenes

from pdmuxd.tui.client.target import Clock, Target
from pdmuxd.tui.state.lag import INTERVAL_S

TOKEN = "the-admin-token"
URL = "http://127.0.0.1:8081"
CUT = b""
"""In a stream: the connection is closed."""


class ManualClock:
    """Stands still until it is told to go on."""

    def __init__(self) -> None:
        self.monotonic_s = 1000.0
        self._frames = 0

    def _frame_s(self) -> float:
        """Frames are never late, however busy the machine that runs the test is."""
        self._frames += 1
        return self._frames * INTERVAL_S

    def clock(self) -> Clock:
        return Clock(
            monotonic_s=lambda: self.monotonic_s,
            frame_s=self._frame_s,
            now=lambda: scenes.NOW + timedelta(seconds=self.monotonic_s - 1000.0),
            zone=UTC,
        )


class ConsoleDaemon(httpx.AsyncBaseTransport):
    """Answers as the admin plane does; what is not in `routes` is 404."""

    def __init__(self) -> None:
        self.token = TOKEN
        self.time = ManualClock()
        self.is_away = False
        self.routes: dict[tuple[str, str], Any] = {}
        self.calls: list[tuple[str, str, Any]] = []
        self.resumed_after: list[str | None] = []
        self.matched: list[str] = []
        self.reasons: list[str] = []
        """Every If-Match that was sent."""
        self.queries: dict[str, dict[str, str]] = {}
        """The last query by path."""
        self.slow: dict[str, asyncio.Event] = {}
        """Paths that are answered only once this is set."""
        self.streams = 0
        self.sent = 0
        self.hello: dict[str, Any] = scenes.hello()
        self._queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    def target(self, **changes: Any) -> Target:
        return Target(
            url=URL,
            token=lambda: TOKEN,
            console_version="0.1.0",
            clock=changes.pop("clock", self.time.clock()),
            transport=self,
            **changes,
        )

    def send(self, kind: str, data: dict[str, Any], *, numbered: bool = True, after_s: float = 0.0) -> None:
        """An event for whoever listens, or will; the clock goes on by `after_s` before it comes."""
        self.send_encoded(kind, json.dumps(data), numbered=numbered, after_s=after_s)

    def send_encoded(self, kind: str, data: str, *, numbered: bool = True, after_s: float = 0.0) -> None:
        """The same of an event as a daemon keeps it."""
        self.sent += 1
        number = f"id: {scenes.SESSION}-{self.sent}\n" if numbered else ""
        self._queue.put_nowait((after_s, f"{number}event: {kind}\ndata: {data}\n\n".encode()))

    def send_raw(self, data: bytes) -> None:
        self._queue.put_nowait((0.0, data))

    def cut(self) -> None:
        """Close the stream."""
        self._queue.put_nowait((0.0, CUT))

    def answer(self, method: str, path: str, body: Any, status: int = 200) -> None:
        """`body` is JSON, or a function of the request's JSON."""
        self.routes[method, f"/api/v1{path}"] = (status, body)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self.is_away:
            raise httpx.ConnectError("Connection refused", request=request)
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return problem(401, "unauthorized", "this is not the admin token")
        path = request.url.path
        if path == "/api/v1/events" and ("GET", path) not in self.routes:
            self.streams += 1
            self.resumed_after.append(request.headers.get("Last-Event-ID"))
            return httpx.Response(200, headers={"Content-Type": "text/event-stream"}, stream=Stream(self))
        body = json.loads(request.content) if request.content else None
        self.calls.append((request.method, path, body))
        self.queries[path] = dict(request.url.params)
        if "X-Change-Reason" in request.headers:
            self.reasons.append(request.headers["X-Change-Reason"])
        if "If-Match" in request.headers:
            self.matched.append(request.headers["If-Match"])
        if path in self.slow:
            await self.slow[path].wait()
        if (request.method, path) not in self.routes:
            return problem(404, "not-found", f"there is no {path}")
        status, answer = self.routes[request.method, path]
        if isinstance(answer, Callable):
            answer = answer(body)
        if isinstance(answer, httpx.Response):
            return answer
        return httpx.Response(status, json=answer)

    async def read(self) -> AsyncIterator[bytes]:
        yield b"retry: 1000\n\n"
        yield f"event: hello\ndata: {json.dumps(self.hello)}\n\n".encode()
        while True:
            after_s, chunk = await self._queue.get()
            if chunk == CUT:
                return
            self.time.monotonic_s += after_s
            yield chunk


class Stream(httpx.AsyncByteStream):
    """One connection's events."""

    def __init__(self, daemon: ConsoleDaemon) -> None:
        self._daemon = daemon

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._daemon.read():
            yield chunk


def problem(status: int, kind: str, detail: str, field: str | None = None) -> httpx.Response:
    return httpx.Response(
        status,
        headers={"Content-Type": "application/problem+json"},
        json={"type": f"urn:pdmuxd:problem:{kind}", "status": status, "detail": detail, "field": field},
    )
