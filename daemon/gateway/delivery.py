"""When the tokens of a streamed answer were written to its client: the gaps that the client saw.

A gap goes from the end of one write to the begin of the next. So the time in which a slow client holds up a
write is not counted.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import sub

from pdmuxd.controlplane.telemetry.judged import Delivered
from pdmuxd.daemon.httpd.pushing import Push
from pdmuxd.engine.link.durations import counted

_TOLERANCE_S = 1e-9
_WRITES_AT_A_TIME = 32


class Delivery:
    """The writes of one answer with a single choice. `arrived_s` is by the same `clock`."""

    __slots__ = (
        "_arrived_s",
        "_buckets",
        "_clock",
        "_first_s",
        "_is_direct",
        "_max_s",
        "_missed",
        "_missed_s",
        "_read_late_s",
        "_target_s",
        "_writes_s",
        "_written_s",
    )

    def __init__(
        self,
        *,
        arrived_s: float,
        tbt_target_s: float,
        read_late_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._arrived_s = arrived_s
        self._read_late_s = read_late_s
        self._target_s = tbt_target_s + _TOLERANCE_S
        self._first_s: float | None = None
        self._is_direct = False
        self._written_s = 0.0
        self._missed = 0
        self._missed_s = 0.0
        """When the last gap that was too long ended."""
        self._max_s = 0.0
        self._buckets: dict[int, int] = {}
        self._writes_s: list[float] = []
        """When the last ones were written; their gaps are counted many at a time."""

    @property
    def tbt_target_s(self) -> float:
        """The greatest gap that is in time."""
        return self._target_s

    def begins(self) -> None:
        """The next part of the answer is about to be written."""
        now_s = self._clock()
        self._count_writes()
        if self._first_s is None:
            self._first_s = now_s
            return
        if now_s - self._written_s > self._target_s:
            self._missed_s = now_s
        self._count((now_s - self._written_s,))

    def written(self) -> None:
        """Note that it was written."""
        self._written_s = self._clock()

    def wrote(self, at_s: float) -> None:
        """The next part was written at that time of the clock, and took no time."""
        writes = self._writes_s
        writes.append(at_s)
        if len(writes) >= _WRITES_AT_A_TIME:
            self._count_writes()

    def _count_writes(self) -> None:
        writes = self._writes_s
        if not writes:
            return
        self._is_direct = True
        if self._first_s is None:
            self._first_s = self._written_s = writes.pop(0)
        missed = self._missed
        self._count(sorted(map(sub, writes, (self._written_s, *writes))))
        if self._missed > missed:
            before = (self._written_s, *writes)
            self._missed_s = max(
                now for was, now in zip(before, writes, strict=False) if now - was > self._target_s
            )
        self._written_s = writes[-1] if writes else self._written_s
        writes.clear()

    def _count(self, ordered_s: Sequence[float]) -> None:
        if not ordered_s:
            return
        self._missed += len(ordered_s) - bisect_right(ordered_s, self._target_s)
        self._max_s = max(self._max_s, ordered_s[-1])
        for bucket, count in counted(ordered_s):
            self._buckets[bucket] = self._buckets.get(bucket, 0) + count

    def seen(self) -> Delivered | None:
        """What the client saw; None if there was nothing."""
        self._count_writes()
        if self._first_s is None:
            return None
        return Delivered(
            ttft_s=self._first_s - self._arrived_s,
            read_late_s=self._read_late_s,
            gaps_missed=self._missed,
            missed_ago_s=max(0.0, self._clock() - self._missed_s) if self._missed else 0.0,
            gap_max_s=self._max_s,
            gap_counts=tuple(sorted(self._buckets.items())),
            e2e_s=self._written_s - self._arrived_s,
            is_direct=self._is_direct,
        )


class TimedPush:
    """A `Push` whose parts are counted as deliveries."""

    __slots__ = ("frame", "write", "wrote")

    def __init__(self, push: Push, delivery: Delivery | None) -> None:
        self.frame, self.write = push.frame, push.write
        self.wrote: Callable[[float], None] = _not_counted if delivery is None else delivery.wrote


def _not_counted(_: float) -> None:
    """Nobody asks."""
