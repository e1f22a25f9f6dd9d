"""Percentiles over a sliding window, in constant memory: counts on a logarithmic scale."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from itertools import accumulate

from pdmuxd.controlplane.events.messages import Spread
from pdmuxd.controlplane.milliseconds import to_ms
from pdmuxd.engine.link.durations import BUCKETS, GROWTH, LOWEST_S, Counts, bucket_of, middle_s


class SlidingHistogram:
    """Counts of the last `slots * slot_s` seconds, which move on by one slot at a time.

    `now_s` must not go back.
    """

    def __init__(self, *, slots: int = 6, slot_s: float = 10.0) -> None:
        self._slot_s = slot_s
        self._kept = slots
        self._slots: list[array[int]] = []
        """Made with the first duration: of many tenants none is ever counted."""
        self._total: array[int] = array("L")
        self._now_slot = 0

    def add(self, seconds: float, now_s: float, weight: int = 1) -> None:
        """Count a duration `weight` times."""
        self.add_counts(((bucket_of(seconds), weight),), now_s)

    def add_counts(self, counts: Counts, now_s: float) -> None:
        """Count many durations at once; of a bucket that there is not, as the longest."""
        if not self._slots:
            self._slots = [array("L", bytes(8 * BUCKETS)) for _ in range(self._kept)]
            self._total = array("L", bytes(8 * BUCKETS))
        self._roll(now_s)
        slot = self._slots[self._now_slot % len(self._slots)]
        for bucket, count in counts:
            known = min(max(bucket, 0), BUCKETS - 1)
            slot[known] += count
            self._total[known] += count

    def spread(self, now_s: float) -> Spread:
        self._roll(now_s)
        return spread_of(self._total)

    def quantile_s(self, share: float, now_s: float, *, least: int = 1) -> float | None:
        """The duration below which `share` of those in the window lie, None if they are fewer than `least`.

        It is interpolated within its bucket, so that two windows that differ by less than a bucket can be
        told apart.
        """
        self._roll(now_s)
        sums = list(accumulate(self._total))
        if not sums or sums[-1] < least:
            return None
        bucket = bisect_left(sums, share * sums[-1])
        below = sums[bucket - 1] if bucket else 0
        inside = (share * sums[-1] - below) / (sums[bucket] - below)
        lower_s = LOWEST_S * GROWTH ** (bucket - 1) if bucket else 0.0
        return lower_s + inside * (LOWEST_S * GROWTH**bucket - lower_s)

    def _roll(self, now_s: float) -> None:
        slot = int(now_s / self._slot_s)
        if not self._slots:
            self._now_slot = max(slot, self._now_slot)
            return
        gone = min(slot - self._now_slot, len(self._slots))
        for back in range(gone):
            old = self._slots[(slot - back) % len(self._slots)]
            if any(old):
                self._total = array("L", map(int.__sub__, self._total, old))
                old[:] = array("L", bytes(8 * BUCKETS))
        if gone > 0:
            self._now_slot = slot


def spread_of(counts: array[int]) -> Spread:
    """Percentiles of counts by bucket (`engine/link/durations.py`)."""
    count = sum(counts)
    if not count:
        return Spread(count=0, p50=None, p99=None)
    sums = list(accumulate(counts))
    return Spread(count=count, p50=_percentile(sums, 0.50), p99=_percentile(sums, 0.99))


def _percentile(sums: list[int], share: float) -> float:
    """Milliseconds below which `share` of what was counted lies."""
    return to_ms(middle_s(bisect_left(sums, math.ceil(share * sums[-1]))))
