"""How sure a profile is of shapes that were not measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pdmuxd.engine.profiling import design_points, designs, families
from pdmuxd.engine.profiling.designs import Design
from pdmuxd.engine.profiling.document import FitErrors, MeasuredProfile
from pdmuxd.engine.profiling.hardware import predict_s
from pdmuxd.engine.profiling.points import Point
from pdmuxd.engine.profiling.regression import Floats, leverage_of

_PRIOR_WEIGHT = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncertainty:
    """A shape, and the relative error to expect of a predictor there."""

    predictor: str
    sms: int
    size: int
    """New tokens of a prefill, requests of a decode batch."""
    reused_tokens: int
    error: float


def uncertainties(profile: MeasuredProfile) -> list[Uncertainty]:
    """Every candidate of the two solo predictors, the least certain first, predictor by predictor."""
    found: list[Uncertainty] = []
    for fit in profile.fits:
        if fit.predictor == "prefill":
            design = Design(knots=designs.PREFILL_KNOTS)
            found += _of(profile, fit, families.PREFILL, design, _prefill_points)
        elif fit.predictor == "decode":
            design = Design(knots=designs.DECODE_KNOTS, captured_bs=profile.captured_decode_bs)
            found += _of(profile, fit, families.DECODE, design, _decode_points)
    return found


def _of(
    profile: MeasuredProfile,
    fit: FitErrors,
    family: families.Family[object],
    design: Design,
    points_on: Callable[[int], list[Point]],
) -> list[Uncertainty]:
    points = [point for point in points_on(fit.sms) if point.kv_tokens <= profile.kv_capacity_tokens]
    measured = [
        sample.point
        for sample in profile.samples
        if sample.point.mode == fit.predictor and sample.sms == fit.sms
    ]
    if not measured:
        return []
    roofline = profile.roofline

    def rows(of: list[Point]) -> Floats:
        seconds = np.array([predict_s(roofline, point, profile.captured_decode_bs) for point in of])
        relative: Floats = family.rows(of, design) / seconds[:, None]
        return relative

    ours, theirs = rows(measured), rows(points)
    scale = np.maximum(np.vstack([ours, theirs]).max(axis=0), np.finfo(np.float64).tiny)
    ours, theirs = ours / scale, theirs / scale
    information = ours.T @ ours + _PRIOR_WEIGHT * np.eye(ours.shape[1])
    variance = leverage_of(np.linalg.inv(information).astype(np.float64), theirs)
    found = [
        Uncertainty(
            predictor=fit.predictor,
            sms=fit.sms,
            size=family.size_of(point),
            reused_tokens=point.prefill_shape.reused_tokens + point.decode_shape.reused_tokens,
            error=fit.errors.p50 * float(np.sqrt(1.0 + one)),
        )
        for point, one in zip(points, variance, strict=True)
    ]
    return sorted(found, key=lambda one: -one.error)


def _prefill_points(sms: int) -> list[Point]:
    return [
        Point(mode="prefill", prefill_sms=sms, decode_sms=0, prefill=((new, reused),))
        for new in design_points.NEW_TOKENS
        for reused in design_points.REUSED_TOKENS
    ]


def _decode_points(sms: int) -> list[Point]:
    return [
        Point(mode="decode", prefill_sms=0, decode_sms=sms, decode=(context,) * bs)
        for bs in design_points.DECODE_BS
        for context in design_points.CONTEXT_TOKENS
    ]
