"""A device of two streams per partition group whose work is done when the test says so."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

from pdmuxd.engine.core.partitions import PartitionTable
from pdmuxd.engine.loop.streams import StreamGroup


@dataclass(eq=False)
class FakeClock:
    """Stands still until it is moved; sleeping moves it."""

    now_s: float = 0.0
    slept: int = 0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept += 1
        self.now_s += seconds


@dataclass(eq=False)
class FakeEvent:
    """Behind all that was launched on its stream before it."""

    stream: FakeStream
    done_s: float | None = None


@dataclass(eq=False)
class FakeStream:
    name: str
    pending: list[FakeEvent] = field(default_factory=list)
    """Not yet passed, oldest first."""


class FakeStreams:
    """Implements DeviceStreams; notes who waited for what."""

    def __init__(self, table: PartitionTable, clock: FakeClock) -> None:
        self._clock = clock
        self.groups = tuple(
            StreamGroup(
                prefill_sms=group.prefill_sms,
                decode_sms=group.decode_sms,
                prefill=FakeStream(f"prefill{index}"),
                decode=FakeStream(f"decode{index}"),
            )
            for index, group in enumerate(table.groups)
        )
        self.blocked: list[FakeEvent] = []
        """Events that the host waited for and that were not done by then."""
        self.ordered: list[tuple[str, object]] = []
        """(later stream, earlier stream's name or event), in the order of the calls."""

    def on(self, stream):
        return contextlib.nullcontext()

    def mark(self, stream: FakeStream) -> FakeEvent:
        """Done only if the test finishes it: a mark stands for the work ahead of it as well."""
        event = FakeEvent(stream)
        stream.pending.append(event)
        return event

    def is_done(self, event: FakeEvent) -> bool:
        return event.done_s is not None

    def wait(self, event: FakeEvent) -> None:
        if event.done_s is None:
            self.blocked.append(event)
            self.finish(event)

    def elapsed_s(self, start: FakeEvent, end: FakeEvent) -> float:
        assert start.done_s is not None, "measured before the device passed it"
        assert end.done_s is not None, "measured before the device passed it"
        return end.done_s - start.done_s

    def order(self, later: FakeStream, earlier: FakeStream) -> None:
        self.ordered.append((later.name, earlier.name))

    def order_after(self, later: FakeStream, event: FakeEvent) -> None:
        self.ordered.append((later.name, event))

    # --- the test's side

    def finish(self, event: FakeEvent) -> None:
        """The device passes this event and all ahead of it on its stream."""
        pending = event.stream.pending
        for passed in pending[: pending.index(event) + 1]:
            passed.done_s = self._clock.now_s
        del pending[: pending.index(event) + 1]

    def finish_prefill(self, *, marks: int | None = None) -> None:
        """The oldest marks on the prefill streams, or all: each launch of layers has two."""
        for group in self.groups:
            for event in list(group.prefill.pending[:marks]):
                self.finish(event)
