"""Durations as counts on a logarithmic scale, with which an engine reports many of them in few bytes.

A wire format, so it is no library's: docs/decisions/0019.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

Counts = tuple[tuple[int, int], ...]
"""(bucket, how many), by bucket; a bucket may come twice."""

LOWEST_S = 1e-4
GROWTH = 1.08
"""The ratio between two buckets; a bucket's middle is off by at most 4%."""
BUCKETS = 210
"""The last bucket ends at 1e-4 * 1.08**208 s, a quarter of an hour; longer durations are counted in it."""
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
        # At the edge of a bucket, logarithm and power may disagree; so go on by at least one.
        end = max(start + 1, bisect_right(ordered_s, _UPPER_S[bucket], start))
        found.append((bucket, end - start))
        start = end
    return tuple(found)
