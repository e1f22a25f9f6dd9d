"""Percentiles over a sliding window, in constant memory: counts on a logarithmic scale."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from itertools import accumulate

from pdmuxd.controlplane.events.messages import Spread
from pdmuxd.controlplane.milliseconds import to_ms

_LOWEST_S = 1e-4
_GROWTH = 1.08
"""From one bucket to the next; a percentile is a bucket's middle, so it is off by at most 4%."""
_BUCKETS = 210
"""Up to 1e-4 * 1.08**208 s, which is a quarter of an hour; what is longer counts as that."""
_PER_LOG = 1.0 / math.log(_GROWTH)


def bucket_of(seconds: float) -> int:
    """The bucket that a duration falls into."""
    if seconds <= _LOWEST_S:
        return 0
    return min(_BUCKETS - 1, 1 + int(math.log(seconds / _LOWEST_S) * _PER_LOG))


def middle_s(bucket: int) -> float:
    """The duration that stands for a bucket."""
    return _LOWEST_S if bucket == 0 else float(_LOWEST_S * _GROWTH ** (bucket - 0.5))


class SlidingHistogram:
    """Counts of the last `slots * slot_s` seconds, which move on by one slot at a time.

    `now_s` must not go back.
    """

    def __init__(self, *, slots: int = 6, slot_s: float = 10.0) -> None:
        self._slot_s = slot_s
        self._slots = [array("L", bytes(8 * _BUCKETS)) for _ in range(slots)]
        self._total = array("L", bytes(8 * _BUCKETS))
        self._now_slot = 0

    def add(self, seconds: float, now_s: float, weight: int = 1) -> None:
        """Count a duration `weight` times."""
        self._roll(now_s)
        bucket = bucket_of(seconds)
        self._slots[self._now_slot % len(self._slots)][bucket] += weight
        self._total[bucket] += weight

    def spread(self, now_s: float) -> Spread:
        """What is in the window."""
        self._roll(now_s)
        count = sum(self._total)
        if not count:
            return Spread(count=0, p50=None, p99=None)
        sums = list(accumulate(self._total))
        return Spread(count=count, p50=_percentile(sums, 0.50), p99=_percentile(sums, 0.99))

    def _roll(self, now_s: float) -> None:
        slot = int(now_s / self._slot_s)
        gone = min(slot - self._now_slot, len(self._slots))
        for back in range(gone):
            old = self._slots[(slot - back) % len(self._slots)]
            if any(old):
                self._total = array("L", map(int.__sub__, self._total, old))
                old[:] = array("L", bytes(8 * _BUCKETS))
        if gone > 0:
            self._now_slot = slot


def _percentile(sums: list[int], share: float) -> float:
    """Milliseconds below which `share` of what was counted lies."""
    return to_ms(middle_s(bisect_left(sums, math.ceil(share * sums[-1]))))
