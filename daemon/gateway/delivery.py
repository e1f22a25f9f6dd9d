"""When the tokens of a streamed answer were written to its client: the gaps that the client saw.

Each write costs two reads of the clock and an addition. A gap goes from the end of one write to the begin of
the next. So the time in which a slow client holds up a write is not counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from pdmuxd.controlplane.telemetry.judged import Delivered
from pdmuxd.engine.link.durations import bucket_of

_TOLERANCE_S = 1e-9


class Delivery:
    """The writes of one answer with a single choice. `arrived_s` is by the same `clock`."""

    __slots__ = (
        "_arrived_s",
        "_buckets",
        "_clock",
        "_first_s",
        "_max_s",
        "_missed",
        "_now_s",
        "_target_s",
        "_written_s",
    )

    def __init__(
        self, *, arrived_s: float, tbt_target_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._arrived_s = arrived_s
        self._target_s = tbt_target_s + _TOLERANCE_S
        self._first_s: float | None = None
        self._now_s = self._written_s = 0.0
        self._missed = 0
        self._max_s = 0.0
        self._buckets: dict[int, int] = {}

    def begins(self) -> None:
        """The next part of the answer is about to be written."""
        now_s = self._now_s = self._clock()
        if self._first_s is None:
            self._first_s = now_s
            return
        gap_s = now_s - self._written_s
        if gap_s > self._target_s:
            self._missed += 1
        if gap_s > self._max_s:
            self._max_s = gap_s
        bucket = bucket_of(gap_s)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1

    def wrote(self) -> None:
        """The next part was written, and took no time."""
        self.begins()
        self._written_s = self._now_s

    def written(self) -> None:
        """It was written."""
        self._written_s = self._clock()

    def seen(self) -> Delivered | None:
        """What the client saw; None if there was nothing."""
        if self._first_s is None:
            return None
        return Delivered(
            ttft_s=self._first_s - self._arrived_s,
            gaps_missed=self._missed,
            gap_max_s=self._max_s,
            gap_counts=tuple(sorted(self._buckets.items())),
        )
