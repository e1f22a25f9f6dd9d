"""Measurements of one point that lie apart in time, and what they say together.

A host that stalls slows whatever it launches meanwhile, all repeats of a short point alike; their median
says nothing of it. Measured again later, the point tells.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from msgspec import structs

from pdmuxd.engine.profiling.points import Point, Sample

AGREEING = 0.1
"""Two measurements of one point that differ by less confirm each other: less than stalls add, more than
launching scatters without them."""


def settled(samples: Sequence[Sample]) -> list[Sample]:
    """One sample per solo point, in the order of their first; pairs as they are.

    What was confirmed while the host was slow, as more work tells that took less, counts as not confirmed.
    """
    by_point: dict[Point, list[Sample]] = {}
    for sample in samples:
        by_point.setdefault(sample.point, []).append(sample)
    together: list[Sample] = []
    for point, replicates in by_point.items():
        together += replicates if point.mode == "colocated" else [typical(replicates)]
    return [
        structs.replace(one, confirmed=False)
        if one.confirmed and any(is_dominated(one, other) for other in together)
        else one
        for one in together
    ]


def is_dominated(sample: Sample, other: Sample) -> bool:
    """Whether the other took clearly less, though it is at least as much work on no more SMs.

    Only of what is launched layer by layer: a graph of a larger decode batch may well be faster.
    """
    return (
        sample.point.mode in ("prefill", "fused")
        and other.point.mode == sample.point.mode
        and other.sms <= sample.sms
        and other.seconds * (1.0 + AGREEING) < sample.seconds
        and all(mine <= theirs for mine, theirs in zip(_work(sample.point), _work(other.point), strict=True))
    )


def _work(point: Point) -> tuple[int, ...]:
    """All that a batch of one mode takes time for."""
    prefill, decode = point.prefill_shape, point.decode_shape
    return (
        prefill.new_tokens,
        prefill.reused_tokens,
        prefill.sum_new_squared,
        prefill.sum_new_times_reused,
        decode.bs,
        decode.reused_tokens,
    )


def typical(replicates: Sequence[Sample]) -> Sample:
    """The median of those that agree with the fastest: stalls only ever add time."""
    fastest = min(replicates, key=lambda sample: sample.seconds)
    agreeing = [one.seconds for one in replicates if one.seconds <= fastest.seconds * (1.0 + AGREEING)]
    if len(agreeing) == 1:
        return fastest
    seconds = statistics.median(agreeing)
    if fastest.point.mode == "prefill":
        return structs.replace(fastest, prefill_s=seconds, confirmed=True)
    return structs.replace(fastest, decode_s=seconds, confirmed=True)
