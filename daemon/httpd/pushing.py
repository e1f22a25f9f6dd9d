"""Parts of an answer that are written past the task that makes the answer.

An extension of ASGI: `scope["extensions"][PUSH][WRITE]` is a `Push`: it writes a part at once, or says that
it cannot be now; then `send` waits until it can. The head of the answer has been sent before, the end
comes with `send`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

PUSH, WRITE = "pdmuxd.push", "write"


class Push:
    """Writes one answer in chunks."""

    __slots__ = ("_cycle", "_flow", "_transport", "write")

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle, self._flow, self._transport = cycle, cycle.flow, cycle.transport
        self.write: Callable[[bytes], None] = cycle.transport.write
        """For what `frame` made, in the same turn of the event loop."""

    def frame(self, body: bytes) -> bytes | None:
        """A part as it goes over the connection; None if nothing can be written now."""
        cycle = self._cycle
        if (
            self._flow.write_paused
            or cycle.disconnected
            or cycle.response_complete
            or not cycle.chunked_encoding
            or self._transport.is_closing()
        ):
            return None
        return b"%x\r\n%b\r\n" % (len(body), body)

    def __call__(self, body: bytes) -> bool:
        """Write a part; False if that cannot be now."""
        framed = self.frame(body)
        if framed is None:
            return False
        self.write(framed)
        return True


def push_of(scope: Mapping[str, Any]) -> Push | None:
    """None behind a server that does not have it."""
    found: Push | None = (scope.get("extensions") or {}).get(PUSH, {}).get(WRITE)
    return found
