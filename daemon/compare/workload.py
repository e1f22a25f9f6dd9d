"""Runs drawn from a trace: its requests' lengths and prefixes, with Poisson arrivals at a chosen rate. Pure.

The draws of one seed are common to all rates and policies: a higher rate sees the same requests in the
same order, closer together. So a difference between two policies is never a difference in luck.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pdmuxd.daemon.replay.trace import Trace
from pdmuxd.engine.core.errors import TraceError

BLOCK = 1024


def draw(trace: Trace, *, rate_rps: float, seconds: float, seed: int, shuffle: bool) -> Trace:
    """One run: `seconds` of arrivals at `rate_rps` a second, with at least one request.

    Requests come in the trace's order from a seeded offset, or in a seeded order if `shuffle`; from its
    end they go on at its beginning.
    """
    order_seed, arrival_seed = np.random.SeedSequence(seed).spawn(2)
    arrival_s = _unit_arrivals(rate_rps * seconds, np.random.default_rng(arrival_seed)) / rate_rps
    order = _order(len(trace.requests), len(arrival_s), np.random.default_rng(order_seed), shuffle=shuffle)
    return replace(
        trace,
        requests=tuple(
            replace(trace.requests[index], arrival_s=at_s)
            for index, at_s in zip(order.tolist(), arrival_s.tolist(), strict=True)
        ),
    )


def without_longer(trace: Trace, max_input_tokens: int) -> tuple[Trace, int]:
    """The trace without requests of longer prompts, and how many those were.

    Raises: TraceError if none is left.
    """
    kept = tuple(request for request in trace.requests if request.input_tokens <= max_input_tokens)
    if not kept:
        raise TraceError(
            f"{trace.path}: all {len(trace.requests):,} requests have more than "
            f"{max_input_tokens:,} input tokens"
        )
    return replace(trace, requests=kept), len(trace.requests) - len(kept)


def _unit_arrivals(until: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Instants of a Poisson process of rate 1 up to `until`; blocks, so that a longer one begins alike."""
    blocks: list[NDArray[np.float64]] = []
    reached = 0.0
    while reached < until or not blocks:
        block = reached + np.cumsum(rng.standard_exponential(BLOCK))
        blocks.append(block)
        reached = float(block[-1])
    arrivals = np.concatenate(blocks)
    return arrivals[: max(1, int(np.searchsorted(arrivals, until)))]


def _order(available: int, count: int, rng: np.random.Generator, *, shuffle: bool) -> NDArray[np.int64]:
    cycle = np.arange(count, dtype=np.int64) % available
    if shuffle:
        return rng.permutation(available)[cycle]
    return (cycle + int(rng.integers(available))) % available
