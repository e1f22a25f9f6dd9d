"""From samples to a profile: all fits, the device, the guard, and how good each is."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
from msgspec import structs

from pdmuxd.engine.core.errors import ProfileError
from pdmuxd.engine.core.guard import UNMEASURED_RATIO
from pdmuxd.engine.core.latency import LatencyModel
from pdmuxd.engine.link.predictors import Predictors, SoloRun, latency_model
from pdmuxd.engine.profiling import designs, solo
from pdmuxd.engine.profiling.contention import GuardFit, fit_guard
from pdmuxd.engine.profiling.design_points import (
    cost_s,
    decode_points,
    fused_of_size,
    fused_points,
    prefill_points,
)
from pdmuxd.engine.profiling.document import (
    FORMAT,
    FitErrors,
    GuardSummary,
    MeasuredProfile,
    Provenance,
)
from pdmuxd.engine.profiling.hardware import Interference, Pair, colocated_ratios, fit_hardware, pairs_of
from pdmuxd.engine.profiling.joint import JointFit, fit_joint, is_better
from pdmuxd.engine.profiling.measurement import Point, Sample, Target, settled
from pdmuxd.engine.profiling.regression import Floats

FLOORS_AGREEING = 3
"""On so many SM counts a floor of launching must show before it is taken for the floor of all."""
MAX_POINT_S = 10.0
"""The roofline is asked about further points beside the samples, if they take at most so long."""

_CoefficientsT = TypeVar("_CoefficientsT")


def assemble(
    name: str,
    target: Target,
    samples: Sequence[Sample],
    *,
    measured_at: str,
    took_s: float,
    interrupted: bool,
) -> MeasuredProfile:
    """A profile of all that the samples allow. A predictor with too few samples is left out, and the roofline
    predicts instead.

    Raises: ProfileError if there are too few samples even for a roofline.
    """
    samples = settled(samples)
    captured = target.hello.captured_decode_bs
    hardware = fit_hardware(samples, target.prior, captured)
    left_out: list[str] = []
    measured = replace(target, device=hardware.device, overheads=hardware.overheads)
    alone, fits = _solo(samples, measured, left_out)
    pairs = pairs_of(samples, _latency(measured, alone))
    solo_run = _colocated(alone, colocated_ratios(pairs))
    guard = _guard(measured, pairs, left_out)
    interference = guard.interference if guard is not None else Interference()
    roofline = FitErrors(
        predictor="roofline", sms=0, samples=len(samples), outliers=0, errors=hardware.errors
    )
    hello = target.hello
    return MeasuredProfile(
        format=FORMAT,
        name=name,
        provenance=Provenance(
            device=hello.device,
            driver=hello.driver,
            engine=hello.engine,
            engine_version=hello.engine_version,
            sglang_version=hello.sglang_version,
            model=hello.model,
            model_hash=hello.model_hash,
            measured_at=measured_at,
            took_s=took_s,
            samples=len(samples),
            interrupted=interrupted,
        ),
        total_sms=hello.total_sms,
        partitions=hello.partitions,
        model=target.model,
        device=hardware.device,
        overheads=hardware.overheads,
        tensor_parallel=target.tensor_parallel,
        kv_capacity_tokens=hello.kv_capacity_tokens,
        max_decode_bs=hello.max_decode_bs,
        captured_decode_bs=captured,
        captured_fused_tokens=hello.captured_fused_tokens,
        fused_tile_rows=hello.fused_tile_rows,
        solo_run=solo_run,
        fits=(*fits, roofline),
        guard_default_ratio=guard.default_ratio if guard is not None else UNMEASURED_RATIO,
        guard_cells=tuple(sorted(guard.cells.items())) if guard is not None else (),
        guard=None
        if guard is None
        else GuardSummary(
            pairs=guard.pairs,
            exceeded_ratio=guard.exceeded_ratio,
            overestimate_ratio=guard.overestimate_ratio,
        ),
        contention_ratio=interference.contention_ratio,
        decode_colocated_ratio=interference.decode_ratio,
        decode_colocated_sms_ratio=interference.decode_sms_ratio,
        prefill_colocated_ratio=interference.prefill_ratio,
        left_out=tuple(left_out),
        samples=tuple(samples),
    )


def _solo(
    samples: Sequence[Sample], target: Target, left_out: list[str]
) -> tuple[tuple[SoloRun, ...], list[FitErrors]]:
    fits: list[FitErrors] = []
    prefills = _by_sms(samples, "prefill")
    prefill = _fitted(designs.PREFILL, prefills, prefill_points, target, fits, left_out)
    together = fit_joint(prefills)
    if together is not None and is_better(together, _held_out(fits)):
        prefill, fits = dict(together.coefficients), _errors_of(together, prefills)
        left_out.clear()  # of prefill alone as yet
    decode = _fitted(designs.DECODE, _by_sms(samples, "decode"), decode_points, target, fits, left_out)
    fused = _fitted(designs.FUSED, _by_sms(samples, "fused"), fused_points, target, fits, left_out)
    solo_run = tuple(
        SoloRun(sms=sms, prefill=prefill.get(sms), decode=decode.get(sms), fused=fused.get(sms))
        for sms in sorted({*prefill, *decode, *fused})
    )
    return solo_run, fits


def _held_out(fits: Sequence[FitErrors]) -> dict[int, Floats]:
    return {fit.sms: np.array([math.nan if one is None else one for one in fit.held_out]) for fit in fits}


def _errors_of(joint: JointFit, groups: Mapping[int, Sequence[Sample]]) -> list[FitErrors]:
    return [
        FitErrors(
            predictor=designs.PREFILL.name,
            sms=sms,
            samples=len(samples),
            outliers=joint.outliers[sms],
            errors=solo.Errors.of(np.abs(joint.held_out[sms])),
            held_out=tuple(round(float(one), 5) for one in joint.held_out[sms]),
        )
        for sms, samples in groups.items()
    ]


def _by_sms(samples: Sequence[Sample], mode: str) -> dict[int, list[Sample]]:
    groups: dict[int, list[Sample]] = {}
    for sample in samples:
        if sample.point.mode == mode:
            groups.setdefault(sample.sms, []).append(sample)
    return dict(sorted(groups.items()))


def _fitted(
    family: designs.Family[_CoefficientsT],
    groups: dict[int, list[Sample]],
    points: Callable[[Target, int, float], list[Point]],
    target: Target,
    fits: list[FitErrors],
    left_out: list[str],
) -> dict[int, _CoefficientsT]:
    """Coefficients by SM count. Where samples are too few, as after an interruption, the roofline predicts
    instead of a fit.

    Launching takes as long on any number of SMs, so the floor that most of them show is the floor of all.
    """
    captured = family.captured(target.hello)
    found: dict[int, solo.SoloFit[_CoefficientsT]] = {}

    def fit_on(sms: int, floor_s: float | None = None) -> solo.SoloFit[_CoefficientsT]:
        samples = groups[sms]
        around = {*points(target, sms, MAX_POINT_S), *(sample.point for sample in samples)}
        if family is designs.FUSED and captured:
            sizes = {family.size_of(sample.point) for sample in samples}
            around.update(point for size in sizes for point in fused_of_size(target, sms, size))
        expected = sorted(((point, cost_s(target, point)) for point in around), key=lambda one: one[1])
        return solo.fit_solo(family, samples, captured, expected, floor_s)

    for sms in groups:
        try:
            found[sms] = fit_on(sms)
        except ProfileError as error:
            left_out.append(str(error))
    floors = [fit.floor_s for fit in found.values() if fit.floor_s]
    if len(floors) >= FLOORS_AGREEING:
        found = {sms: fit_on(sms, statistics.median(floors)) for sms in found}
    fits += [
        FitErrors(
            predictor=family.name,
            sms=sms,
            samples=fit.samples,
            outliers=fit.outliers,
            errors=fit.errors,
            held_out=tuple(None if math.isnan(one) else round(float(one), 5) for one in fit.held_out),
        )
        for sms, fit in found.items()
    ]
    return {sms: fit.coefficients for sms, fit in found.items()}


def _latency(target: Target, solo_run: tuple[SoloRun, ...]) -> LatencyModel:
    predictors = Predictors(
        profile_id=0,
        profile="",
        provenance="",
        solo_run=solo_run,
        guard_default_ratio=UNMEASURED_RATIO,
        captured_decode_bs=target.hello.captured_decode_bs,
    )
    return latency_model(predictors, target.prior)


def _colocated(solo_run: tuple[SoloRun, ...], ratios: Mapping[int, float]) -> tuple[SoloRun, ...]:
    """The same fits, with how much slower prefill is beside decode where that was measured."""
    return tuple(
        structs.replace(fit, prefill=replace(fit.prefill, colocated_ratio=ratios[fit.sms]))
        if fit.prefill is not None and fit.sms in ratios
        else fit
        for fit in solo_run
    )


def _guard(target: Target, pairs: Sequence[Pair], left_out: list[str]) -> GuardFit | None:
    if not target.splits:
        return None
    try:
        return fit_guard(
            pairs,
            roofline=target.prior,
            splits=target.splits,
            kv_capacity_tokens=target.hello.kv_capacity_tokens,
            max_decode_bs=target.hello.max_decode_bs,
        )
    except ProfileError as error:
        left_out.append(str(error))
        return None
