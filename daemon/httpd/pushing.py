"""Parts of an answer that are written past the task that makes the answer.

An extension of ASGI: `scope["extensions"][PUSH][WRITE]` is a function that writes a part at once, or says
that it cannot be now; then `send` waits until it can. The head of the answer has been sent before, the end
comes with `send`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

PUSH, WRITE = "pdmuxd.push", "write"

Push = Callable[[bytes], bool]


def pusher(cycle: RequestResponseCycle) -> Push:
    """For one answer in chunks."""
    flow, transport = cycle.flow, cycle.transport

    def push(body: bytes) -> bool:
        if flow.write_paused or cycle.disconnected or cycle.response_complete or not cycle.chunked_encoding:
            return False
        if transport.is_closing():
            return False
        transport.write(b"%x\r\n%b\r\n" % (len(body), body))
        return True

    return push


def push_of(scope: Mapping[str, Any]) -> Push | None:
    """None behind a server that does not have it."""
    found: Push | None = (scope.get("extensions") or {}).get(PUSH, {}).get(WRITE)
    return found
