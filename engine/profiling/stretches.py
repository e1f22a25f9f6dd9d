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
    """One sample per solo point, in the order of their first; pairs as they are."""
    by_point: dict[Point, list[Sample]] = {}
    for sample in samples:
        by_point.setdefault(sample.point, []).append(sample)
    together: list[Sample] = []
    for point, stretches in by_point.items():
        together += stretches if point.mode == "beside" else [typical(stretches)]
    return together


def typical(stretches: Sequence[Sample]) -> Sample:
    """The median of those that agree with the fastest: stalls only ever add time."""
    fastest = min(stretches, key=lambda sample: sample.seconds)
    agreeing = [one.seconds for one in stretches if one.seconds <= fastest.seconds * (1.0 + AGREEING)]
    if len(agreeing) == 1:
        return fastest
    seconds = statistics.median(agreeing)
    if fastest.point.mode == "prefill":
        return structs.replace(fastest, prefill_s=seconds, confirmed=True)
    return structs.replace(fastest, decode_s=seconds, confirmed=True)
