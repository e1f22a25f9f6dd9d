"""What is believed where nothing was measured: the roofline's word, brought to the level of the samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

from pdmuxd.engine.profiling.designs import Design
from pdmuxd.engine.profiling.families import Family
from pdmuxd.engine.profiling.points import Point, Sample
from pdmuxd.engine.profiling.regression import Prior

Expected = Sequence[tuple[Point, float]]
"""Seconds that points are believed to take; those of the samples among them."""

_CoefficientsT = TypeVar("_CoefficientsT", covariant=True)
"""PrefillCoefficients, DecodeCoefficients or FusedCoefficients."""


def prior_of(
    family: Family[_CoefficientsT], design: Design, samples: Sequence[Sample], expected: Expected
) -> Prior | None:
    """What a fit of the design is told besides the samples; None if nothing can be said.

    Of what is expected only the proportions count, since samples say how fast the device is; where sizes have
    times of their own, only what contexts add.
    """
    if design.own_bs and not family.prefers_tables:
        return None
    by_point = dict(expected)
    known = [sample for sample in samples if sample.point in by_point]
    others = {sample.point for sample in samples}
    rest: Expected = [(point, seconds) for point, seconds in expected if point not in others]
    if not known or not rest:
        return None
    if design.own_bs:
        rest = _beyond(family, known, by_point, rest)
    else:
        ratio = float(np.median([sample.seconds / by_point[sample.point] for sample in known]))
        rest = [(point, seconds * ratio) for point, seconds in rest]
    if not rest:
        return None
    return Prior(
        design=family.rows([point for point, _ in rest], design),
        seconds=np.array([seconds for _, seconds in rest]),
    )


def _beyond(
    family: Family[_CoefficientsT], known: Sequence[Sample], by_point: Mapping[Point, float], rest: Expected
) -> Expected:
    """What a size takes was measured; what is believed is how much longer it takes with longer contexts.

    Where each size has a time of its own, and was measured once, samples cannot tell the two apart.
    """
    least: dict[int, Sample] = {}
    for sample in sorted(known, key=lambda one: by_point[one.point]):
        least.setdefault(family.size_of(sample.point), sample)
    found = []
    for point, seconds in rest:
        measured = least.get(family.size_of(point))
        if measured is not None and (beyond_s := seconds - by_point[measured.point]) > -measured.seconds:
            found.append((point, measured.seconds + beyond_s))
    return found
