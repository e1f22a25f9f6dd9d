"""Measured pairs: a decode batch beside a prefill, and how much longer than alone each of the two took."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from pdmuxd.engine.core.latency import LatencyModel
from pdmuxd.engine.profiling.points import Point, Sample

MIN_COLOCATED = 5
"""Pairs of one split that tell how much longer its prefills take."""
STALL_RATIO = 1.25
"""Contention lasts as long as the prefill: steps of one pair that scatter more than this were stalled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A decode batch beside a prefill, and how much slower than predicted alone its steps were."""

    point: Point
    slowdown: float
    """Of its slower steps: what the guard must cover."""
    typical: float
    """Of its median step."""
    prefill: float
    """How much slower than predicted alone the prefill was; NaN if it was not measured."""


def pairs_of(samples: Sequence[Sample], latency: LatencyModel) -> list[Pair]:
    """The pairs among samples, against the solo predictor in use: the guard covers its errors too."""
    pairs = []
    for sample in samples:
        high_s, typical_s = sample.decode_high_s, sample.decode_s
        if sample.point.mode == "colocated" and high_s is not None and typical_s is not None:
            solo_s = latency.decode_s(sample.point.decode_shape, sample.point.decode_sms)
            slower_s = high_s if high_s <= STALL_RATIO * typical_s else typical_s
            pairs.append(
                Pair(
                    point=sample.point,
                    slowdown=slower_s / solo_s,
                    typical=typical_s / solo_s,
                    prefill=_prefill_slowdown(sample, latency),
                )
            )
    return pairs


def colocated_ratios(pairs: Sequence[Pair]) -> dict[int, float]:
    """By SM count of the prefill: how many times longer it takes beside decode, typically."""
    by_sms: dict[int, list[float]] = {}
    for pair in pairs:
        if math.isfinite(pair.prefill):
            by_sms.setdefault(pair.point.prefill_sms, []).append(pair.prefill)
    return {
        sms: max(1.0, statistics.median(ratios))
        for sms, ratios in by_sms.items()
        if len(ratios) >= MIN_COLOCATED
    }


def _prefill_slowdown(sample: Sample, latency: LatencyModel) -> float:
    if sample.prefill_s is None:
        return math.nan
    return sample.prefill_s / latency.prefill_s(sample.point.prefill_shape, sample.point.prefill_sms)
