"""What SGLang's side needs of a device beyond the loop: launching on a stream, order between streams."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from pdmuxd.engine.loop.streams import DeviceStreams
from pdmuxd.engine.sglang.api.types.device import Event, Stream


class LaunchStreams(DeviceStreams, Protocol):
    """The streams of all groups of a partition table, made before serving."""

    def on(self, stream: Stream) -> AbstractContextManager[object]:
        """Launch on `stream` inside the block."""

    def hold(self, stream: Stream, seconds: float, *, is_at_work: bool) -> bool:
        """Keep what is launched on `stream` from now on waiting for at least so long, on a device that rests
        or is at work on all its SMs meanwhile; whether that is possible."""

    def mark(self, stream: Stream) -> Event:
        """Record an event behind everything launched on `stream` so far."""

    def order(self, later: Stream, earlier: Stream) -> None:
        """What is launched on the stream `later` from now on waits for what is on `earlier` now."""

    def order_after(self, later: Stream, event: Event) -> None:
        """What is launched on the stream `later` from now on waits for the event."""
