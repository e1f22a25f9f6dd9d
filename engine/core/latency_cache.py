"""Predicted prefill times of waiting requests, kept: the queue is ordered by them at every safe point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

MAX_ENTRIES = 4096
"""Enough for a long queue on a few partitions. When it is full, the cache is emptied."""


@dataclass(frozen=True, slots=True)
class LatencyCache:
    """Seconds by (new tokens, reused tokens, SMs)."""

    _cached_s: dict[tuple[int, int, int], float] = field(default_factory=dict)

    def lookup(
        self, new_tokens: int, reused_tokens: int, sms: int, compute: Callable[[int, int, int], float]
    ) -> float:
        """What `compute` gives for these three numbers, in seconds; it is called once for each three."""
        key = new_tokens, reused_tokens, sms
        cached_s = self._cached_s.get(key)
        if cached_s is None:
            if len(self._cached_s) >= MAX_ENTRIES:
                self._cached_s.clear()
            cached_s = self._cached_s[key] = compute(new_tokens, reused_tokens, sms)
        return cached_s
