"""When a request came: by the kernel, whatever the process did meanwhile."""

from __future__ import annotations

import asyncio
import socket
import time
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from pdmuxd.daemon.httpd.arrival import ARRIVED, arrival_s, arrived_s


class Server(asyncio.Protocol):
    def __init__(self, found: asyncio.Future[float]) -> None:
        self._found = found

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if not self._found.done():
            self._found.set_result(arrival_s(self._transport))


@pytest.mark.parametrize("is_accepted_before", [True, False])
def test_a_request_came_when_its_bytes_came_though_the_loop_was_busy(is_accepted_before: bool) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        found: asyncio.Future[float] = loop.create_future()
        server = await loop.create_server(lambda: Server(found), "127.0.0.1", 0)
        client = socket.create_connection(server.sockets[0].getsockname())
        if is_accepted_before:
            await asyncio.sleep(0.05)
        sent_s = time.monotonic()
        client.send(b"x")
        time.sleep(0.3)  # noqa: ASYNC251 - the loop that is late
        came_s = await found
        assert time.monotonic() - sent_s > 0.3
        assert came_s - sent_s == pytest.approx(0.0, abs=0.1)
        client.close()
        server.close()

    uvloop.run(main())


def test_it_is_now_where_the_kernel_does_not_say() -> None:
    nothing = SimpleNamespace(get_extra_info=lambda _name: None)
    assert arrival_s(nothing, lambda: 7.0) == 7.0
    ours, theirs = socket.socketpair()
    with ours, theirs:
        local = SimpleNamespace(get_extra_info=lambda _name: ours)
        assert arrival_s(local, lambda: 7.0) == 7.0


def test_a_scope_without_it_says_now() -> None:
    assert arrived_s({ARRIVED: 5.0}) == 5.0
    assert arrived_s({}) == pytest.approx(time.monotonic(), abs=5.0)
