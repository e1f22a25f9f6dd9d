"""What SGLang's own dashboard reads beside the load: latencies, and how fast tokens come.

They name no tenant, as all on the data address that needs no key.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import accumulate

from pdmuxd.engine.link.messages import EngineStats

_TTFT_EDGES_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0)
_E2E_EDGES_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0, 300.0, 600.0)
_OVER_S = 1.0
"""A speed is measured over at least so long: heartbeats come four times a second."""


class _Histogram:
    def __init__(self, name: str, edges_s: tuple[float, ...]) -> None:
        self._name, self._edges_s = name, edges_s
        self._counts = [0] * (len(edges_s) + 1)
        self._sum_s = 0.0

    def observe(self, took_s: float) -> None:
        self._counts[bisect_left(self._edges_s, took_s)] += 1
        self._sum_s += took_s

    def lines(self, labels: str) -> Iterator[str]:
        yield f"# TYPE {self._name} histogram"
        edges = (*(f"{edge_s:g}" for edge_s in self._edges_s), "+Inf")
        for edge, count in zip(edges, accumulate(self._counts), strict=True):
            yield f'{self._name}_bucket{{{labels},le="{edge}"}} {count}'
        yield f"{self._name}_sum{{{labels}}} {self._sum_s:g}"
        yield f"{self._name}_count{{{labels}}} {sum(self._counts)}"


class SglangSeries:
    """Lives in the event loop. Times are of answers of the model, in seconds since their requests came."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ttft = _Histogram("sglang:time_to_first_token_seconds", _TTFT_EDGES_S)
        self._e2e = _Histogram("sglang:e2e_request_latency_seconds", _E2E_EDGES_S)
        self._looked: tuple[float, int] | None = None
        """When the engine's tokens were looked at, and how many they were."""
        self._tokens_per_s = 0.0

    def begun(self, took_s: float) -> None:
        """The first byte of an answer came."""
        self._ttft.observe(took_s)

    def ended(self, took_s: float) -> None:
        """An answer is whole."""
        self._e2e.observe(took_s)

    def tokens_per_s(self, stats: EngineStats | None) -> float:
        """How fast the engine made tokens between the looks, which scrapers take; 0 at the first."""
        now_s, tokens = self._clock(), 0 if stats is None else stats.output_tokens
        if self._looked is None or tokens < self._looked[1]:
            self._looked, self._tokens_per_s = (now_s, tokens), 0.0
        elif now_s - self._looked[0] >= _OVER_S:
            self._tokens_per_s = (tokens - self._looked[1]) / (now_s - self._looked[0])
            self._looked = now_s, tokens
        return self._tokens_per_s

    def lines(self, labels: str) -> Iterator[str]:
        """The latencies in Prometheus's format."""
        yield from self._ttft.lines(labels)
        yield from self._e2e.lines(labels)
