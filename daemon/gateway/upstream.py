"""One engine's HTTP side: pooled keep-alive connections, and aborting by request id."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

import aiohttp
import msgspec
from yarl import URL

from pdmuxd.daemon.gateway.routes import ROUTES
from pdmuxd.daemon.supervisor.address import EngineAddress

_CONNECT_TIMEOUT_S = 5.0
_ABORT_TIMEOUT_S = 2.0
_KEEPALIVE_S = 3.0
"""How long an idle connection is kept, seconds. It is less than the 5 s after which uvicorn, the engine's
server, closes one: a POST sent at that moment would fail, and must not be sent again."""
_READ_BUFFER_BYTES = 2**17


class Upstream:
    """Sends requests to one engine until that engine is gone; a new engine gets a new object."""

    def __init__(self, address: EngineAddress, *, on_abort_error: Callable[[], None]) -> None:
        self.address = address
        self.models = address.models
        self._on_abort_error = on_abort_error
        self._base = URL(address.base_url)
        self._urls = {path: URL(address.base_url + path) for path in (*ROUTES, "/abort_request")}
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Authorization": f"Bearer {address.api_key}", "Content-Type": "application/json"},
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding"),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT_S),
            auto_decompress=False,
            read_bufsize=_READ_BUFFER_BYTES,
        )
        self._aborts: set[asyncio.Task[None]] = set()

    async def open(
        self, method: str, path: str, payload: bytes | None, headers: Mapping[str, str] | None = None
    ) -> aiohttp.ClientResponse:
        """Send a request and wait for the head of its answer.

        Raises: aiohttp.ClientError or TimeoutError if the engine cannot be reached or goes away.
        """
        url = self._urls.get(path) or self._base / path.lstrip("/")
        ask = partial(
            self._session.request, method, url, data=payload, headers=headers, allow_redirects=False
        )
        try:
            return await ask()
        except aiohttp.ConnectionTimeoutError:
            # Nothing was sent. On one machine a connection takes so long only where this loop was late, and
            # looked at the time-out before it looked at the connection.
            return await ask()

    def abort(self, rid: str) -> None:
        """Tell the engine, in the background, that nobody waits for `rid` any more."""
        task = asyncio.create_task(self._abort(rid), name=f"abort-{rid}")
        self._aborts.add(task)
        task.add_done_callback(self._aborts.discard)

    async def _abort(self, rid: str) -> None:
        body = msgspec.json.encode({"rid": rid})
        try:
            async with asyncio.timeout(_ABORT_TIMEOUT_S):
                async with self._session.post(self._urls["/abort_request"], data=body) as response:
                    if response.status != 200:
                        self._on_abort_error()
        except (aiohttp.ClientError, OSError, RuntimeError):
            # TimeoutError is an OSError; RuntimeError is what a session that was closed meanwhile raises.
            self._on_abort_error()

    async def close(self) -> None:
        """Let aborts that are on their way arrive, then close every connection."""
        if self._aborts:
            await asyncio.wait(self._aborts, timeout=_ABORT_TIMEOUT_S)
        await self._session.close()
