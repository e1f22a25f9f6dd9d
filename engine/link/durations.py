"""Durations as counts on a logarithmic scale: how an engine tells of many in few bytes."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

Counts = tuple[tuple[int, int], ...]
"""(bucket, how many), by bucket; a bucket may come twice."""

LOWEST_S = 1e-4
GROWTH = 1.08
"""From one bucket to the next; a bucket's middle is off by at most 4%."""
BUCKETS = 210
"""Up to 1e-4 * 1.08**208 s, which is a quarter of an hour; what is longer counts as that."""
_PER_LOG = 1.0 / math.log(GROWTH)
_UPPER_S = (*(LOWEST_S * GROWTH**bucket for bucket in range(BUCKETS - 1)), math.inf)
"""Where each bucket ends."""


def bucket_of(seconds: float) -> int:
    """The bucket that a duration falls into."""
    if seconds <= LOWEST_S:
        return 0
    return min(BUCKETS - 1, 1 + int(math.log(seconds / LOWEST_S) * _PER_LOG))


def middle_s(bucket: int) -> float:
    """The duration that stands for a bucket."""
    return LOWEST_S if bucket == 0 else float(LOWEST_S * GROWTH ** (bucket - 0.5))


def counted(ordered_s: Sequence[float]) -> Counts:
    """Count durations that are sorted: a search per bucket that occurs, not one per duration."""
    found = []
    start = 0
    while start < len(ordered_s):
        bucket = bucket_of(ordered_s[start])
        # At a bucket's very edge logarithm and power may disagree; go on by one at least.
        end = max(start + 1, bisect_right(ordered_s, _UPPER_S[bucket], start))
        found.append((bucket, end - start))
        start = end
    return tuple(found)
