"""What the engine looked like over virtual time: SM shares, queue, KV and reasons, in equal intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

MAX_INTERVALS = 200
"""As many as a plot can show; longer replays merge neighbours."""
MAX_GOOD_INTERVALS = 60
LEAST_ARRIVALS = 25
"""Fewer in an interval say little of a share."""
BROKEN_INTERVALS = 3
"""A burst that a policy recovers from is no break."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The engine's counters at one instant; SM-seconds are totals since the start."""

    now_s: float
    running: int
    waiting: int
    kv_used_tokens: int
    prefill_sm_s: float
    decode_sm_s: float
    step_s_by_reason: dict[str, float]
    """Seconds of device work under each reason since the previous sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Intervals of virtual time. Shares are of the interval's SM time, or of its step time."""

    end_s: NDArray[np.float64]
    """Ends of the intervals; the first starts at 0."""
    prefill_sm_ratio: NDArray[np.float64]
    decode_sm_ratio: NDArray[np.float64]
    running: NDArray[np.float64]
    """The most in the interval, so that no peak is lost."""
    waiting: NDArray[np.float64]
    kv_used_ratio: NDArray[np.float64]
    reason_ratio: dict[str, NDArray[np.float64]]
    """Share of the interval's step time that was decided for each reason."""

    @property
    def idle_sm_ratio(self) -> NDArray[np.float64]:
        """What neither prefill nor decode used."""
        return np.maximum(0.0, 1.0 - self.prefill_sm_ratio - self.decode_sm_ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodOverTime:
    """Shares of good requests by when they arrived, in equal intervals of virtual time."""

    end_s: NDArray[np.float64]
    """Ends of the intervals; the first starts with the first arrival."""
    good_ratio: NDArray[np.float64]
    """NaN where nothing arrived."""

    def breaks_at_s(self, attainment_ratio: float) -> float | None:
        """The time from which more requests miss their targets than may: the start of the first
        BROKEN_INTERVALS intervals in a row of which that is true. None if there are none."""
        starts_s = [self.end_s[0] - (self.end_s[1] - self.end_s[0] if len(self.end_s) > 1 else 0.0)]
        starts_s += list(self.end_s[:-1])
        in_a_row, since_s = 0, 0.0
        for start_s, ratio in zip(starts_s, self.good_ratio, strict=True):
            if math.isnan(ratio):
                continue
            if ratio >= attainment_ratio:
                in_a_row = 0
                continue
            since_s = since_s if in_a_row else float(start_s)
            in_a_row += 1
            if in_a_row == BROKEN_INTERVALS:
                return since_s
        return None


def good_over_time(arrival_s: NDArray[np.float64], good: NDArray[np.bool_]) -> GoodOverTime:
    """Goodput over time, in as many intervals as leave LEAST_ARRIVALS to each on average."""
    count = min(MAX_GOOD_INTERVALS, max(1, len(arrival_s) // LEAST_ARRIVALS))
    edges = np.linspace(arrival_s.min(), max(arrival_s.max(), arrival_s.min() + 1e-9), count + 1)
    place = np.clip(np.searchsorted(edges, arrival_s, side="right") - 1, 0, count - 1)
    arrived = np.bincount(place, minlength=count)
    ratio = np.full(count, np.nan)
    np.divide(np.bincount(place, weights=good, minlength=count), arrived, out=ratio, where=arrived > 0)
    return GoodOverTime(end_s=edges[1:], good_ratio=ratio)


def summarise(
    samples: Iterable[Sample], *, total_sms: int, kv_capacity_tokens: int, max_intervals: int = MAX_INTERVALS
) -> Timeline:
    """Merge samples, the first of which is taken at 0, into at most `max_intervals` intervals."""
    timing = _without_repeats(samples)
    edges = _edges(len(timing), max_intervals)
    groups = [timing[low + 1 : high + 1] for low, high in pairwise(edges)]
    at = [timing[edge] for edge in edges]
    sm_s = np.diff([sample.now_s for sample in at]) * total_sms
    seconds = [_merged(group) for group in groups]
    totals = np.array([sum(by_reason.values()) for by_reason in seconds])
    reasons = sorted({reason for by_reason in seconds for reason in by_reason})
    return Timeline(
        end_s=np.array([sample.now_s for sample in at[1:]]),
        prefill_sm_ratio=np.diff([sample.prefill_sm_s for sample in at]) / sm_s,
        decode_sm_ratio=np.diff([sample.decode_sm_s for sample in at]) / sm_s,
        running=np.array([max(s.running for s in group) for group in groups], dtype=np.float64),
        waiting=np.array([max(s.waiting for s in group) for group in groups], dtype=np.float64),
        kv_used_ratio=np.array([max(s.kv_used_tokens for s in group) for group in groups])
        / kv_capacity_tokens,
        reason_ratio={
            reason: np.array([by_reason.get(reason, 0.0) for by_reason in seconds])
            / np.where(totals > 0, totals, 1.0)
            for reason in reasons
        },
    )


def _without_repeats(samples: Iterable[Sample]) -> list[Sample]:
    """Drop samples of an instant that was sampled already: an interval has a length."""
    timing: list[Sample] = []
    for sample in samples:
        if not timing or sample.now_s > timing[-1].now_s:
            timing.append(sample)
    return timing


def _edges(count: int, max_intervals: int) -> list[int]:
    step = max(1, -(-(count - 1) // max_intervals))
    edges = list(range(0, count, step))
    return edges if edges[-1] == count - 1 else [*edges, count - 1]


def _merged(group: list[Sample]) -> dict[str, float]:
    merged: dict[str, float] = {}
    for sample in group:
        for reason, seconds in sample.step_s_by_reason.items():
            merged[reason] = merged.get(reason, 0.0) + seconds
    return merged
