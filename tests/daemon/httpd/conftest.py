"""A server with small limits on a real socket, and raw connections to it."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field

import pytest

from pdmuxd.daemon.httpd.connections import Connections
from pdmuxd.daemon.httpd.limits import HttpLimits
from pdmuxd.daemon.serving.servers import bind, serving

PATIENCE_S = 30


@dataclass
class App:
    """Answers `ok` and the body's length; /early before the body, /stream until its client is gone."""

    seen: list = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, scope, receive, send):
        self.seen.append(scope["path"])
        if scope["path"] == "/stream":
            await self._stream(receive, send)
            return
        length = 0
        more = scope["path"] != "/early"
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.gone.set()
                return
            length += len(message.get("body", b""))
            more = message.get("more_body", False)
        body = b"ok %d" % length
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _stream(self, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

        async def pour():
            while True:
                await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
                await asyncio.sleep(0)

        pouring = asyncio.create_task(pour())
        while (await receive())["type"] != "http.disconnect":
            pass
        pouring.cancel()
        self.gone.set()


@dataclass
class Served:
    """A running server, and how to reach it."""

    port: int
    connections: Connections
    app: App
    stack: contextlib.AsyncExitStack

    async def connect(self, source="127.0.0.1"):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(source, 0))
        self.stack.callback(lambda: writer.transport.abort())  # and the writer is kept until then
        return reader, writer

    async def tell(self, sent, source="127.0.0.1"):
        """Everything that is answered to `sent`, until the server closes."""
        reader, writer = await self.connect(source)
        writer.write(sent)
        answer = await self.rest(reader)
        writer.transport.abort()
        return answer

    async def rest(self, reader):
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(ConnectionError):
                return await reader.read()
        return b""

    async def until(self, condition):
        async with asyncio.timeout(PATIENCE_S):
            while not condition():  # noqa: ASYNC110 - what happens in the kernel has no event
                await asyncio.sleep(0.005)


@pytest.fixture
async def serve():
    """Start a server with the given limits."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(*, door=None, **limits):
            connections = Connections("data", HttpLimits(**limits), door=door)
            app = App()
            listener = bind("127.0.0.1", 0, section="data")
            await stack.enter_async_context(serving(app, listener, connections))
            return Served(listener.getsockname()[1], connections, app, stack)

        yield start
