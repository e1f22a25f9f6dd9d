"""What can be said of a profile: how it differs from another, and how certain it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from pdmuxd.engine.core.types import DecodeShape, PrefillShape
from pdmuxd.engine.profiling import design_points, designs
from pdmuxd.engine.profiling.designs import Design
from pdmuxd.engine.profiling.document import FitErrors, MeasuredProfile
from pdmuxd.engine.profiling.hardware import predict_s
from pdmuxd.engine.profiling.measurement import Point
from pdmuxd.engine.profiling.regression import Floats, leverage_of

PREFILL = PrefillShape.of([(2048, 0)])
DECODE = DecodeShape(bs=32, reused_tokens=32 * 1024)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One quantity of two profiles; None for a profile that does not have it."""

    quantity: str
    unit: str
    before: float | None
    after: float | None


def differences(before: MeasuredProfile, after: MeasuredProfile) -> tuple[Difference, ...]:
    """Quantities that differ, and those that only one has."""
    ours, theirs = dict(_quantities(before)), dict(_quantities(after))
    return tuple(
        Difference(quantity=name, unit=unit, before=ours.get((name, unit)), after=theirs.get((name, unit)))
        for name, unit in dict.fromkeys([*ours, *theirs])
        if ours.get((name, unit)) != theirs.get((name, unit))
    )


def _quantities(profile: MeasuredProfile) -> Iterator[tuple[tuple[str, str], float]]:
    device, overheads = profile.device, profile.overheads
    yield ("GPUs", ""), float(profile.tensor_parallel.gpus)
    yield ("compute", "TFLOP/s"), device.flops / 1e12
    yield ("bandwidth", "TB/s"), device.bytes_per_s / 1e12
    yield ("bandwidth curvature", ""), device.bandwidth_curvature
    yield ("compute curvature", ""), device.compute_curvature
    yield ("not overlapped", "ratio"), device.serial_ratio
    yield ("launching a layer", "ms"), overheads.layer_launch_s * 1000.0
    yield ("launching a graph", "ms"), overheads.graph_launch_s * 1000.0
    yield ("host work of a step", "ms"), overheads.host_step_s * 1000.0
    if profile.launching is not None:
        yield ("launching a layer, p95 over p50", "ratio"), profile.launching.high_ratio
    yield ("guard where nothing is known", "ratio"), profile.guard_default_ratio
    if profile.guard_cells:
        ratios = [ratio for _, ratio in profile.guard_cells]
        yield ("guard, mean of its cells", "ratio"), sum(ratios) / len(ratios)
        yield ("guard, highest cell", "ratio"), max(ratios)
    for fit in profile.solo_run:
        if fit.prefill is not None:
            seconds = fit.prefill.predict_s(PREFILL)
            yield (f"prefill of 2048 tokens on {fit.sms} SMs", "ms"), seconds * 1000.0
            if fit.prefill.colocated_ratio:
                yield (f"prefill beside decode on {fit.sms} SMs", "times alone"), fit.prefill.colocated_ratio
        if fit.decode is not None:
            seconds = fit.decode.predict_s(DECODE, profile.captured_decode_bs)
            yield (f"decode step of 32 x 1024 tokens on {fit.sms} SMs", "ms"), seconds * 1000.0
    for errors in profile.fits:
        where = f" on {errors.sms} SMs" if errors.sms else ""
        yield (f"p90 error of {errors.predictor}{where}", "%"), errors.errors.p90 * 100.0


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
            found += _of(profile, fit, designs.PREFILL, design, _prefill_points)
        elif fit.predictor == "decode":
            design = Design(knots=designs.DECODE_KNOTS, captured_bs=profile.captured_decode_bs)
            found += _of(profile, fit, designs.DECODE, design, _decode_points)
    return found


def _of(
    profile: MeasuredProfile,
    fit: FitErrors,
    family: designs.Family[object],
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
