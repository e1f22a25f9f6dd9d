"""HTTP servers inside the daemon's own event loop: sockets bound first, signals left to the daemon."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import structlog
import uvicorn

from pdmuxd.daemon.httpd.acceptor import Acceptor
from pdmuxd.daemon.httpd.connections import Connections
from pdmuxd.daemon.httpd.limits import HttpLimits
from pdmuxd.daemon.httpd.protocol import LimitedProtocol
from pdmuxd.engine.core.errors import SettingsError

_BACKLOG = 8192
"""Connections that the kernel keeps until they are accepted; it takes `net.core.somaxconn` (4,096) if that is
less. With 2,048 a connection beside 5,000 at once was dropped, and came again after a second."""
_SEND_BUFFER_BYTES = 128 * 1024
"""Size of the kernel's send buffer for each connection (Linux takes twice as much). A client that does not
read costs this much memory."""
_DATE_PERIOD_S = 1.0
_STOP_TIMEOUT_S = 1
"""Time for answers that are still being written when the server stops; the gateway has drained before."""

log = structlog.get_logger("pdmuxd.http")


class Server(uvicorn.Server):
    """Uvicorn with another way in, without signal handling, and with events for start and stop."""

    def __init__(self, config: uvicorn.Config, listener: socket.socket, connections: Connections) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()
        self.stop = asyncio.Event()
        self._listener = listener
        self._connections = connections

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the daemon."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002
        """Start, in place of uvicorn's own, which accepts any connection."""
        self.servers = []

        def make(peer: str) -> LimitedProtocol:
            return LimitedProtocol(
                self.config, self.server_state, {}, connections=self._connections, peer=peer
            )

        self.acceptor = Acceptor(self._listener, self._connections, make)
        self.acceptor.start()
        self.started = True
        self.listening.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, and give answers that are being written a moment."""
        self.acceptor.close()
        await super().shutdown(sockets)
        await self.acceptor.stop_sweeping()

    async def retire(self, *, close_idle: bool) -> None:
        """Accept no more; connections go on, and each is closed with its next answer, or at once if idle."""
        self.acceptor.close()
        self.config.encoded_headers.append((b"connection", b"close"))
        await self.on_tick(0)
        if close_idle:
            self._connections.close_idle()

    async def main_loop(self) -> None:
        """Run until the server is to stop."""
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
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise SettingsError(_bind_error(error, host, port, section)) from None
    listener.setblocking(False)
    return listener


def adopt(listener: socket.socket, host: str, port: int, *, section: str, giver: str) -> socket.socket:
    """Use a listening socket that was given to this process, whatever address it has.

    Raises: SettingsError if it does not listen for TCP connections.
    """
    try:
        is_listening = listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        is_stream = listener.type == socket.SOCK_STREAM
    except OSError:
        is_listening = is_stream = False
    if not is_listening or not is_stream or listener.family not in (socket.AF_INET, socket.AF_INET6):
        raise SettingsError(
            f"{section}.port: the socket that {giver} gives does not listen for TCP connections"
        )
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
    listener.setblocking(False)
    bound_host, bound_port = listener.getsockname()[:2]
    if port not in (0, bound_port):
        log.warning(
            f"{section}.host and {section}.port are not used: {giver} gives the socket",
            wanted=f"{host}:{port}",
            given=f"{bound_host}:{bound_port}",
        )
    return listener


def url_of(listener: socket.socket) -> str:
    """The address that a client on this machine would use."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextlib.asynccontextmanager
async def serving(
    app: Callable[..., Any], listener: socket.socket, connections: Connections | None = None
) -> AsyncIterator[Server]:
    """Serve the ASGI application `app` on `listener` until the block ends, as `connections` allow."""
    config = uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        # Otherwise anyone on this machine could claim any address as its own.
        proxy_headers=False,
        timeout_graceful_shutdown=_STOP_TIMEOUT_S,
    )
    server = Server(config, listener, connections or Connections("data", HttpLimits()))
    task = asyncio.create_task(server.serve(sockets=[listener]), name="http-server")
    started = asyncio.create_task(server.listening.wait())
    await asyncio.wait((task, started), return_when=asyncio.FIRST_COMPLETED)
    started.cancel()
    try:
        yield server
    finally:
        server.stop.set()
        await task


def _bind_error(error: OSError, host: str, port: int, section: str) -> str:
    if error.errno == errno.EADDRINUSE:
        option = "--port" if section == "data" else "--admin-port"
        return (
            f"{section}.port: {port} is in use on {host}; choose another with `pdmuxd serve {option} PORT` "
            f"or PDMUXD_{section.upper()}__PORT=PORT (for `make serve` too), or stop what uses it"
        )
    if error.errno == errno.EACCES:
        return f"{section}.port: {port} is reserved for root; choose a port from 1024 to 65535"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{section}.host: {host} is no address of this machine"
    return f"{section}.host, {section}.port: cannot listen on {host}:{port}: {error.strerror}"
