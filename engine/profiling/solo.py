"""Fits a solo predictor to its samples, and says how far off it is on samples that it has not seen.

Where nothing was measured, the roofline's predictions serve as a prior, brought to the samples' level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from pdmuxd.engine.core.errors import ProfileError
from pdmuxd.engine.core.shapes import Experts
from pdmuxd.engine.profiling import designs
from pdmuxd.engine.profiling.designs import Design, Family
from pdmuxd.engine.profiling.measurement import Point, Sample
from pdmuxd.engine.profiling.model_selection import Tried, best_of, fit_design, is_told_once
from pdmuxd.engine.profiling.regression import (
    Bools,
    Floats,
    Prior,
    Regression,
    inliers_of,
)

Expected = Sequence[tuple[Point, float]]
"""Seconds that points, those of the samples among them, are expected to take."""

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


MIN_SAMPLES = 8
"""Twice the terms of eq. 1."""
SAMPLES_PER_TERM = 2.0
OWN_SAMPLES_PER_TERM = 1.5
"""Fewer are enough where sizes have times of their own: a decode step scatters by a thousandth."""
TABLE_TERMS = 3
"""Terms that samples must determine beside a table's times; the cost of contexts comes from the prior."""
SPARE_SAMPLES = 1
"""More than one sample per size and shared term, so that they show what contexts cost."""
LIKELY = 0.5
"""A single sample of a size is believed if it is at most this far above the line, relative to itself: a stall
adds more. On 20 SMs of an H200 steps of CodeLlama-34B are up to 0.3 above (2026-11-22)."""
COVERED = 0.7
"""If at least this share of the graphs' sizes was measured, their table is used without comparing it with a
line: with one sample per size nothing could tell which of the two is right."""
OUTLIER_COST = 0.05
"""A sample with a larger error is one that the design cannot explain: often the design is too simple."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Relative errors on held-out samples, outliers included."""

    p50: float
    p90: float
    max: float

    @classmethod
    def of(cls, errors: Floats) -> Errors:
        """Make it from the absolute relative error of each sample."""
        p50, p90 = (float(x) for x in np.percentile(errors, (50.0, 90.0)))
        return cls(p50=p50, p90=p90, max=float(errors.max()))


@dataclass(frozen=True, slots=True, kw_only=True)
class SoloFit(Generic[_CoefficientsT]):
    """A predictor, how it was built, and its errors by cross-validation."""

    coefficients: _CoefficientsT
    design: Design
    terms: Floats
    """Per column of the design."""
    floor_s: float
    errors: Errors
    held_out: Floats
    """Predicted over measured less 1 of each sample, by a fit without it; NaN where none could be made."""
    samples: int
    outliers: int
    is_odd: tuple[bool, ...]
    """Per sample: whether it is far off, confirmed or not."""


def fit_solo(
    family: Family[_CoefficientsT],
    samples: Sequence[Sample],
    captured_bs: tuple[int, ...] = (),
    expected: Expected = (),
    floor_s: float | None = None,
    experts: Experts | None = None,
) -> SoloFit[_CoefficientsT]:
    """Choose the simplest design that predicts as well as any, fit it and cross-validate it.

    Samples are of one mode and one SM count, and so is what is `expected` of other points; of that only the
    proportions count, since samples say how fast the device is. A known `floor_s` is not fitted.
    `experts` are those of the model, if it has any.
    Raises: ProfileError for no samples, too few, or samples that are all of one shape.
    """
    _check(family, samples)
    points = [sample.point for sample in samples]
    seconds = np.array([sample.seconds for sample in samples])
    confirmed = np.array([sample.confirmed for sample in samples])
    tried: list[Tried] = []
    known = experts if family.knows_experts else None

    def attempt(design: Design) -> None:
        rows, prior = family.rows(points, design), prior_of(family, design, samples, expected)
        regression = fit_design(rows, seconds, design, prior, confirmed, floor_s)
        if regression is not None:
            tried.append(Tried(design, rows, prior, regression, _score(regression, rows, design)))

    simplest, *others = _designs(family, points, captured_bs, known)
    attempt(simplest)
    if not tried:
        raise ProfileError(f"{_title(family, samples)}: no design fits {len(samples)} samples")
    is_likely = confirmed | (tried[0].regression.residuals <= LIKELY)
    tables = _tables(family, points, is_likely, captured_bs, known)
    if family.prefers_tables and tables and _covers(tables[-1]):
        others, tables = [], tables[-1:]
        tried.clear()
    for design in (*others, *tables):
        attempt(design)
    best, held_out = best_of(tried, seconds, confirmed, floor_s)
    regression = best.regression
    return SoloFit(
        coefficients=family.coefficients(regression.coefficients, regression.floor_s, best.design),
        design=best.design,
        terms=regression.coefficients,
        floor_s=regression.floor_s,
        errors=Errors.of(np.abs(held_out[~np.isnan(held_out)])),
        held_out=held_out,
        samples=len(samples),
        outliers=int((~regression.is_inlier).sum()),
        is_odd=tuple(bool(one) for one in ~inliers_of(regression.residuals)),
    )


def _check(family: Family[_CoefficientsT], samples: Sequence[Sample]) -> None:
    title = _title(family, samples)
    if len(samples) < MIN_SAMPLES:
        raise ProfileError(f"{title}: {len(samples)} samples; at least {MIN_SAMPLES} are needed")
    points = [sample.point for sample in samples]
    if len({family.size_of(point) for point in points}) < 2:
        raise ProfileError(f"{title}: all {len(samples)} samples are of one size; at least two are needed")
    if len({sample.seconds for sample in samples}) < 2:
        raise ProfileError(
            f"{title}: all {len(samples)} samples took {samples[0].seconds:g} s, whatever their size"
        )


def _title(family: Family[_CoefficientsT], samples: Sequence[Sample]) -> str:
    return f"{family.name} on {samples[0].sms} SMs" if samples else family.name


def _designs(
    family: Family[_CoefficientsT],
    points: Sequence[Point],
    captured_bs: tuple[int, ...],
    experts: Experts | None,
) -> list[Design]:
    """The designs, simplest first, without those that have more terms than the samples can determine."""
    sizes = sorted(family.size_of(point) for point in points)
    fine = tuple(knot for knot in family.knots if sizes[1] < knot < sizes[-2])
    choices = {(), fine[1::2], fine[-3:], fine}
    lines = [
        Design(
            knots=knots,
            has_floor=has_floor,
            tile_tokens=tile,
            captured_bs=captured_bs,
            has_max_context=has_max_context,
            experts=experts,
        )
        for has_max_context in family.max_context_choices
        for knots in sorted(choices, key=len)
        for has_floor in family.floors
        for tile in (family.tiles if not captured_bs else (1,))
        if (4 + len(knots) + has_max_context) * SAMPLES_PER_TERM <= len(points)
        and not (has_floor and has_max_context)
    ]
    own = designs.own_sizes(sizes, captured_bs) if captured_bs or family.has_own_sizes else ()
    if not own or (family.shared_terms + len(own)) * OWN_SAMPLES_PER_TERM > len(points):
        return lines
    return [*lines, *_with_own(family, own, captured_bs, experts)]


def _tables(
    family: Family[_CoefficientsT],
    points: Sequence[Point],
    is_likely: Bools,
    captured_bs: tuple[int, ...],
    experts: Experts | None,
) -> list[Design]:
    """A time of its own for each batch size that was measured, even once: each runs as a graph of its own."""
    if not captured_bs:
        return []
    sizes = [family.size_of(point) for point in points]
    often = designs.own_sizes(sizes, captured_bs)
    likely = [size for size, is_one in zip(sizes, is_likely, strict=True) if is_one]
    own = tuple(sorted({*often, *designs.own_sizes(likely, captured_bs, at_least=1)}))
    if len(own) == len(often) or len(own) + TABLE_TERMS + SPARE_SAMPLES > len(points):
        return []
    return _with_own(family, own, captured_bs, experts)


def _covers(table: Design) -> bool:
    """Whether most graphs in the measured range have a time of their own, so a line would add nothing."""
    largest = table.own_bs[-1]
    return len(table.own_bs) >= COVERED * sum(size <= largest for size in table.captured_bs)


def _with_own(
    family: Family[_CoefficientsT],
    own: tuple[int, ...],
    captured_bs: tuple[int, ...],
    experts: Experts | None,
) -> list[Design]:
    return [
        Design(own_bs=own, captured_bs=captured_bs, has_max_context=has_max_context, experts=experts)
        for has_max_context in family.max_context_choices
    ]


def _score(regression: Regression, rows: Floats, design: Design) -> float:
    """Typical and near-worst error together: the median alone would not show a bend."""
    judged = regression.is_inlier & ~is_told_once(rows, design)
    if not judged.any():
        return np.inf
    errors = np.abs(regression.left_out_residuals[judged])
    outliers = int((~regression.is_inlier).sum())
    return float(np.percentile(errors, 90.0)) + OUTLIER_COST * outliers + 1e-4
