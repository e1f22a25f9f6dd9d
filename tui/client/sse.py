"""Server-sent events out of a stream of bytes, however it is cut into pieces."""

from __future__ import annotations

from dataclasses import dataclass

EVENT_STREAM = "text/event-stream"
MAX_EVENT_BYTES = 4 * 1024 * 1024
"""More without an empty line is no event stream of ours."""


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event. `id` is None where the event has none of its own, which leaves the last id as it was.

    Without `data` it is no event, only an id to keep.
    """

    type: str
    data: bytes
    id: str | None


class SseError(ValueError):
    """What is read is not an event stream."""


class SseParser:
    """Feed bytes, get events. Comments keep a connection alive and are no events."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """The events that `chunk` completes. Raises: SseError."""
        # A line end cut in two: the carriage return waits for what follows it.
        whole = self._rest + chunk
        held = b"\r" if whole.endswith(b"\r") else b""
        text = whole.removesuffix(b"\r").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *blocks, rest = text.split(b"\n\n")
        self._rest = rest + held
        if len(self._rest) > MAX_EVENT_BYTES:
            raise SseError(f"an event of more than {MAX_EVENT_BYTES} bytes")
        return [event for event in map(_event, blocks) if event is not None]


def _event(block: bytes) -> ServerEvent | None:
    kind, event_id, data = "message", None, []
    for line in block.split(b"\n"):
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            data.append(value)
        elif name == b"event":
            kind = value.decode(errors="replace")
        elif name == b"id":
            event_id = value.decode("ascii", errors="replace")
    if not data and event_id is None:
        return None
    return ServerEvent(kind, b"\n".join(data), event_id)
