"""The event stream through real sockets, of which one is full."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import aiohttp
import pytest
from stores import ADMIN_TOKEN, new_database, opened
from telemetry_feeds import HandClock, named, read_events, telemetry

from pdmuxd.controlplane.admin_app import build_admin_app
from pdmuxd.controlplane.events.follow import LAG_S
from pdmuxd.controlplane.node.engine_status import NO_ENGINE
from pdmuxd.controlplane.tenants.credentials import digest
from pdmuxd.daemon.serving.servers import bind, serving, url_of

AUTH = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
FRAMES = 3000
SMALL_BYTES = 4096


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def known(clock):
    return telemetry(clock)


@pytest.fixture
async def url(tmp_path, known):
    """A server whose connections hold little in the kernel."""
    async with contextlib.AsyncExitStack() as stack:
        control_plane = stack.enter_context(opened(new_database(tmp_path)))
        app = build_admin_app(
            control_plane,
            engine_status=lambda: NO_ENGINE,
            admin_token_sha256=digest(ADMIN_TOKEN),
            telemetry=known,
        )
        listener = stack.enter_context(contextlib.closing(bind("127.0.0.1", 0, section="admin")))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BYTES)
        await stack.enter_async_context(serving(app, listener))
        stack.callback(known.events.close)
        yield url_of(listener) + "/api/v1/events"


async def begun(url, stack):
    """A connection that has had its hello; the kernel holds little for it."""
    client_socket = socket.socket()
    client_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BYTES)
    connector = aiohttp.TCPConnector(socket_factory=lambda _: client_socket)
    session = await stack.enter_async_context(
        aiohttp.ClientSession(connector=connector, read_bufsize=SMALL_BYTES)
    )
    response = await stack.enter_async_context(session.get(url, headers=AUTH))
    text = b""
    while b"event: hello" not in text:
        text += await response.content.readany()
    return response


class Reader:
    """Reads all the time, and says when it has come to an event."""

    def __init__(self, response):
        self.text = ""
        self._response = response
        self._more = asyncio.Event()

    async def run(self):
        async for chunk in self._response.content.iter_any():
            self.text += chunk.decode()
            self._more.set()

    async def until(self, number):
        async with asyncio.timeout(60):
            while f"-{number}\n" not in self.text[-20_000:]:
                self._more.clear()
                await self._more.wait()


async def rest(response):
    return read_events((await response.content.read()).decode())


async def test_a_client_that_does_not_read_is_told_its_loss_and_holds_up_nobody(url, known, clock):
    async with contextlib.AsyncExitStack() as stack:
        slow = await begun(url, stack)
        fast = await begun(url, stack)
        kept_up = Reader(fast)
        reading = asyncio.create_task(kept_up.run())
        for _ in range(FRAMES // 100):
            for _ in range(100):
                known.tick()
            await kept_up.until(known.events.head)
        clock.turn(LAG_S + 1)
        known.tick()
        known.events.close()
        await reading
        events = {"fast": read_events(kept_up.text), "slow": await rest(slow)}

    assert named(events["fast"], "gap") == []
    assert len(named(events["fast"], "stats")) == FRAMES + 1
    gaps = named(events["slow"], "gap")
    assert {gap.data["reason"] for gap in gaps} == {"slow"}
    told = sum(event.name in ("stats", "tenants") for event in events["slow"])
    assert told < FRAMES
    lost = sum(gap.data["lost"] for gap in gaps)
    assert told + lost == sum(event.name in ("stats", "tenants") for event in events["fast"])
