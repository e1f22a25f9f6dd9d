"""Predicted prefill times of waiting requests, kept: the queue is ordered by them at every safe point."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pdmuxd.engine.core.types import WaitingRequest

MAX_ENTRIES = 4096
"""Enough for a long queue on a few partitions. When it is full, the cache is emptied."""


@dataclass(frozen=True, slots=True)
class LatencyCache:
    """Seconds by SMs, and by (new tokens, reused tokens)."""

    _cached_s: dict[int, dict[tuple[int, int], float]] = field(default_factory=dict)

    def lookup(
        self, new_tokens: int, reused_tokens: int, sms: int, compute: Callable[[int, int, int], float]
    ) -> float:
        """What `compute` gives for these three numbers, in seconds; it is called once for each three."""
        known_s = self._cached_s.get(sms)
        cached_s = None if known_s is None else known_s.get((new_tokens, reused_tokens))
        if cached_s is None:
            if sum(map(len, self._cached_s.values())) >= MAX_ENTRIES:
                self._cached_s.clear()
            cached_s = compute(new_tokens, reused_tokens, sms)
            self._cached_s.setdefault(sms, {})[new_tokens, reused_tokens] = cached_s
        return cached_s

    def lookup_all(
        self, requests: Sequence[WaitingRequest], sms: int, compute: Callable[[int, int, int], float]
    ) -> list[float]:
        """The same for each of these, in their order."""
        try:
            known_s = self._cached_s[sms]
            return [known_s[request.new_tokens, request.reused_tokens] for request in requests]
        except KeyError:  # somebody is new
            return [self.lookup(r.new_tokens, r.reused_tokens, sms, compute) for r in requests]
