"""The ASGI calls that the data plane makes, typed, and nothing else of a web framework.

The data plane has few fixed paths; a router and middleware would cost more time per request than
they save lines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from pdmuxd.engine.core.errors import RequestError

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

BODY_TIMEOUT_S = 60.0
"""The default time that a client may take to send its body. It holds a place meanwhile."""


def header(scope: Scope, name: bytes) -> bytes | None:
    """The first header called `name` (lower case)."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value)
    return None


async def until_gone(receive: Receive) -> None:
    """Wait until the client leaves; its body has been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def done_before_gone(work: asyncio.Task[Any], receive: Receive) -> bool:
    """Wait for `work`, or until the client leaves; whether `work` ended first. If not, it is cancelled."""
    leaving = asyncio.create_task(until_gone(receive), name="leaving")
    try:
        await asyncio.wait((work, leaving), return_when=asyncio.FIRST_COMPLETED)
        return work.done()
    finally:
        for task in (work, leaving):
            task.cancel()
        await asyncio.wait((work, leaving))


async def read_body(
    scope: Scope, receive: Receive, *, max_bytes: int, timeout_s: float = BODY_TIMEOUT_S
) -> bytes | None:
    """Read the whole body; None if the client left.

    Raises: RequestError 413 as soon as it is known to be longer than `max_bytes`, 408 if it takes too long.
    """
    declared = header(scope, b"content-length")
    if declared is not None and declared.isdigit() and int(declared) > max_bytes:
        raise too_large(max_bytes)
    try:
        async with asyncio.timeout(timeout_s):
            return await _read_all(receive, max_bytes)
    except TimeoutError:
        raise RequestError(
            f"the body did not arrive within {timeout_s:g} s (http.body_timeout_s)",
            status=408,
            code="body_timeout",
        ) from None


async def _read_all(receive: Receive, max_bytes: int) -> bytes | None:
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > max_bytes:
            raise too_large(max_bytes)
        chunks.append(chunk)
        if not message.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def too_large(max_bytes: int) -> RequestError:
    """The error of a body that is too large."""
    return RequestError(
        f"the body is larger than {max_bytes} bytes (data.max_body_bytes)", status=413, code="body_too_large"
    )
