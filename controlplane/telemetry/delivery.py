"""By how much gaps between tokens are longer at the clients than in the engine.

A gap is made by a step; what comes between (processes, their queues, the event loop, the write) makes some
gaps longer and others shorter. So the p99 of all gaps that were written is longer than the p99 of those that
were made, and steps that are planned for a target have to leave that much of it.
"""

from __future__ import annotations

from collections import deque
from itertools import accumulate

from pdmuxd.controlplane.telemetry.judged import JudgedRequest
from pdmuxd.engine.link.durations import BUCKETS, GROWTH, LOWEST_S, Counts

GAP_QUANTILE = 0.99
"""An answer is in time if this quantile of its gaps is."""
WINDOW_S = 60.0
SLICE_S = 5.0
MIN_GAPS = 2_000
"""Fewer have less than 20 beyond the quantile, whose standard error is over a fifth of that tail."""


class DeliveryLateness:
    """Of the streamed answers of the last minute. `clock` must not go back."""

    def __init__(self) -> None:
        self._slices: deque[_Slice] = deque()

    def on_request(self, judged: JudgedRequest, now_s: float) -> None:
        """A request ended; it counts if the gateway saw each write of it."""
        if not judged.is_delivered or not judged.gaps:
            return
        if not self._slices or now_s - self._slices[-1].began_s >= SLICE_S:
            self._slices.append(_Slice(now_s))
        self._slices[-1].add(judged.record.tbt_counts, judged.gap_counts)

    def late_s(self, now_s: float) -> float | None:
        """How much longer the p99 of the gaps is at clients; None if too few gaps came to tell."""
        while self._slices and now_s - self._slices[0].began_s > WINDOW_S:
            self._slices.popleft()
        made, written = [0] * BUCKETS, [0] * BUCKETS
        for each in self._slices:
            for bucket in range(BUCKETS):
                made[bucket] += each.made[bucket]
                written[bucket] += each.written[bucket]
        if min(sum(made), sum(written)) < MIN_GAPS:
            return None
        return max(0.0, _quantile_s(written, GAP_QUANTILE) - _quantile_s(made, GAP_QUANTILE))


class _Slice:
    """Some seconds of them: by bucket, how many gaps were made and how many were written."""

    __slots__ = ("began_s", "made", "written")

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        self.made = [0] * BUCKETS
        self.written = [0] * BUCKETS

    def add(self, made: Counts, written: Counts) -> None:
        for counts, total in ((made, self.made), (written, self.written)):
            for bucket, count in counts:
                total[min(max(bucket, 0), BUCKETS - 1)] += count


def _quantile_s(counts: list[int], quantile: float) -> float:
    """Interpolated within its bucket: two quantiles in one bucket differ by less than 8%."""
    wanted = quantile * sum(counts)
    for bucket, upto in enumerate(accumulate(counts)):
        if upto >= wanted and counts[bucket]:
            share = (wanted - (upto - counts[bucket])) / counts[bucket]
            lower_s = 0.0 if bucket == 0 else LOWEST_S * GROWTH ** (bucket - 1)
            upper_s = LOWEST_S * GROWTH**bucket
            return lower_s + share * (upper_s - lower_s)
    return 0.0
