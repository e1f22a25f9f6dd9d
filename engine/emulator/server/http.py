"""The HTTP server under the application: uvicorn, without its own ideas about sockets and signals."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Generator

import uvicorn
from starlette.types import ASGIApp

from pdmuxd.engine.core.errors import SettingsError

_BACKLOG = 2048
_KEEP_ALIVE_S = 75
"""Longer than clients keep idle connections, so that it is the client that closes them."""


class HttpServer(uvicorn.Server):
    """Serves `app` on a socket that already listens, until `should_exit` is set."""

    def __init__(self, app: ASGIApp, *, close_s: int, on_started: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="none",
                http="httptools",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=close_s,
                timeout_keep_alive=_KEEP_ALIVE_S,
            )
        )
        self._on_started = on_started

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_started()


def listen(host: str, port: int) -> socket.socket:
    """Open the socket to serve on. Raises: SettingsError naming the address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise SettingsError(f"cannot listen on {host} port {port}: {error.strerror or error}") from error


def address(listener: socket.socket) -> str:
    """The URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
