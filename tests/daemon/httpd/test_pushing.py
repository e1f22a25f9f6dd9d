"""Parts written past the task that answers: in order with its own, refused where they cannot be written."""

import asyncio

import aiohttp

from pdmuxd.daemon.httpd.connections import Connections
from pdmuxd.daemon.httpd.limits import HttpLimits
from pdmuxd.daemon.httpd.pushing import push_of
from pdmuxd.daemon.serving.servers import bind, serving, url_of

PATIENCE_S = 30
START = {"type": "http.response.start", "status": 200, "headers": []}


class App:
    """Answers in chunks when it is told to, and shows how parts are pushed."""

    def __init__(self, headers=()):
        self.start = START | {"headers": list(headers)}
        self.push = None
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()
        self.gone = asyncio.Event()

    async def __call__(self, scope, receive, send):
        self.push = push_of(scope)
        await receive()
        assert not self.push(b"before the head")
        await send(self.start)
        await send({"type": "http.response.body", "body": b"first ", "more_body": True})
        self.begun.set()
        leaving = asyncio.create_task(self.watch(receive))
        await self.may_end.wait()
        await send({"type": "http.response.body", "body": b" last"})
        await leaving

    async def watch(self, receive):
        while (await receive())["type"] != "http.disconnect":
            pass
        self.gone.set()


async def test_a_pushed_part_stands_between_those_that_are_sent():
    app, listener = App(), bind("127.0.0.1", 0, section="data")
    async with serving(app, listener), aiohttp.ClientSession() as client:
        asking = asyncio.create_task(client.get(url_of(listener)))
        async with asyncio.timeout(PATIENCE_S):
            await app.begun.wait()
        assert app.push(b"second ")
        assert app.push(b"third")
        app.may_end.set()
        assert await (await asking).read() == b"first second third last"
        assert not app.push(b"after the end")


async def test_nothing_is_pushed_to_a_client_that_does_not_read_or_has_left():
    app, listener = App(), bind("127.0.0.1", 0, section="data")
    connections = Connections("data", HttpLimits(write_timeout_s=0.05))
    async with serving(app, listener, connections):
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(PATIENCE_S):
            await app.begun.wait()
            writer.transport.pause_reading()
            while app.push(b"x" * 2**16):
                pass
            await app.gone.wait()
        assert connections.closed == {"not_reading": 1}
        assert not app.push(b"x")
        app.may_end.set()
        writer.transport.abort()
        assert reader is not None


async def test_nothing_is_pushed_into_an_answer_whose_length_is_known():
    app, listener = App(headers=[(b"content-length", b"11")]), bind("127.0.0.1", 0, section="data")
    async with serving(app, listener), aiohttp.ClientSession() as client:
        asking = asyncio.create_task(client.get(url_of(listener)))
        async with asyncio.timeout(PATIENCE_S):
            await app.begun.wait()
        assert not app.push(b"x")
        app.may_end.set()
        assert await (await asking).read() == b"first  last"


def test_there_is_no_pushing_behind_another_server():
    assert push_of({"type": "http"}) is None
    assert push_of({"type": "http", "extensions": {}}) is None
