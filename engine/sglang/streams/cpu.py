"""The stand-in on a CPU: work is done when it is launched, and events are instants of the clock."""

from __future__ import annotations

import contextlib
import time
from contextlib import AbstractContextManager

from pdmuxd.engine.core.partitions import PartitionTable
from pdmuxd.engine.loop.streams import StreamGroup
from pdmuxd.engine.sglang.api.types.device import Event, Stream

TOTAL_SMS = 132
"""What the stand-in claims to be: an H200, so that policies decide as they would there."""


class InlineStream:
    """A stream whose work is over when the launch returns; has the methods SGLang calls on a stream."""

    def wait_stream(self, stream: Stream) -> None:
        """Nothing is ever pending."""

    def wait_event(self, event: Event) -> None:
        """Nothing is ever pending."""

    def synchronize(self) -> None:
        """Nothing is ever pending."""

    def record_event(self, event: Event = None) -> float:  # noqa: ARG002 - torch's signature
        return time.perf_counter()


class CpuStreams:
    """Implements LaunchStreams."""

    def __init__(self, table: PartitionTable) -> None:
        self.groups = tuple(
            StreamGroup(
                prefill_sms=group.prefill_sms,
                decode_sms=group.decode_sms,
                prefill=InlineStream(),
                decode=InlineStream(),
            )
            for group in table.groups
        )

    def on(self, stream: Stream) -> AbstractContextManager[object]:  # noqa: ARG002 - the interface
        return contextlib.nullcontext()

    def hold(self, stream: Stream, seconds: float, *, is_at_work: bool) -> bool:  # noqa: ARG002 - the interface
        """Work is done when it is launched."""
        return False

    def mark(self, stream: Stream) -> float:  # noqa: ARG002 - the interface
        return time.perf_counter()

    def is_done(self, event: Event) -> bool:  # noqa: ARG002 - the interface
        """Always."""
        return True

    def wait(self, event: Event) -> None:
        """Nothing to wait for."""

    def elapsed_s(self, start: float, end: float) -> float:
        """Seconds between two instants."""
        return end - start

    def order(self, later: Stream, earlier: Stream) -> None:
        """Launches are in order already."""

    def order_after(self, later: Stream, event: Event) -> None:
        """Launches are in order already."""
