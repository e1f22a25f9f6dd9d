"""HTTP servers inside the daemon's own event loop: sockets bound first, signals left to the daemon."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import uvicorn

from pdmuxd.engine.core.errors import SettingsError

_KEEP_ALIVE_S = 65
"""Longer than the idle time of usual clients' connection pools, so that they are the ones to close."""
_BACKLOG = 2048
_DATE_PERIOD_S = 1.0
_STOP_TIMEOUT_S = 1
"""For answers still being written when the server stops; the gateway has drained before that."""


class _Server(uvicorn.Server):
    """Uvicorn without its own signal handling, with events for its start and stop instead of polling."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()
        self.stop = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    async def main_loop(self) -> None:
        while not self.stop.is_set():
            await self.on_tick(0)  # sets the Date header of the next second's answers
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stop.wait(), _DATE_PERIOD_S)


def bind(host: str, port: int, *, section: str) -> socket.socket:
    """Bind and listen, so that nobody else can take the address before the server runs.

    `section` is `data` or `admin`. Raises: SettingsError naming the key that has to change.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise SettingsError(
            f"{section}.host: {host!r} is no address of this machine: {error.strerror}"
        ) from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise SettingsError(_bind_error(error, host, port, section)) from None
    listener.setblocking(False)
    return listener


def url_of(listener: socket.socket) -> str:
    """The address that a client on this machine would use."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextlib.asynccontextmanager
async def serving(app: Callable[..., Any], listener: socket.socket) -> AsyncIterator[None]:
    """Serve the ASGI application `app` on `listener` until the block ends."""
    config = uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_STOP_TIMEOUT_S,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]), name="http-server")
    started = asyncio.create_task(server.listening.wait())
    await asyncio.wait((task, started), return_when=asyncio.FIRST_COMPLETED)
    started.cancel()
    try:
        yield
    finally:
        server.stop.set()
        await task


def _bind_error(error: OSError, host: str, port: int, section: str) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"{section}.port: {port} is in use on {host}; choose another port, or stop what uses it"
    if error.errno == errno.EACCES:
        return f"{section}.port: {port} is reserved for root; choose a port from 1024 to 65535"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{section}.host: {host} is no address of this machine"
    return f"{section}.host, {section}.port: cannot listen on {host}:{port}: {error.strerror}"
