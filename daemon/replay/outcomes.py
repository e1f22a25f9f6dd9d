"""What became of every request of a replay, in columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """One entry per request, in the trace's order; times in seconds of virtual time.

    A request that did not finish keeps what it got: its first token if it had one, and its gaps.
    """

    arrival_s: Floats
    input_tokens: Counts
    output_tokens: Counts
    """Asked for."""
    produced_tokens: Counts
    reused_tokens: Counts
    ttft_s: Floats
    """Infinite if no token ever came."""
    gap_p99_s: Floats
    """Nearest-rank p99 of the request's own gaps; 0 if it has none."""
    gap_max_s: Floats
    gaps_met: Counts
    """Gaps within the TBT target."""
    end_s: Floats
    """Infinite if it never ended."""
    finished: Flags
    failed: Flags
    tenants: tuple[str, ...]
    """Names, sorted; `tenant` holds indices into them."""
    tenant: Counts
    gaps_s: NDArray[np.float32]
    """Every gap between two tokens of a request that occurred, in no particular order.

    float32 is exact to 4 ns below 64 ms.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTotals:
    """What the engine counted over the whole replay. SM-seconds are SMs times seconds."""

    total_sms: int
    steps: int
    switches: int
    preemptions: int
    retractions: int
    prefill_sm_s: float
    decode_sm_s: float
    end_s: float
    """Virtual instant of the last event."""
    stalls: int = 0
    host_delays: int = 0
    tbt_use: NDArray[np.float32] | None = None
    """Decode steps with prompt tokens in or beside them: their time over the TBT target."""


def nearest_rank(values: NDArray[np.floating], permille: int, missing: int = 0) -> float:
    """The nearest-rank percentile: the smallest value with at least that share at or below it.

    `missing` further values count as infinite. NaN-free input; 0.0 if there are no values at all.
    """
    total = len(values) + missing
    if total == 0:
        return 0.0
    rank = max(1, -(-permille * total // 1000))
    if rank > len(values):
        return float("inf")
    return float(np.partition(values, rank - 1)[rank - 1])
