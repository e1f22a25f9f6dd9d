"""Gaps between tokens by tenant: the counts of each request, as made or as written, added up as they come."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from pdmuxd.daemon.metrics.definitions import GAP_BUCKETS_S, GAP_EDGES, histogram_family
from pdmuxd.engine.link.durations import BUCKETS, Counts, middle_s

_MIDDLE_S = tuple(middle_s(bucket) for bucket in range(BUCKETS))
_BOUNDS = (*map(repr, GAP_BUCKETS_S), "+Inf")
_SLOT = tuple(bisect_left(GAP_EDGES, bucket) for bucket in range(BUCKETS))
"""For each bucket of the engine, the first bucket of the metric that holds it."""


class GapHistograms(Collector):
    """A histogram of all gaps for each tenant; a request costs a few additions, however many gaps it has.

    Fed in one thread; `collect` may be called in another.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._counts: dict[str, array[int]] = {}
        self._sums_s: dict[str, float] = {}

    def add(self, tenant: str, counts: Counts) -> None:
        if not counts:
            return
        slots = self._counts.setdefault(tenant, array("Q", bytes(8 * len(_BOUNDS))))
        total_s = 0.0
        for bucket, count in counts:
            known = min(max(bucket, 0), BUCKETS - 1)
            slots[_SLOT[known]] += count
            total_s += _MIDDLE_S[known] * count
        self._sums_s[tenant] = self._sums_s.get(tenant, 0.0) + total_s

    def forget(self, tenant: str) -> None:
        """Drop the series of a tenant that is gone."""
        self._counts.pop(tenant, None)
        self._sums_s.pop(tenant, None)

    def collect(self) -> Iterator[Metric]:
        """prometheus_client's call."""
        family = histogram_family(self._name)
        for tenant, slots in tuple(self._counts.items()):
            family.add_metric(
                (tenant,), list(zip(_BOUNDS, accumulate(slots), strict=True)), self._sums_s.get(tenant, 0.0)
            )
        yield family
